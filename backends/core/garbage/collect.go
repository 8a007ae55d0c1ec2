package garbage

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	lru "github.com/hashicorp/golang-lru/v2"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/record"
	"k8s.io/client-go/util/workqueue"

	"portico/resource"
)

const (
	// workers is the number of objects that are looked at in parallel, and workersPerGroup
	// that of one API group, so that a server that does not respond leaves room for others.
	workers, workersPerGroup = 40, 16
	// unobserved is how long an object waits if its owner exists and is not in the graph.
	unobserved = time.Minute
	// settle is how old a deletion is at least before the dependents of the object lose their
	// reference to it, within a second. By then the graph has the dependents that were created
	// before, also those of slow servers; one that it lacks would be deleted afterwards.
	settle = 2 * time.Second
	// absentOwners is how many absent owners are remembered. A uid is never used again.
	absentOwners = 10_000
	// reportedReferences is how many references are remembered that were reported. A forgotten
	// one is reported again if its object is looked at again.
	reportedReferences = 10_000
	// firstRetry and lastRetry bound the time until an object is looked at after an error.
	firstRetry, lastRetry = 20 * time.Millisecond, time.Minute
)

// API reads and changes the objects of all servers.
type API interface {
	// Get returns the metadata of an object as its server has it now. The namespace of the
	// reference counts for kinds with namespaces alone. Errors: ErrNamespaced for a
	// reference without a namespace to a kind with namespaces; StatusErrors.
	Get(ctx context.Context, ref Ref) (*resource.Header, error)
	// Delete deletes an object if its uid and revision are still those of the metadata.
	Delete(ctx context.Context, h *resource.Header, propagation metav1.DeletionPropagation) error
	// Patch applies a JSON merge patch.
	Patch(ctx context.Context, h *resource.Header, patch []byte) error
}

// ErrNamespaced is the error of a reference from an object without a namespace to a kind with
// namespaces. Such an owner cannot be read, so that the object is never deleted.
var ErrNamespaced = errors.New("the owner is in a namespace and the object is not")

// Collector deletes and changes the objects of a graph. Make it with New, then Run it once.
//
// A request names the uid and the revision that the graph has, so that its server refuses it
// if the object has changed since. Absent owners are read from their servers.
type Collector struct {
	Graph *Graph
	// Events records Events about objects. If it is nil, no Event is recorded. It must be set before Run.
	Events record.EventRecorder

	api     API
	log     *slog.Logger
	metrics *Metrics
	queue   workqueue.TypedRateLimitingInterface[ID]
	absent  *lru.Cache[Ref, struct{}]
	// reported are the references of which Events were recorded.
	reported *lru.Cache[reference, struct{}]

	mu    sync.Mutex
	inUse map[string]int // by API group
	// parked are the objects that wait for room in their API group, each of them once in waiting.
	parked  map[ID]bool
	waiting map[string][]ID
}

// New returns a collector with an empty graph.
func New(api API, metrics *Metrics, log *slog.Logger) *Collector {
	absent, err := lru.New[Ref, struct{}](absentOwners)
	if err != nil {
		panic(err) // the size is positive
	}
	reported, err := lru.New[reference, struct{}](reportedReferences)
	if err != nil {
		panic(err) // as above
	}
	c := &Collector{api: api, log: log, metrics: metrics, absent: absent, reported: reported, inUse: map[string]int{}, parked: map[ID]bool{}, waiting: map[string][]ID{}}
	c.queue = workqueue.NewTypedRateLimitingQueue(workqueue.NewTypedItemExponentialFailureRateLimiter[ID](firstRetry, lastRetry))
	c.Graph = NewGraph(c.queue.Add)
	return c
}

// Run looks at objects until ctx ends, and returns when no request is in flight. What is added
// to the graph before Run waits for it.
func (c *Collector) Run(ctx context.Context) error {
	c.metrics.graph.Store(c.Graph)
	defer c.metrics.graph.Store(nil)
	var wg sync.WaitGroup
	for range workers {
		wg.Go(func() { c.work(ctx) })
	}
	<-ctx.Done()
	c.queue.ShutDown()
	wg.Wait()
	return ctx.Err()
}

func (c *Collector) work(ctx context.Context) {
	for {
		id, shutdown := c.queue.Get()
		if shutdown {
			return
		}
		c.lookAt(ctx, id)
		c.queue.Done(id)
	}
}

