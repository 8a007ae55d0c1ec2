package core

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"portico/discovery"
	"portico/resource"
	"portico/resource/client"
	"portico/resource/loop"
)

// drainer deletes the content of namespaces that are being deleted, and then removes
// their finalizer. One goroutine drains a namespace, several namespaces in parallel; it
// sends no requests while none is being deleted.
//
// Another core server may drain the same namespace, and a namespace of the same name may
// be created meanwhile. So a namespace is identified by its uid, and listed objects are
// deleted only if the namespace is still the same after the list.
type drainer struct {
	core    *Core
	own     *client.Client // the server itself, in memory
	gateway *client.Client // nil: nothing but the own kinds is drained
	log     *slog.Logger
	slots   chan struct{}
	backoff loop.Backoff

	mu   sync.Mutex
	busy map[string]bool // by uid
}

// maxDrains bounds how many namespaces are emptied at a time. One that waits
// for its next round does not count.
const maxDrains = 10

func newDrainer(c *Core, gateway *client.Client) *drainer {
	return &drainer{
		core: c, gateway: gateway, log: c.log,
		own:     client.New(client.Config{BaseURL: "http://core", Transport: client.InProcess(c.api, controllerUser())}),
		slots:   make(chan struct{}, maxDrains),
		backoff: loop.Backoff{Initial: 100 * time.Millisecond, Max: 5 * time.Second},
		busy:    map[string]bool{},
	}
}

// run follows namespaces until ctx ends.
func (d *drainer) run(ctx context.Context) error {
	var wg sync.WaitGroup
	defer wg.Wait()
	return loop.Follow(ctx, d.core.find("", "namespaces").Store, loop.FollowOptions{Logger: d.log}, func(s loop.Snapshot) {
		for _, ns := range s.Items {
			if !ns.Terminating() || !d.begin(ns.UID) {
				continue
			}
			wg.Go(func() {
				defer d.end(ns.UID)
				d.drain(ctx, ns.Name, ns.UID)
			})
		}
	})
}

func (d *drainer) begin(uid string) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.busy[uid] {
		return false
	}
	d.busy[uid] = true
	return true
}

func (d *drainer) end(uid string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	delete(d.busy, uid)
}

// drain empties one namespace, again until it is gone.
func (d *drainer) drain(ctx context.Context, name, uid string) {
	// Retry ends when the namespace is let go, or with ctx.
	_ = loop.Retry(ctx, d.backoff, func(ctx context.Context) error {
		err := d.round(ctx, name, uid)
		if err != nil && ctx.Err() == nil && !errors.Is(err, errNotEmpty) {
			d.log.Warn("draining namespace failed", "namespace", name, "err", err)
		}
		return err
	})
}

// round empties the namespace once. It returns nil when there is no more to do.
func (d *drainer) round(ctx context.Context, name, uid string) error {
	select {
	case d.slots <- struct{}{}:
	case <-ctx.Done():
		return ctx.Err()
	}
	defer func() { <-d.slots }()
	err := d.check(ctx, name, uid)
	if err == nil {
		err = d.record(ctx, name, uid, d.empty(ctx, name, uid))
	}
	if errors.Is(err, errLetGo) {
		return nil
	}
	return err
}

// errLetGo says that the namespace is gone or nothing is to be drained from it.
var errLetGo = errors.New("the namespace has been let go")

// check returns errLetGo unless the namespace of that uid still waits to be
// emptied.
func (d *drainer) check(ctx context.Context, name, uid string) error {
	namespaces := d.core.find("", "namespaces")
	o, err := namespaces.Store.Get(ctx, resource.Key{Name: name}, resource.At{})
	if isNotFound(err) || err == nil && (o.UID != uid || !o.Terminating()) {
		return errLetGo
	}
	if err != nil {
		return fmt.Errorf("get namespace: %w", err)
	}
	obj, err := namespaces.Decode(o)
	if err != nil {
		return fmt.Errorf("read namespace: %w", err)
	}
	if !slices.Contains(obj.(*corev1.Namespace).Spec.Finalizers, corev1.FinalizerKubernetes) {
		return errLetGo
	}
	return nil
}

// target is one resource that a namespace is emptied of.
type target struct {
	*resource.Info
	store resource.Store
	// deletes takes the deletions; collection says that it can delete all
	// objects of a namespace at once.
	deletes    *client.Client
	collection bool
}

// empty deletes what is in a namespace and counts what is left.
func (d *drainer) empty(ctx context.Context, name, uid string) *result {
	r := newResult()
	seen := map[string]bool{}
	for _, k := range d.core.kinds {
		if !k.Namespaced || seen[k.RangePath("")] {
			continue // events are in two groups and stored once
		}
		seen[k.RangePath("")] = true
		d.emptyResource(ctx, target{Info: &k.Info, store: d.core.find(k.Group, k.Resource).Store, deletes: d.own}, name, uid, r)
	}
	if d.gateway == nil {
		return r
	}
	others, err := d.others(ctx)
	r.discovery = err
	for i := range others {
		o := &others[i]
		d.emptyResource(ctx, target{Info: &o.Info, store: d.gateway.Store(&o.Info), deletes: d.gateway, collection: o.collection}, name, uid, r)
	}
	return r
}

