package controllers

import (
	"context"
	"encoding/json"
	"slices"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	quota "k8s.io/apiserver/pkg/quota/v1"
	"k8s.io/apiserver/pkg/quota/v1/generic"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/util/workqueue"

	corequota "portico/backends/core/quota"
)

const (
	// quotaPeriod is how often all usage is calculated anew.
	quotaPeriod = 5 * time.Minute
	// absentPeriod is the pause between two searches for a resource that no server has. A change of the discovery of
	// its group ends it.
	absentPeriod = 30 * time.Second
	// addedDelay lets the objects that are created one after the other be counted together.
	addedDelay = 500 * time.Millisecond
)

// resourceQuota keeps the usage in the status of ResourceQuotas. Admission adds what a write
// needs before the object is stored; this controller sets the usage of a new quota, takes off
// what has gone, and corrects it where a write failed. It never takes off the charge of a write
// that is under way: see quotaLedger.
//
// Only resources that a quota names are watched, custom ones by their metadata.
func resourceQuota(ctx context.Context, env *Env) error {
	c := &quotaController{env: env, queue: env.NewQueue("resourcequota_primary", quotaBackoff()), ledgers: map[string]map[string]*quotaLedger{}}
	c.monitors = newQuotaMonitors(ctx, env, c)
	c.registry = generic.NewRegistry(corequota.Evaluators(corequota.Config{List: c.monitors.lister, Objects: c, Clock: env.Clock}))
	defer c.monitors.end()
	Handle(env, env.Informers.Core().V1().ResourceQuotas().Informer(), c.changed)
	var wg sync.WaitGroup
	defer wg.Wait()
	wg.Go(func() { c.repeat(ctx) })
	wg.Go(func() { c.awaitAbsent(ctx) })
	return env.Work(ctx, Loop{Queue: c.queue, Workers: 5, Sync: c.sync})
}

// quotaBackoff repeats soon, as each charge of a quota is a conflict.
func quotaBackoff() workqueue.TypedRateLimiter[string] {
	return workqueue.NewTypedItemExponentialFailureRateLimiter[string](5*time.Millisecond, 10*time.Second)
}

// quotaController is the controller with what it knows of quotas.
type quotaController struct {
	env      *Env
	queue    Queue
	registry quota.Registry
	monitors *quotaMonitors

	mu sync.Mutex
	// ledgers by namespace and name.
	ledgers map[string]map[string]*quotaLedger

	// absent are the quotas that name a resource that no server has.
	absent absentResources
}

// changed notes a change of a quota.
func (c *quotaController) changed(old, q *corev1.ResourceQuota) {
	if q == nil {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.absent.set(Key(old), nil)
		if delete(c.ledgers[old.Namespace], old.Name); len(c.ledgers[old.Namespace]) == 0 {
			delete(c.ledgers, old.Namespace)
		}
		return
	}
	charged := c.observe(q)
	if old == nil || !equality.Semantic.DeepEqual(q.Spec.Hard, q.Status.Hard) || !quota.Equals(old.Spec.Hard, q.Spec.Hard) {
		c.queue.Add(Key(q))
	} else if charged {
		c.queue.AddAfter(Key(q), chargeWindow+time.Second) // the write may have failed
	}
}

// observe records the state of a quota in its ledger and reports whether it was charged.
func (c *quotaController) observe(q *corev1.ResourceQuota) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	byName := c.ledgers[q.Namespace]
	if byName == nil {
		byName = map[string]*quotaLedger{}
		c.ledgers[q.Namespace] = byName
	}
	if l := byName[q.Name]; l != nil && l.quota.UID == q.UID {
		return l.observe(q, c.env.Clock.Now())
	}
	byName[q.Name] = newQuotaLedger(q, c.env.Clock.Now())
	return false
}

// repeat queues all quotas every quotaPeriod until ctx ends.
func (c *quotaController) repeat(ctx context.Context) {
	tick := c.env.Clock.NewTicker(quotaPeriod)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C():
		}
		used := map[schema.GroupResource]bool{}
		for _, q := range c.quotas() {
			for name := range q.Spec.Hard {
				for _, gr := range c.resources(name) {
					used[gr] = true
				}
			}
			c.queue.Add(Key(q))
		}
		c.monitors.keep(used)
	}
}