// lookAt acts on one object and queues it again after an error.
func (c *Collector) lookAt(ctx context.Context, id ID) {
	if !c.reserve(id) {
		return
	}
	defer c.release(id.Group)
	// An object that is gone reserves as well: otherwise the release that queued it would be
	// lost for the next one that waits.
	h := c.Graph.get(id)
	if h == nil {
		c.queue.Forget(id)
		return
	}
	err := c.act(ctx, h)
	switch {
	case err == nil || apierrors.IsNotFound(err) || errors.Is(err, ErrNamespaced):
		c.queue.Forget(id)
	case errors.Is(err, errUnobserved):
		c.queue.Forget(id)
		c.queue.AddAfter(id, unobserved)
	case errors.Is(err, errFresh):
		c.queue.Forget(id)
		c.queue.AddAfter(id, settle/4)
	case ctx.Err() == nil:
		if c.queue.NumRequeues(id) == 5 && !apierrors.IsConflict(err) {
			c.log.Warn("garbage collection of an object fails; it is tried again", "kind", h.Kind, "object", h.Key().String(), "err", err)
		}
		c.queue.AddRateLimited(id)
	}
}

// reserve takes one of the requests that the API group of an object may have in flight. Without
// one, the object is queued again when one is released.
func (c *Collector) reserve(id ID) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.inUse[id.Group] < workersPerGroup {
		c.inUse[id.Group]++
		return true
	}
	if !c.parked[id] {
		c.parked[id] = true
		c.waiting[id.Group] = append(c.waiting[id.Group], id)
	}
	return false
}

// release gives back what reserve took.
func (c *Collector) release(group string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.inUse[group]--; c.inUse[group] == 0 {
		delete(c.inUse, group)
	}
	waiting := c.waiting[group]
	if len(waiting) == 0 {
		delete(c.waiting, group)
		return
	}
	next := waiting[0]
	c.waiting[group] = waiting[1:]
	delete(c.parked, next)
	c.queue.Add(next)
}

// errUnobserved means that an owner exists which is not in the graph, so that nothing will
// announce its deletion.
var errUnobserved = errors.New("an owner is not observed")

// errFresh means that the deletion of an object is younger than settle.
var errFresh = errors.New("the deletion has just begun")

// act does what the state of an object demands.
func (c *Collector) act(ctx context.Context, h *resource.Header) error {
	switch {
	case orphaning(h) && time.Since(h.DeletionTime()) < settle:
		return errFresh
	case orphaning(h):
		return c.releaseDependents(ctx, h, metav1.FinalizerOrphanDependents, func(resource.Owner) bool { return true })
	case foreground(h):
		return c.releaseDependents(ctx, h, metav1.FinalizerDeleteDependents, func(o resource.Owner) bool { return o.BlockDeletion })
	case h.Terminating() || len(h.Owners) == 0:
		return nil
	}
	return c.checkOwners(ctx, h)
}

// releaseDependents looks at the dependents that hold up the deletion of their owner. Without
// any it removes the finalizer that waits for them.
func (c *Collector) releaseDependents(ctx context.Context, h *resource.Header, finalizer string, holds func(resource.Owner) bool) error {
	held, id := false, idOf(h)
	for _, d := range c.Graph.dependentsOf(id) {
		if !slices.ContainsFunc(d.Owners, func(o resource.Owner) bool { return ownerID(o) == id && holds(o) }) {
			continue
		}
		held = true
		if !d.Terminating() {
			c.queue.Add(idOf(d))
		}
	}
	if held {
		return nil
	}
	rest := slices.DeleteFunc(slices.Clone(h.Finalizers), func(f string) bool { return f == finalizer })
	return c.patch(ctx, h, map[string]any{"finalizers": rest})
}

