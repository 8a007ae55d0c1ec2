package core

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"portico/resource"
	"portico/resource/client"
	"portico/resource/loop"
)

// drainer empties namespaces that are being deleted and then lets them go. A
// namespace is drained by one goroutine at a time, many namespaces at once.
type drainer struct {
	core    *Core
	gateway *client.Client // nil: nothing but the own kinds is drained
	log     *slog.Logger

	mu   sync.Mutex
	busy map[string]bool // by UID
}

// maxDrains bounds how many namespaces are drained at a time.
const maxDrains = 10

// run follows namespaces until ctx ends.
func (d *drainer) run(ctx context.Context) error {
	slots := make(chan struct{}, maxDrains)
	var wg sync.WaitGroup
	defer wg.Wait()
	return loop.Follow(ctx, d.core.find("", "namespaces").Store, loop.FollowOptions{Logger: d.log}, func(s loop.Snapshot) {
		for _, ns := range s.Items {
			if !ns.Terminating() || !d.begin(ns.UID) {
				continue
			}
			wg.Go(func() {
				defer d.end(ns.UID)
				select {
				case slots <- struct{}{}:
				case <-ctx.Done():
					return
				}
				defer func() { <-slots }()
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
	// Retry ends when the namespace is gone, or with ctx.
	_ = loop.Retry(ctx, loop.Backoff{Initial: 100 * time.Millisecond, Max: 5 * time.Second}, func(ctx context.Context) error {
		// What is followed may be old: the name can belong to a new namespace by
		// now, whose content is not to be touched.
		cur, err := d.core.find("", "namespaces").Store.Get(ctx, resource.Key{Name: name}, resource.At{})
		if isNotFound(err) || err == nil && (cur.UID != uid || !cur.Terminating()) {
			return nil
		}
		if err != nil {
			return err
		}
		r := d.empty(ctx, name)
		if err := d.record(ctx, name, uid, r); err != nil {
			if ctx.Err() == nil && !errors.Is(err, errNotEmpty) {
				d.log.Warn("draining namespace failed", "namespace", name, "err", err)
			}
			return err
		}
		return nil
	})
}

// result is what one round of draining found.
type result struct {
	discovery error          // groups that could not be found out about
	content   []error        // deletions that failed
	remaining map[string]int // resource to number of objects left
	held      map[string]int // finalizer to number of objects it holds
}

func newResult() *result { return &result{remaining: map[string]int{}, held: map[string]int{}} }

func (r *result) done() bool {
	return r.discovery == nil && len(r.content) == 0 && len(r.remaining) == 0
}

// note counts what is left of a resource.
func (r *result) note(resource string, objects []*resource.Object) {
	if len(objects) == 0 {
		return
	}
	r.remaining[resource] += len(objects)
	for _, o := range objects {
		for _, f := range o.Finalizers {
			r.held[f]++
		}
	}
}

// empty deletes what is in a namespace and counts what is left.
func (d *drainer) empty(ctx context.Context, name string) *result {
	r := newResult()
	own := client.New(client.Config{BaseURL: "http://core", Transport: inProcess{d.core.api}})
	seen := map[string]bool{}
	for _, k := range d.core.kinds {
		if !k.Namespaced || seen[k.RangePath("")] {
			continue // events are in two groups and stored once
		}
		seen[k.RangePath("")] = true
		d.emptyResource(ctx, own, &k.Info, name, true, r)
	}
	if d.gateway == nil {
		return r
	}
	others, err := d.others(ctx)
	r.discovery = err
	for i := range others {
		d.emptyResource(ctx, d.gateway, &others[i].Info, name, others[i].collection, r)
	}
	return r
}

// emptyResource deletes the objects of one resource in a namespace.
func (d *drainer) emptyResource(ctx context.Context, c *client.Client, info *resource.Info, namespace string, collection bool, r *result) {
	name := info.GroupResource().String()
	store := c.Store(info)
	left, err := store.List(ctx, resource.ListOptions{Namespace: namespace})
	if err == nil && len(left.Items) > 0 {
		err = d.remove(ctx, c, info, left.Items, namespace, collection)
		if err == nil {
			left, err = store.List(ctx, resource.ListOptions{Namespace: namespace})
		}
	}
	switch {
	case isNotFound(err) || apierrors.IsMethodNotSupported(err):
	case err != nil:
		r.content = append(r.content, fmt.Errorf("%s: %w", name, err))
	default:
		r.note(name, left.Items)
	}
}

func (d *drainer) remove(ctx context.Context, c *client.Client, info *resource.Info, items []*resource.Object, namespace string, collection bool) error {
	path := collectionPath(info, namespace)
	body := []byte(`{"kind":"DeleteOptions","apiVersion":"v1","propagationPolicy":"Background"}`)
	send := func(path string) error {
		res, err := c.Do(ctx, "DELETE", path, nil, body)
		if err != nil {
			return err
		}
		return res.Body.Close()
	}
	if collection {
		err := send(path)
		if !apierrors.IsMethodNotSupported(err) {
			return err
		}
	}
	for _, o := range items {
		if err := send(path + "/" + o.Name); err != nil && !isNotFound(err) {
			return err
		}
	}
	return nil
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
		return nil
	case err != nil:
		return err
	case !r.done():
		return errNotEmpty
	}
	return nil
}

// conditions are what users read of a namespace that will not go (kubernetes
// pkg/controller/namespace/deletion).
func (r *result) conditions() []corev1.NamespaceCondition {
	condition := func(kind corev1.NamespaceConditionType, bad bool, badReason, badText, reason, text string) corev1.NamespaceCondition {
		c := corev1.NamespaceCondition{Type: kind, Status: corev1.ConditionFalse, Reason: reason, Message: text}
		if bad {
			c.Status, c.Reason, c.Message = corev1.ConditionTrue, badReason, badText
		}
		return c
	}
	discovery := ""
	if r.discovery != nil {
		discovery = r.discovery.Error()
	}
	content := make([]string, len(r.content))
	for i, err := range r.content {
		content[i] = err.Error()
	}
	return []corev1.NamespaceCondition{
		condition(corev1.NamespaceDeletionDiscoveryFailure, r.discovery != nil, "DiscoveryFailed", discovery,
			"ResourcesDiscovered", "All resources successfully discovered"),
		condition(corev1.NamespaceDeletionGVParsingFailure, false, "", "", "ParsedGroupVersions", "All legacy kube types successfully parsed"),
		condition(corev1.NamespaceDeletionContentFailure, len(content) > 0, "ContentDeletionFailed",
			"Failed to delete all resource types, "+fmt.Sprint(len(content))+" remaining: "+strings.Join(content, ", "),
			"ContentDeleted", "All content successfully deleted, may be waiting on finalization"),
		condition(corev1.NamespaceContentRemaining, len(r.remaining) > 0, "SomeResourcesRemain",
			"Some resources are remaining: "+counts(r.remaining, "%s has %d resource instances"), "ContentRemoved", "All content successfully removed"),
		condition(corev1.NamespaceFinalizersRemaining, len(r.held) > 0, "SomeFinalizersRemain",
			"Some content in the namespace has finalizers remaining: "+counts(r.held, "%s in %d resource instances"),
			"ContentHasNoFinalizers", "All content-preserving finalizers finished"),
	}
}

func counts(m map[string]int, format string) string {
	var parts []string
	for name, n := range m {
		parts = append(parts, fmt.Sprintf(format, name, n))
	}
	slices.Sort(parts)
	return strings.Join(parts, ", ")
}

func setCondition(list *[]corev1.NamespaceCondition, c corev1.NamespaceCondition) {
	c.LastTransitionTime = metav1.NewTime(time.Now().Truncate(time.Second))
	for i, have := range *list {
		if have.Type != c.Type {
			continue
		}
		if have.Status == c.Status {
			c.LastTransitionTime = have.LastTransitionTime
		}
		(*list)[i] = c
		return
	}
	*list = append(*list, c)
}
