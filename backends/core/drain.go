package core

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"slices"
	"time"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/metadata"

	"portico/backends/process"
	"portico/discovery"
	"portico/resource"
	"portico/resource/client"
	"portico/resource/loop"
	"portico/resource/rest"
)

// drainer deletes the content of namespaces that are being deleted, and then removes their
// finalizer. Several namespaces are drained in parallel, and several resources of each. No
// requests are sent while no namespace is being deleted.
//
// Another core server may drain the same namespace, and a namespace of the same name may be
// created meanwhile. So a namespace is identified by its uid, and listed objects are deleted
// only if the namespace is still the same after the list.
type drainer struct {
	core    *Core
	gateway *client.Client // nil: only the server's own kinds are drained
	log     *slog.Logger
	tasks   *process.Tasks
	// metadata is a client of the gateway of the metadata of objects; nil without a gateway.
	metadata metadata.Interface
	warned   deletionWarnings
}

// maxDrains bounds how many namespaces are drained at a time. One that waits for its next
// attempt does not count.
const maxDrains = 10

func newDrainer(c *Core, gateway *client.Client) (*drainer, error) {
	d := &drainer{
		core: c, gateway: gateway, log: c.log,
		tasks: process.NewTasks(maxDrains, loop.Backoff{Initial: 100 * time.Millisecond, Max: 5 * time.Second}),
	}
	if gateway == nil {
		return d, nil
	}
	var err error
	if d.metadata, err = metadata.NewForConfig(c.clientConfig()); err != nil {
		return nil, fmt.Errorf("make client of metadata: %w", err)
	}
	return d, nil
}

// run drains namespaces until ctx ends.
func (d *drainer) run(ctx context.Context) error {
	defer d.tasks.Wait()
	return loop.Follow(ctx, d.core.find("", "namespaces").Store, loop.FollowOptions{Logger: d.log}, func(s loop.Snapshot) {
		for _, ns := range s.Items {
			if ns.Terminating() {
				d.tasks.Start(ctx, ns.UID, func(ctx context.Context) error { return d.drain(ctx, ns.Name, ns.UID) })
			}
		}
	})
}

// drain deletes the content of a namespace once. It returns nil when there is nothing more
// to do.
func (d *drainer) drain(ctx context.Context, name, uid string) error {
	err := d.check(ctx, name, uid)
	if err == nil {
		err = d.record(ctx, name, uid, d.empty(ctx, name, uid))
	}
	if errors.Is(err, errFinalized) {
		return nil
	}
	if err != nil && ctx.Err() == nil && !errors.Is(err, errNotEmpty) {
		d.log.Warn("draining a namespace failed", "namespace", name, "err", err)
	}
	return err
}

// errFinalized means that the namespace is gone or no longer has to be drained.
var errFinalized = errors.New("the namespace has been finalized")

// check returns errFinalized unless the namespace of that uid still has to be drained.
func (d *drainer) check(ctx context.Context, name, uid string) error {
	namespaces := d.core.find("", "namespaces")
	o, err := namespaces.Store.Get(ctx, resource.Key{Name: name}, resource.At{})
	if apierrors.IsNotFound(err) || err == nil && (o.UID != uid || !o.Terminating()) {
		return errFinalized
	}
	if err != nil {
		return fmt.Errorf("get namespace: %w", err)
	}
	ns, err := rest.DecodeAs[*corev1.Namespace](namespaces.Kind, o)
	if err != nil {
		return fmt.Errorf("read namespace: %w", err)
	}
	if !slices.Contains(ns.Spec.Finalizers, corev1.FinalizerKubernetes) {
		return errFinalized
	}
	return nil
}

// target is a resource to delete from a namespace.
type target struct {
	*resource.Info
	store resource.Reader
	// api is the APIService of the resource; "" for a resource of this server.
	api string
	// delete deletes an object if it still has the same uid.
	delete func(ctx context.Context, o *resource.Object) error
	// count returns the objects of a namespace with their finalizers only, if they can be listed so: metadata
	// needs no conversion. It is nil if the objects are not converted.
	count func(ctx context.Context, namespace string) []*resource.Object
	// deleteAll deletes all objects of the namespace; nil: deletecollection is not supported.
	deleteAll func(ctx context.Context) error
}

// maxResources and maxDeletions bound how many resources of a namespace are emptied at a time,
// and how many objects of one resource are deleted at a time. Resources of a server that does
// not respond do not delay the others.
const (
	maxResources = 16
	maxDeletions = 4
)