// emptyResource deletes the objects of one resource in a namespace. A resource
// that is no longer served, or cannot be listed after all, holds nothing, nor does one
// that is registered without a server that has it.
func (d *drainer) emptyResource(ctx context.Context, t target, namespace, uid string, r *result) {
	list, err := t.store.List(ctx, resource.ListOptions{Namespace: namespace})
	if isNotFound(err) || apierrors.IsMethodNotSupported(err) || apierrors.HasStatusCause(err, discovery.CauseNotServed) {
		return
	}
	if err == nil && len(list.Items) > 0 {
		// The objects listed are of this namespace if it is still there.
		if err = d.check(ctx, namespace, uid); errors.Is(err, errLetGo) {
			return // record finds out, too
		}
		if err == nil {
			err = t.remove(ctx, namespace, list.Items)
		}
		if left, listErr := t.store.List(ctx, resource.ListOptions{Namespace: namespace}); listErr == nil {
			list = left
		} else if err == nil {
			err = listErr
		}
	}
	if err != nil {
		r.content = append(r.content, fmt.Errorf("%s: %w", t.GroupResource(), err))
	}
	if list != nil {
		r.note(t.GVR(t.Versions[0]), list.Items)
	}
}

// remove deletes the objects. It goes on when one cannot be deleted, and
// returns the first error.
func (t target) remove(ctx context.Context, namespace string, items []*resource.Object) error {
	path := collectionPath(t.Info, namespace)
	if t.collection {
		return t.send(ctx, path, "")
	}
	var first error
	for _, o := range items {
		err := t.send(ctx, path+"/"+o.Name, o.UID)
		if err == nil || isNotFound(err) || apierrors.IsConflict(err) {
			continue // a conflict is another object under that name
		}
		if ctx.Err() != nil {
			return err
		}
		if first == nil {
			first = err
		}
	}
	return first
}

// send deletes what is at path; with uid, only the object of that uid.
func (t target) send(ctx context.Context, path, uid string) error {
	background := metav1.DeletePropagationBackground
	opts := metav1.DeleteOptions{
		TypeMeta:          metav1.TypeMeta{APIVersion: "v1", Kind: "DeleteOptions"},
		PropagationPolicy: &background,
	}
	if uid != "" {
		opts.Preconditions = metav1.NewUIDPreconditions(uid)
	}
	body, err := json.Marshal(opts)
	if err != nil {
		return fmt.Errorf("encode delete options: %w", err)
	}
	res, err := t.deletes.Do(ctx, http.MethodDelete, path, nil, body)
	if err != nil {
		return err
	}
	return res.Body.Close()
}

func collectionPath(info *resource.Info, namespace string) string {
	base := "/apis/" + info.Group + "/" + info.Versions[0]
	if info.Group == "" {
		base = "/api/" + info.Versions[0]
	}
	return base + "/namespaces/" + namespace + "/" + info.Resource
}

// errNotEmpty has the round repeated.
var errNotEmpty = errors.New("the namespace is not empty yet")

// record writes down how far draining is, or lets the namespace go.
func (d *drainer) record(ctx context.Context, name, uid string, r *result) error {
	namespaces := d.core.find("", "namespaces")
	key := resource.Key{Name: name}
	_, err := namespaces.Store.Update(ctx, key, func(cur *resource.Object) (resource.Mutation, error) {
		if cur == nil || cur.UID != uid {
			return resource.Mutation{}, apierrors.NewNotFound(namespaces.GroupResource(), name)
		}
		obj, err := namespaces.Decode(cur)
		if err != nil {
			return resource.Mutation{}, err
		}
		ns := obj.(*corev1.Namespace)
		for _, c := range r.conditions() {
			setCondition(&ns.Status.Conditions, c)
		}
		ns.Status.Phase = corev1.NamespaceTerminating
		gone := false
		if r.done() {
			ns.Spec.Finalizers = slices.DeleteFunc(ns.Spec.Finalizers, func(f corev1.FinalizerName) bool { return f == corev1.FinalizerKubernetes })
			gone = len(ns.Spec.Finalizers) == 0 && len(ns.Finalizers) == 0
		}
		o, err := namespaces.Codec.EncodeStored(ns)
		return resource.Mutation{Object: o, Delete: gone}, err
	})
	switch {
	case isNotFound(err):
		return errLetGo
	case err != nil:
		return err
	case !r.done():
		return errNotEmpty
	}
	return nil
}