// quotas returns all quotas.
func (c *quotaController) quotas() (all []*corev1.ResourceQuota) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, byName := range c.ledgers {
		for _, l := range byName {
			all = append(all, l.quota)
		}
	}
	return all
}

// resources returns the resources that a quota of that name is about.
func (c *quotaController) resources(name corev1.ResourceName) []schema.GroupResource {
	if corequota.Extended(name) {
		return []schema.GroupResource{{Resource: "pods"}, resourceClaimResource, deviceClassResource}
	}
	for _, e := range c.registry.List() {
		if len(e.MatchingResources([]corev1.ResourceName{name})) > 0 {
			return []schema.GroupResource{e.GroupResource()}
		}
	}
	if counted, ok := strings.CutPrefix(string(name), "count/"); ok {
		gr := schema.ParseGroupResource(counted)
		if _, ignored := corequota.Ignored()[gr]; !ignored {
			return []schema.GroupResource{gr}
		}
	}
	return nil
}

var (
	resourceClaimResource = schema.GroupResource{Group: resourcev1.GroupName, Resource: "resourceclaims"}
	deviceClassResource   = schema.GroupResource{Group: resourcev1.GroupName, Resource: "deviceclasses"}
)

// filled returns the limits in hard on resources that are known, and begins to watch the others.
// absent are the groups of those that no server has.
func (c *quotaController) filled(hard corev1.ResourceList) (known corev1.ResourceList, absent []string) {
	known = corev1.ResourceList{}
	for name, q := range hard {
		ok := true
		for _, gr := range c.resources(name) {
			found, full := c.monitors.need(gr)
			if ok = ok && full; !found {
				absent = append(absent, gr.Group)
			}
		}
		if ok {
			known[name] = q
		}
	}
	return known, absent
}

// sync calculates the usage of a quota and stores it.
func (c *quotaController) sync(ctx context.Context, namespace, name string) error {
	l := c.ledger(namespace, name)
	if l == nil {
		c.absent.set(namespace+"/"+name, nil)
		return nil
	}
	c.mu.Lock()
	q := l.quota
	c.mu.Unlock()
	key := Key(q)
	known, absent := c.filled(q.Spec.Hard)
	isNew := c.absent.set(key, absent)
	if len(absent) > 0 {
		c.queue.AddAfter(key, absentPeriod)
	}
	if isNew { // a server may have it since the search
		c.queue.AddAfter(key, time.Second)
	}
	counted, failed := quota.CalculateUsage(namespace, q.Spec.Scopes, known, c.registry, q.Spec.ScopeSelector)
	c.mu.Lock()
	q = l.quota
	used, again := l.usage(counted, c.env.Clock.Now())
	c.mu.Unlock()
	if again > 0 {
		c.queue.AddAfter(key, again)
	}
	if equality.Semantic.DeepEqual(q.Spec.Hard, q.Status.Hard) && q.Status.Used != nil && quota.Equals(used, q.Status.Used) {
		return failed
	}
	// The change is conditional: a charge that the ledger lacks makes it a conflict.
	patch, err := json.Marshal(map[string]any{
		"metadata": map[string]any{"uid": q.UID, "resourceVersion": q.ResourceVersion},
		"status":   map[string]any{"hard": changes(q.Status.Hard, q.Spec.Hard), "used": changes(q.Status.Used, used)},
	})
	if err != nil {
		return err
	}
	if _, err := c.env.Client.CoreV1().ResourceQuotas(namespace).Patch(ctx, name, types.MergePatchType, patch, metav1.PatchOptions{}, "status"); err != nil {
		return ignoreNotFound(err)
	}
	return failed
}

// changes returns a merge patch of a list.
func changes(from, to corev1.ResourceList) map[corev1.ResourceName]any {
	out := map[corev1.ResourceName]any{}
	for name := range from {
		out[name] = nil
	}
	for name, q := range to {
		out[name] = q
	}
	return out
}