// empty deletes the objects in a namespace and counts those that are left. While pods are being deleted, it deletes
// nothing else: they may need the other objects until they end (KEP-5080).
func (d *drainer) empty(ctx context.Context, name, uid string) *result {
	r := newResult(name)
	targets := d.own()
	if d.gateway != nil {
		targets = append(targets, d.others(ctx, name, r)...)
	}
	if i := slices.IndexFunc(targets, func(t target) bool { return t.GroupResource() == corev1.Resource("pods") }); i >= 0 {
		pods := targets[i]
		targets = slices.Delete(targets, i, i+1)
		if d.emptyResource(ctx, pods, name, uid, r) > 0 {
			targets = nil
		}
	}
	var all errgroup.Group
	all.SetLimit(maxResources)
	for _, t := range targets {
		all.Go(func() error {
			d.emptyResource(ctx, t, name, uid, r)
			return nil
		})
	}
	_ = all.Wait() // failures are in r
	r.settle(d.abandoned(ctx, r))
	return r
}

// own returns the namespaced resources of this server.
func (d *drainer) own() (out []target) {
	seen := map[string]bool{}
	for _, k := range d.core.kinds {
		if !k.Namespaced || k.Virtual() || seen[k.RangePath("")] {
			continue // events are in two groups and stored once
		}
		seen[k.RangePath("")] = true
		row := d.core.find(k.Group, k.Resource)
		out = append(out, target{Info: &k.Info, store: row.Store, delete: func(ctx context.Context, o *resource.Object) error {
			return d.core.api.DeleteObject(ctx, row, controllerUser(), o)
		}})
	}
	return out
}

// emptyResource deletes the objects of one resource in a namespace. It returns how many of them are being deleted, and 0 after
// an error, as in kube-controller-manager. A resource that is no longer served, cannot be listed, or is registered without a server
// has no objects.
func (d *drainer) emptyResource(ctx context.Context, t target, namespace, uid string, r *result) int {
	list, err := t.store.List(ctx, resource.ListOptions{Namespace: namespace})
	if apierrors.IsNotFound(err) || apierrors.IsMethodNotSupported(err) || apierrors.HasStatusCause(err, discovery.CauseNotServed) {
		return 0
	}
	if err == nil && len(list.Items) > 0 {
		// The listed objects are of this namespace if it still exists.
		if err = d.check(ctx, namespace, uid); errors.Is(err, errFinalized) {
			return 0 // record finds the same
		}
		if err == nil {
			err = t.remove(ctx, list.Items)
		}
		if again, listErr := t.store.List(ctx, resource.ListOptions{Namespace: namespace}); listErr == nil {
			list = again
		} else if err == nil {
			err = listErr
		}
	}
	res := emptied{api: t.api, resource: t.GroupResource(), err: err}
	if list != nil {
		res.left = list.Items
	} else if t.count != nil {
		res.left = t.count(ctx, namespace)
	}
	r.add(res)
	if err != nil {
		return 0
	}
	return len(res.left)
}

// remove deletes the objects. It continues after errors and returns one of them.
func (t target) remove(ctx context.Context, items []*resource.Object) error {
	if t.deleteAll != nil {
		return t.deleteAll(ctx)
	}
	var all errgroup.Group
	all.SetLimit(maxDeletions)
	for _, o := range items {
		all.Go(func() error {
			if err := ctx.Err(); err != nil {
				return err
			}
			err := t.delete(ctx, o)
			if apierrors.IsNotFound(err) || apierrors.IsConflict(err) {
				return nil // a conflict is another object of that name
			}
			return err
		})
	}
	return all.Wait()
}

// sendDelete deletes the object or collection at a path of the gateway; with uid, only the
// object of that uid.
func (d *drainer) sendDelete(ctx context.Context, path, uid string) error {
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
	res, err := d.gateway.Do(ctx, http.MethodDelete, path, nil, body)
	if err != nil {
		return err
	}
	return res.Body.Close()
}

// errNotEmpty means that drain must be repeated.
var errNotEmpty = errors.New("the namespace is not empty yet")

// record updates the conditions of the namespace, or removes its finalizer.
func (d *drainer) record(ctx context.Context, name, uid string, r *result) error {
	switch {
	case r.done() && len(r.abandoned) > 0:
		if err := d.reportAbandoned(ctx, uid, r); err != nil {
			return err
		}
	case !r.done():
		d.reportWaiting(ctx, uid, r)
	}
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
	case apierrors.IsNotFound(err):
		return errFinalized
	case err != nil:
		return err
	case !r.done():
		return errNotEmpty
	}
	return nil
}
