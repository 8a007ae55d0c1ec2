package crd

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"time"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"portico/resource"
	"portico/resource/loop"
	"portico/resource/rest"
)

const (
	// maxFinalizing bounds how many definitions are emptied at a time.
	maxFinalizing = 10
	// statusInterval is how often the conditions of all definitions are checked even if
	// none has changed.
	statusInterval = time.Minute
)

// finalizer deletes the objects of definitions that are being deleted, removes their
// finalizer, and updates the status of the others: a definition that waits for a name
// gets it once that is free. It runs in one elected server.
type finalizer struct {
	server  *Server
	log     *slog.Logger
	wake    *loop.Signal
	backoff loop.Backoff
	slots   chan struct{}

	mu   sync.Mutex
	busy map[string]bool // by uid
}

func newFinalizer(s *Server) *finalizer {
	return &finalizer{
		server: s, log: s.log, wake: new(loop.Signal), slots: make(chan struct{}, maxFinalizing),
		backoff: loop.Backoff{Initial: 50 * time.Millisecond, Max: 5 * time.Second}, busy: map[string]bool{},
	}
}

// run works until ctx ends.
func (f *finalizer) run(ctx context.Context) {
	var wg sync.WaitGroup
	defer wg.Wait()
	tick := time.NewTicker(statusInterval)
	defer tick.Stop()
	f.wake.Set()
	var seen map[string][]*apiextensionsv1.CustomResourceDefinition
	for {
		select {
		case <-ctx.Done():
			return
		case <-f.wake.C():
		case <-tick.C:
			seen = nil
		}
		now := f.server.served.Load()
		if now == nil {
			continue
		}
		for group, list := range now.stored {
			if !slices.Equal(list, seen[group]) {
				f.updateGroup(ctx, list, now.totals())
			}
		}
		seen = now.stored
		for _, o := range now.outlines {
			if !waitsForObjects(o) || !f.begin(string(o.UID)) {
				continue
			}
			wg.Go(func() {
				defer f.end(string(o.UID))
				f.finalize(ctx, o)
			})
		}
	}
}

func (f *finalizer) begin(uid string) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.busy[uid] {
		return false
	}
	f.busy[uid] = true
	return true
}

func (f *finalizer) end(uid string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	delete(f.busy, uid)
}

// updateGroup updates the status of the definitions of a group, by each other and by what
// discovery has of all.
func (f *finalizer) updateGroup(ctx context.Context, group []*apiextensionsv1.CustomResourceDefinition, all *totals) {
	bring := func(crd *apiextensionsv1.CustomResourceDefinition) (changed bool) {
		now := time.Now()
		changed = updateStatus(crd, group, now)
		return all.note(crd, now) || changed
	}
	for _, o := range group {
		if o.DeletionTimestamp != nil || !bring(o.DeepCopy()) {
			continue
		}
		_, err := rest.Modify(ctx, f.server.definitions, resource.Key{Name: o.Name}, func(crd *apiextensionsv1.CustomResourceDefinition) error {
			if crd.UID == o.UID && crd.DeletionTimestamp == nil {
				bring(crd)
			}
			return nil
		})
		if err != nil && !apierrors.IsNotFound(err) && ctx.Err() == nil {
			f.log.Warn("writing the conditions of a definition failed", "definition", o.Name, "err", err)
		}
	}
}

// finalize finalizes one definition, with retries until it is gone.
func (f *finalizer) finalize(ctx context.Context, o *outline) {
	// Retry ends when the definition is gone, or with ctx.
	_ = loop.Retry(ctx, f.backoff, func(ctx context.Context) error {
		err := f.round(ctx, o)
		if err != nil && ctx.Err() == nil && !errors.Is(err, errInstancesLeft) {
			f.log.Warn("deleting the objects of a definition failed", "definition", o.Name, "err", err)
		}
		return err
	})
}

// errInstancesLeft means that the round must be repeated.
var errInstancesLeft = errors.New("custom resources wait for their finalizers")

// round deletes the objects of a definition once, and removes its finalizer if none are
// left.
func (f *finalizer) round(ctx context.Context, o *outline) error {
	select {
	case f.slots <- struct{}{}:
	case <-ctx.Done():
		return ctx.Err()
	}
	defer func() { <-f.slots }()
	o, err := f.waiting(ctx, o)
	if err != nil || o == nil {
		return err
	}
	how := deletion{neverEstablished: !isEstablished(o.CustomResourceDefinition), overlapping: f.server.overlaps(o)}
	if !how.overlapping {
		// Also of one that was never established: its objects could be created once its
		// names were accepted, and would belong to the next definition of that name.
		how.left, how.failed = f.empty(ctx, o)
	}
	return f.record(ctx, o, how)
}

// waiting returns the current state of a definition; nil if it no longer waits for its
// objects. If its finalizer was removed by hand there may be another definition of its
// name, whose objects must not be deleted.
func (f *finalizer) waiting(ctx context.Context, o *outline) (*outline, error) {
	cur, err := f.server.definitions.Store.Get(ctx, resource.Key{Name: o.Name}, resource.At{})
	switch {
	case apierrors.IsNotFound(err), err == nil && cur.UID != string(o.UID):
		return nil, nil
	case err != nil:
		return nil, fmt.Errorf("read the definition: %w", err)
	}
	if o, err = newOutline(cur); err != nil || !waitsForObjects(o) {
		return nil, err
	}
	return o, nil
}

