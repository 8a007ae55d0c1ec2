package crd

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"time"

	"k8s.io/apiextensions-apiserver/pkg/apihelpers"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"portico/backends/crd/custom"
	"portico/backends/process"
	"portico/resource"
	"portico/resource/loop"
	"portico/resource/rest"
)

const (
	// maxFinalizing bounds how many definitions are finalized at a time.
	maxFinalizing = 10
	// statusInterval is how often the conditions of all definitions are checked even if
	// none has changed.
	statusInterval = time.Minute
)

// finalizer deletes the objects of definitions that are being deleted, removes their
// finalizer, and updates the status of the others: a definition with taken names gets
// them once they are free. It runs in one elected server.
type finalizer struct {
	server *Server
	log    *slog.Logger
	wake   *loop.Signal
	tasks  *process.Tasks
}

func newFinalizer(s *Server) *finalizer {
	return &finalizer{
		server: s, log: s.log, wake: new(loop.Signal),
		tasks: process.NewTasks(maxFinalizing, loop.Backoff{Initial: 50 * time.Millisecond, Max: 5 * time.Second}),
	}
}

// run works until ctx ends.
func (f *finalizer) run(ctx context.Context) {
	defer f.tasks.Wait()
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
			if waitsForObjects(o) {
				f.tasks.Start(ctx, string(o.UID), func(ctx context.Context) error { return f.finalize(ctx, o) })
			}
		}
	}
}

// updateGroup updates the status of the definitions of a group. all is the discovery of all
// definitions.
func (f *finalizer) updateGroup(ctx context.Context, group []*apiextensionsv1.CustomResourceDefinition, all *totals) {
	for _, o := range group {
		if o.DeletionTimestamp != nil || !updateStatus(o.DeepCopy(), group, all) {
			continue
		}
		release := func() {}
		_, err := rest.Modify(ctx, f.server.definitions, resource.Key{Name: o.Name}, func(crd *apiextensionsv1.CustomResourceDefinition) error {
			if crd.UID == o.UID && crd.DeletionTimestamp == nil {
				release = f.server.claims.updateStatus(crd, group, all, true)
				setStructural(crd)
			}
			return nil
		})
		if err != nil {
			release()
		}
		if err != nil && !apierrors.IsNotFound(err) && ctx.Err() == nil {
			f.log.Warn("updating the conditions of a definition failed", "definition", o.Name, "err", err)
		}
	}
}

// errInstancesLeft means that objects are left, and finalize must be repeated.
var errInstancesLeft = errors.New("custom resources have finalizers")

// finalize deletes the objects of a definition once, and removes its finalizer if none are
// left. It returns nil when there is nothing more to do.
func (f *finalizer) finalize(ctx context.Context, o *custom.Outline) error {
	err := f.finalizeOnce(ctx, o)
	if err != nil && ctx.Err() == nil && !errors.Is(err, errInstancesLeft) {
		f.log.Warn("deleting the objects of a definition failed", "definition", o.Name, "err", err)
	}
	return err
}

func (f *finalizer) finalizeOnce(ctx context.Context, o *custom.Outline) error {
	o, err := f.current(ctx, o)
	if err != nil || o == nil {
		return err
	}
	d := deletion{neverEstablished: !isEstablished(o.CustomResourceDefinition), overlapping: f.server.overlaps(o)}
	if !d.overlapping {
		if err := f.bar(ctx, o); err != nil {
			return err
		}
		// Also for a definition that was never established: its objects could be created
		// once its names were accepted, and the next definition of that name would get
		// them.
		d.left, d.failed = f.deleteObjects(ctx, o)
	}
	return f.record(ctx, o, d)
}

// barred is how long creations are stopped after the deletion of their definition has begun: longer than a request
// takes.
const barred = 5 * time.Minute

// bar stops creations that other requests, or other processes, have begun, before the first look for objects.
func (f *finalizer) bar(ctx context.Context, o *custom.Outline) error {
	c := apihelpers.FindCRDCondition(o.CustomResourceDefinition, apiextensionsv1.Terminating)
	if f.server.etcd == nil || c != nil && c.Reason == reasonDeleting {
		return nil
	}
	if err := f.server.etcd.Bar(ctx, string(o.UID), barred); err != nil {
		return fmt.Errorf("stop the creation of objects: %w", err)
	}
	return nil
}