func (c *quotaController) ledger(namespace, name string) *quotaLedger {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.ledgers[namespace][name]
}

// objectChanged takes what an object no longer uses off the ledgers of its namespace. cur is nil
// if the object is gone.
func (c *quotaController) objectChanged(gr schema.GroupResource, old, cur runtime.Object) {
	evaluator := c.registry.Get(gr)
	o, ok := old.(metav1.Object)
	if evaluator == nil || !ok {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, l := range c.ledgers[o.GetNamespace()] {
		if l.release(usageIn(l.quota, evaluator, old), usageIn(l.quota, evaluator, cur)) {
			c.queue.Add(Key(l.quota))
		}
	}
}

// objectAdded queues the quotas that may not count obj yet. obj was created after the first list of the monitor of gr, and may
// itself be one of these quotas.
func (c *quotaController) objectAdded(gr schema.GroupResource, obj runtime.Object) {
	evaluator := c.registry.Get(gr)
	o, ok := obj.(metav1.Object)
	if evaluator == nil || !ok {
		return
	}
	now := c.env.Clock.Now()
	var behind []string
	c.mu.Lock()
	for _, l := range c.ledgers[o.GetNamespace()] {
		if l.mayLack(now) && len(evaluator.MatchingResources(quota.ResourceNames(l.quota.Spec.Hard))) > 0 {
			behind = append(behind, Key(l.quota))
		}
	}
	c.mu.Unlock()
	for _, key := range behind { // AddAfter may block
		c.queue.AddAfter(key, addedDelay)
	}
}

// usageIn returns what an object uses of a quota; obj nil: nothing.
func usageIn(q *corev1.ResourceQuota, evaluator quota.Evaluator, obj runtime.Object) corev1.ResourceList {
	if obj == nil {
		return nil
	}
	if ok, err := evaluator.Matches(q, obj); err != nil || !ok {
		return nil
	}
	used, err := evaluator.Usage(obj)
	if err != nil {
		return nil
	}
	return quota.Mask(used, evaluator.MatchingResources(quota.ResourceNames(q.Status.Hard)))
}

// resourceChanged queues the quotas of a resource: it is known now, or no longer served.
func (c *quotaController) resourceChanged(gr schema.GroupResource, after time.Duration) {
	for _, q := range c.quotas() {
		for name := range q.Spec.Hard {
			if slices.Contains(c.resources(name), gr) {
				c.queue.AddAfter(Key(q), after)
				break
			}
		}
	}
}

// DeviceClasses implements quota.Objects.
func (c *quotaController) DeviceClasses() ([]*resourcev1.DeviceClass, error) {
	return listed[*resourcev1.DeviceClass](c.monitors, deviceClassResource, "")
}

// ResourceClaims implements quota.Objects.
func (c *quotaController) ResourceClaims(namespace string) ([]*resourcev1.ResourceClaim, error) {
	return listed[*resourcev1.ResourceClaim](c.monitors, resourceClaimResource, namespace)
}

// Pod implements quota.Objects.
func (c *quotaController) Pod(namespace, name string) (*corev1.Pod, error) {
	lister, err := c.monitors.lister(corev1.SchemeGroupVersion.WithResource("pods"))
	if err != nil {
		return nil, err
	}
	obj, err := lister.ByNamespace(namespace).Get(name)
	if err != nil {
		return nil, err
	}
	return obj.(*corev1.Pod), nil
}

// listed returns the objects of a watched resource.
func listed[T runtime.Object](m *quotaMonitors, gr schema.GroupResource, namespace string) ([]T, error) {
	lister, err := m.lister(gr.WithVersion(""))
	if err != nil {
		return nil, err
	}
	var in cache.GenericNamespaceLister = lister
	if namespace != "" {
		in = lister.ByNamespace(namespace)
	}
	objects, err := in.List(labels.Everything())
	out := make([]T, 0, len(objects))
	for _, o := range objects {
		out = append(out, o.(T))
	}
	return out, err
}