// waitsForObjects reports whether a definition has the finalizer for its objects.
func waitsForObjects(o *outline) bool {
	return o.DeletionTimestamp != nil && slices.Contains(o.Finalizers, apiextensionsv1.CustomResourceCleanupFinalizer)
}

// overlaps reports whether a definition's objects would have the storage path of a
// built-in kind, whose objects must not be deleted.
func (s *Server) overlaps(o *outline) bool {
	path := o.storagePath() + "/"
	return strings.HasPrefix(path, s.definitions.Path+"/") ||
		slices.ContainsFunc(builtinPaths(), func(builtin string) bool { return strings.HasPrefix(path, builtin) })
}

// storedAs returns the resource of a definition in its storage version, which may not be
// served.
func (s *Server) storedAs(o *outline) (*rest.Resource, error) {
	v := &serving{outline: o}
	version := storageVersion(o.CustomResourceDefinition)
	if now := s.served.Load(); now != nil {
		if d := now.byGR[schema.GroupResource{Group: o.Spec.Group, Resource: o.Status.AcceptedNames.Plural}]; d != nil && d.UID == o.UID {
			if row := d.rows[version]; row != nil {
				return row, nil
			}
			v = d.serving
		}
	}
	at := slices.IndexFunc(o.Spec.Versions, func(o apiextensionsv1.CustomResourceDefinitionVersion) bool { return o.Name == version })
	if at < 0 {
		return nil, errors.New("the definition has no storage version")
	}
	k := s.newKind(v, &o.Spec.Versions[at])
	return &rest.Resource{Kind: k, Store: s.cache.Store(&k.Info)}, nil
}

// cleaner is the user that deletes the objects of a definition.
func cleaner() *resource.User {
	return &resource.User{Name: "system:apiserver", Groups: []string{resource.GroupMasters}}
}

// empty deletes a definition's objects and returns how many are left.
func (f *finalizer) empty(ctx context.Context, o *outline) (left int, err error) {
	row, err := f.server.storedAs(o)
	if err != nil {
		return 0, err
	}
	list, err := row.Store.List(ctx, resource.ListOptions{})
	if err != nil {
		return 0, fmt.Errorf("could not list instances: %w", err)
	}
	for _, o := range list.Items {
		if o.Terminating() {
			continue
		}
		deleteErr := f.server.api.DeleteObject(ctx, row, cleaner(), o)
		if deleteErr != nil && !apierrors.IsNotFound(deleteErr) && !apierrors.IsConflict(deleteErr) && err == nil {
			err = fmt.Errorf("could not issue all deletes: %w", deleteErr)
		}
	}
	if err != nil {
		return len(list.Items), err
	}
	if list, err = row.Store.List(ctx, resource.ListOptions{}); err != nil {
		return 0, fmt.Errorf("could not list instances: %w", err)
	}
	return len(list.Items), nil
}

// deletion is the progress of deleting a definition's objects.
type deletion struct {
	neverEstablished bool
	// overlapping: its objects are not deleted (see overlaps).
	overlapping bool
	failed      error
	left        int
}

// done reports whether the finalizer may be removed.
func (d deletion) done() bool { return d.failed == nil && d.left == 0 }

// condition returns the condition Terminating.
func (d deletion) condition() apiextensionsv1.CustomResourceDefinitionCondition {
	c := apiextensionsv1.CustomResourceDefinitionCondition{
		Type: apiextensionsv1.Terminating, Status: apiextensionsv1.ConditionTrue,
		Reason: "InstanceDeletionInProgress", Message: "CustomResource deletion is in progress",
	}
	switch {
	case d.failed != nil:
		c.Reason, c.Message = "InstanceDeletionFailed", d.failed.Error()
	case d.left > 0:
	case d.overlapping:
		c.Status, c.Reason, c.Message = apiextensionsv1.ConditionFalse, "OverlappingBuiltInResource", "instances overlap with built-in resources in storage"
	case d.neverEstablished:
		c.Status, c.Reason, c.Message = apiextensionsv1.ConditionFalse, "NeverEstablished", "resource was never established"
	default:
		c.Status, c.Reason, c.Message = apiextensionsv1.ConditionFalse, "InstanceDeletionCompleted", "removed all instances"
	}
	return c
}

// record stores the progress, or removes the finalizer.
func (f *finalizer) record(ctx context.Context, o *outline, how deletion) error {
	row := f.server.definitions
	_, err := row.Store.Update(ctx, resource.Key{Name: o.Name}, func(cur *resource.Object) (resource.Mutation, error) {
		if cur == nil || cur.UID != string(o.UID) {
			return resource.Mutation{}, apierrors.NewNotFound(row.GroupResource(), o.Name)
		}
		obj, err := row.Decode(cur)
		if err != nil {
			return resource.Mutation{}, err
		}
		crd := obj.(*apiextensionsv1.CustomResourceDefinition)
		setCondition(crd, how.condition(), time.Now())
		if how.done() {
			crd.Finalizers = slices.DeleteFunc(crd.Finalizers, func(name string) bool { return name == apiextensionsv1.CustomResourceCleanupFinalizer })
		}
		next, err := row.Codec.EncodeStored(crd)
		return resource.Mutation{Object: next, Delete: how.done() && len(crd.Finalizers) == 0}, err
	})
	switch {
	case apierrors.IsNotFound(err), err == nil && how.done():
		return nil
	case err != nil:
		return fmt.Errorf("write the conditions: %w", err)
	case how.failed != nil:
		return how.failed
	}
	return errInstancesLeft
}