// current returns the current state of a definition; nil if it no longer waits for its
// objects. If its finalizer was removed by a client there may be another definition of its
// name; the objects of that must not be deleted.
func (f *finalizer) current(ctx context.Context, o *custom.Outline) (*custom.Outline, error) {
	cur, err := f.server.definitions.Store.Get(ctx, resource.Key{Name: o.Name}, resource.At{})
	switch {
	case apierrors.IsNotFound(err), err == nil && cur.UID != string(o.UID):
		return nil, nil
	case err != nil:
		return nil, fmt.Errorf("read the definition: %w", err)
	}
	if o, err = custom.NewOutline(cur); err != nil || !waitsForObjects(o) {
		return nil, err
	}
	return o, nil
}

// waitsForObjects reports whether a definition is being deleted and has the finalizer for
// its objects.
func waitsForObjects(o *custom.Outline) bool {
	return o.DeletionTimestamp != nil && slices.Contains(o.Finalizers, apiextensionsv1.CustomResourceCleanupFinalizer)
}

// overlaps reports whether a definition's objects would have the storage path of a
// built-in kind. The objects of that must not be deleted.
func (s *Server) overlaps(o *custom.Outline) bool {
	path := o.StoragePath() + "/"
	return strings.HasPrefix(path, s.definitions.Path+"/") ||
		slices.ContainsFunc(builtinPaths(), func(builtin string) bool { return strings.HasPrefix(path, builtin) })
}

// rowOf returns the resource of a definition in one of its versions, which may not be served;
// nil if it does not have that version.
func (s *Server) rowOf(o *custom.Outline, version string) *rest.Resource {
	if d := s.definitionOf(o.Spec.Group, o.Status.AcceptedNames.Plural); d != nil && d.UID == o.UID {
		if row := d.rows[version]; row != nil {
			return row
		}
		o = d.serving.outline // its schemas may be built already
	}
	return s.row(o, version)
}

// cleaner returns the user that deletes the objects of a definition.
func cleaner() *resource.User {
	return &resource.User{Name: "system:apiserver", Groups: []string{resource.GroupMasters}}
}

// deleteObjects deletes a definition's objects and returns how many are left.
func (f *finalizer) deleteObjects(ctx context.Context, definition *custom.Outline) (left int, err error) {
	storage := f.server.rowOf(definition, custom.StorageVersion(definition.CustomResourceDefinition))
	if storage == nil {
		return 0, errors.New("the definition has no storage version")
	}
	list, err := storage.Store.List(ctx, resource.ListOptions{})
	if err != nil {
		return 0, fmt.Errorf("could not list instances: %w", err)
	}
	// An object is deleted in the version that it is stored in: that needs no conversion webhook.
	rows := map[string]*rest.Resource{}
	for _, o := range list.Items {
		if o.Terminating() {
			continue
		}
		row := rows[o.APIVersion]
		if row == nil {
			row = cmp.Or(f.server.rowOf(definition, strings.TrimPrefix(o.APIVersion, definition.Spec.Group+"/")), storage)
			rows[o.APIVersion] = row
		}
		deleteErr := f.server.api.DeleteObject(ctx, row, cleaner(), o)
		if deleteErr != nil && !apierrors.IsNotFound(deleteErr) && !apierrors.IsConflict(deleteErr) && err == nil {
			err = fmt.Errorf("could not issue all deletes: %w", deleteErr)
		}
	}
	if err != nil {
		return len(list.Items), err
	}
	if list, err = storage.Store.List(ctx, resource.ListOptions{}); err != nil {
		return 0, fmt.Errorf("could not list instances: %w", err)
	}
	return len(list.Items), nil
}

// reasonDeleting is the reason of Terminating after the first look for objects.
const reasonDeleting = "InstanceDeletionInProgress"

// deletion is the progress of deleting a definition's objects.
type deletion struct {
	neverEstablished bool
	// overlapping means that its objects are not deleted (see overlaps).
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
		Reason: reasonDeleting, Message: "CustomResource deletion is in progress",
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
func (f *finalizer) record(ctx context.Context, o *custom.Outline, d deletion) error {
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
		apihelpers.SetCRDCondition(crd, d.condition())
		if d.done() {
			apihelpers.CRDRemoveFinalizer(crd, apiextensionsv1.CustomResourceCleanupFinalizer)
		}
		next, err := row.Codec.EncodeStored(crd)
		return resource.Mutation{Object: next, Delete: d.done() && len(crd.Finalizers) == 0}, err
	})
	switch {
	case apierrors.IsNotFound(err), err == nil && d.done():
		return nil
	case err != nil:
		return fmt.Errorf("write the conditions: %w", err)
	case d.failed != nil:
		return d.failed
	}
	return errInstancesLeft
}