// checkOwners deletes an object without owners, and removes references to absent owners from
// one that has others. References to owners that release their dependents are removed first.
func (c *Collector) checkOwners(ctx context.Context, h *resource.Header) error {
	var solid, waiting, kept []resource.Owner
	unseen := false
	for _, o := range h.Owners {
		c.reportNamespace(h, o)
		owner, seen, err := c.owner(ctx, ref(h, o))
		switch {
		case err != nil:
			return err
		case owner == nil:
			kept = append(kept, o)
		case orphaning(owner):
		case foreground(owner):
			waiting, kept = append(waiting, o), append(kept, o)
		default:
			solid, kept = append(solid, o), append(kept, o)
		}
		unseen = unseen || !seen
	}
	switch {
	case len(kept) < len(h.Owners):
		return c.setOwners(ctx, h, kept)
	case len(solid) > 0 && len(solid) < len(h.Owners):
		return c.setOwners(ctx, h, solid)
	case len(solid) > 0 && unseen:
		return errUnobserved
	case len(solid) > 0:
		return nil
	case len(waiting) > 0 && len(c.Graph.dependentsOf(idOf(h))) > 0:
		return c.deleteInForeground(ctx, h)
	}
	policy := metav1.DeletePropagationBackground
	if slices.Contains(h.Finalizers, metav1.FinalizerOrphanDependents) {
		policy = metav1.DeletePropagationOrphan
	} else if slices.Contains(h.Finalizers, metav1.FinalizerDeleteDependents) {
		policy = metav1.DeletePropagationForeground
	}
	return c.delete(ctx, h, policy)
}

// deleteInForeground deletes an object that has dependents and is waited for by its owner. If
// one of the dependents waits for its own, references could be circular, so that none of them
// holds up its owner any more.
func (c *Collector) deleteInForeground(ctx context.Context, h *resource.Header) error {
	if slices.ContainsFunc(c.Graph.dependentsOf(idOf(h)), foreground) {
		owners := slices.Clone(h.Owners)
		for i := range owners {
			owners[i].BlockDeletion = false
		}
		if !slices.Equal(owners, h.Owners) {
			return c.setOwners(ctx, h, owners) // The change of its metadata queues it again.
		}
	}
	return c.delete(ctx, h, metav1.DeletePropagationForeground)
}

// delete deletes an object in exactly the state of h.
func (c *Collector) delete(ctx context.Context, h *resource.Header, propagation metav1.DeletionPropagation) error {
	c.metrics.requests.WithLabelValues("delete").Inc()
	return c.api.Delete(ctx, h, propagation)
}

// owner returns the metadata of an owner; nil: it does not exist. seen reports whether the
// graph has it or needs not.
func (c *Collector) owner(ctx context.Context, r Ref) (h *resource.Header, seen bool, err error) {
	if h := c.Graph.get(ID{group(r.APIVersion), r.Kind, r.UID}); h != nil && is(h, r) {
		return h, true, nil
	}
	if c.absent.Contains(r) {
		return nil, true, nil
	}
	c.metrics.requests.WithLabelValues("get").Inc()
	h, err = c.api.Get(ctx, r)
	switch {
	case apierrors.IsNotFound(err) || err == nil && h.UID != r.UID:
		c.absent.Add(r, struct{}{})
		return nil, true, nil
	case err != nil:
		return nil, false, fmt.Errorf("read owner %s %s: %w", r.Kind, r.Name, err)
	}
	return h, false, nil
}

func (c *Collector) setOwners(ctx context.Context, h *resource.Header, owners []resource.Owner) error {
	refs := make([]metav1.OwnerReference, len(owners))
	for i, o := range owners {
		refs[i] = metav1.OwnerReference{APIVersion: o.APIVersion, Kind: o.Kind, Name: o.Name, UID: types.UID(o.UID)}
		if o.Controller {
			refs[i].Controller = new(true)
		}
		if o.BlockDeletion {
			refs[i].BlockOwnerDeletion = new(true)
		}
	}
	return c.patch(ctx, h, map[string]any{"ownerReferences": refs})
}

// patch changes metadata of an object in exactly the state of h.
func (c *Collector) patch(ctx context.Context, h *resource.Header, metadata map[string]any) error {
	metadata["uid"] = h.UID
	metadata["resourceVersion"] = strconv.FormatInt(h.Revision, 10)
	body, err := json.Marshal(map[string]any{"metadata": metadata})
	if err != nil {
		return fmt.Errorf("encode patch: %w", err)
	}
	c.metrics.requests.WithLabelValues("patch").Inc()
	return c.api.Patch(ctx, h, body)
}

// group returns the group of an apiVersion.
func group(apiVersion string) string {
	if name, _, ok := strings.Cut(apiVersion, "/"); ok {
		return name
	}
	return ""
}
