package controllers

import (
	"context"
	"fmt"
	"time"

	"github.com/go-logr/logr"
	"golang.org/x/time/rate"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	corelisters "k8s.io/client-go/listers/core/v1"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/record"
	"k8s.io/client-go/util/workqueue"
	endpointslice "k8s.io/endpointslice"
	"k8s.io/endpointslice/topologycache"
	endpointsliceutil "k8s.io/endpointslice/util"
)

const (
	// sliceManager is the value of LabelManagedBy of the slices of this controller.
	sliceManager = "endpointslice-controller.k8s.io"
	// maxEndpointsPerSlice is the default of --max-endpoints-per-slice.
	maxEndpointsPerSlice = 100
	// sliceChangeDelay is the time between the change of a slice by another writer and its
	// repair, so that several changes are repaired at once.
	sliceChangeDelay = time.Second
)

// endpointSlices keeps the EndpointSlices of Services with a selector, by the reconciler of
// k8s.io/endpointslice.
type endpointSlices struct {
	env        *Env
	services   corelisters.ServiceLister
	pods       corelisters.PodLister
	nodes      corelisters.NodeLister
	slices     cache.Indexer
	queue      Queue
	reconciler *endpointslice.Reconciler
	tracker    *endpointsliceutil.EndpointSliceTracker
	times      *endpointsliceutil.TriggerTimeTracker
	topology   *topologycache.TopologyCache
	events     record.EventRecorder
	log        logr.Logger
}

func runEndpointSlices(ctx context.Context, env *Env) error {
	core, slices := env.Informers.Core().V1(), env.Informers.Discovery().V1().EndpointSlices().Informer()
	c := &endpointSlices{
		env: env, services: core.Services().Lister(), pods: core.Pods().Lister(), nodes: core.Nodes().Lister(),
		slices: env.Index(slices, sliceIndex, serviceOfSlice), queue: env.NewQueue("endpoint_slice", slowRetries()),
		tracker: endpointsliceutil.NewEndpointSliceTracker(), times: endpointsliceutil.NewTriggerTimeTracker(),
		topology: topologycache.NewTopologyCache(), events: env.Recorder("endpoint-slice-controller"),
		log: logr.FromSlogHandler(env.Log.Handler()),
	}
	c.reconciler = endpointslice.NewReconciler(env.Client, c.nodes, maxEndpointsPerSlice, c.tracker, c.topology, c.events, sliceManager,
		endpointslice.WithPreferSameTrafficDistributionEnabled(true))
	Handle(env, core.Services().Informer(), func(old, cur *corev1.Service) { c.queue.Add(Key(either(old, cur))) })
	queueServicesOfPods(env, c.queue)
	followSlices(env, slices, c.tracker, c.reconciler.ManagedByController, func(key string) { c.queue.AddAfter(key, sliceChangeDelay) })
	nodes := env.NewQueue("endpoint_slice_topology")
	Handle(env, core.Nodes().Informer(), func(old, cur *corev1.Node) {
		if old == nil || cur == nil || nodeReady(old) != nodeReady(cur) || old.Labels[corev1.LabelTopologyZone] != cur.Labels[corev1.LabelTopologyZone] {
			nodes.Add("nodes")
		}
	})
	return env.Work(ctx, Loop{Queue: c.queue, Workers: 5, Sync: c.sync}, Loop{Queue: nodes, Workers: 1, Sync: c.distribute})
}

// sync writes the slices of a Service.
func (c *endpointSlices) sync(ctx context.Context, namespace, name string) error {
	svc, err := c.services.Services(namespace).Get(name)
	if apierrors.IsNotFound(err) { // the slices go with their owner
		c.times.DeleteService(namespace, name)
		c.reconciler.DeleteService(namespace, name)
		c.tracker.DeleteService(namespace, name)
		return nil
	}
	if err != nil || svc.Spec.Type == corev1.ServiceTypeExternalName || svc.Spec.Selector == nil {
		return err
	}
	pods, err := c.pods.Pods(namespace).List(labels.SelectorFromSet(svc.Spec.Selector))
	if err != nil {
		return err
	}
	slices, err := slicesOf(c.slices, namespace, name, c.reconciler.ManagedByController)
	if err != nil {
		return err
	}
	slices, err = currentSlices(ctx, c.env, svc, slices, c.reconciler.ManagedByController, c.tracker, c.queue)
	if err != nil {
		return err
	}
	changed := c.times.ComputeEndpointLastChangeTriggerTime(namespace, svc, pods)
	if err := c.reconciler.Reconcile(c.log, svc, pods, slices, changed); err != nil {
		c.events.Eventf(svc, corev1.EventTypeWarning, "FailedToUpdateEndpointSlices", "Error updating Endpoint Slices for Service %s/%s: %v", namespace, name, err)
		return err
	}
	return nil
}

// distribute gives the nodes to the topology cache, and queues the Services that then have
// too many endpoints in one zone.
func (c *endpointSlices) distribute(context.Context, string, string) error {
	nodes, err := c.nodes.List(labels.Everything())
	if err != nil {
		return err
	}
	c.topology.SetNodes(c.log, nodes)
	for _, key := range c.topology.GetOverloadedServices() {
		c.queue.Add(key)
	}
	return nil
}

// slowRetries returns a limiter that repeats after 1 s at least: each attempt may write many
// objects.
func slowRetries() workqueue.TypedRateLimiter[string] {
	return workqueue.NewTypedMaxOfRateLimiter(
		workqueue.NewTypedItemExponentialFailureRateLimiter[string](time.Second, 1000*time.Second),
		&workqueue.TypedBucketRateLimiter[string]{Limiter: rate.NewLimiter(10, 100)},
	)
}

// queueServicesOfPods queues the Services that select a pod when it changes in a way that
// endpoints show.
func queueServicesOfPods(env *Env, queue Queue) {
	services := env.Informers.Core().V1().Services().Lister()
	Handle(env, env.Informers.Core().V1().Pods().Informer(), func(old, cur *corev1.Pod) {
		// The lister cannot fail. A Service that it does not have yet is queued by its own event.
		keys, _ := endpointsliceutil.GetServicesToUpdate(services, endpointsliceutil.GetPodUpdateProjectionKey(old, cur))
		for key := range keys {
			queue.Add(key)
		}
	})
}

// sliceIndex is the index of slices by the key of their Service.
const sliceIndex = "service"

func serviceOfSlice(obj any) ([]string, error) {
	key, err := endpointslice.ServiceControllerKey(obj.(*discoveryv1.EndpointSlice))
	if err != nil {
		return nil, nil // it has no Service
	}
	return []string{key}, nil
}

// slicesOf returns the slices of a Service that are managed, without those that are being
// deleted.
func slicesOf(index cache.Indexer, namespace, name string, managed func(*discoveryv1.EndpointSlice) bool) ([]*discoveryv1.EndpointSlice, error) {
	objs, err := index.ByIndex(sliceIndex, namespace+"/"+name)
	if err != nil {
		return nil, err
	}
	var out []*discoveryv1.EndpointSlice
	for _, o := range objs {
		if s := o.(*discoveryv1.EndpointSlice); managed(s) && s.DeletionTimestamp == nil {
			out = append(out, s)
		}
	}
	return out, nil
}

// failuresBeforeRead is how many syncs of a Service fail before stale slices are read from the server.
const failuresBeforeRead = 2

// currentSlices returns the managed slices of a Service. have is what the informer shows. While that lacks a write of the
// controller, it returns errStale. The informer may never show a write, if another client deletes or relabels the slice soon
// after, so after failuresBeforeRead failures the slices are read from the server.
func currentSlices(ctx context.Context, env *Env, svc *corev1.Service, have []*discoveryv1.EndpointSlice, managed func(*discoveryv1.EndpointSlice) bool,
	tracker *endpointsliceutil.EndpointSliceTracker, queue Queue) ([]*discoveryv1.EndpointSlice, error) {
	if !tracker.StaleSlices(svc, have) {
		return have, nil
	}
	if queue.NumRequeues(Key(svc)) < failuresBeforeRead {
		return nil, errStale
	}
	list, err := env.Client.DiscoveryV1().EndpointSlices(svc.Namespace).List(ctx, metav1.ListOptions{
		LabelSelector: labels.Set{discoveryv1.LabelServiceName: svc.Name}.String(),
	})
	if err != nil {
		return nil, fmt.Errorf("list the EndpointSlices of Service %s: %w", Key(svc), err)
	}
	tracker.DeleteService(svc.Namespace, svc.Name)
	// Slices that the server lacks are stale until the informer shows that they are gone. Update replaces the others.
	for _, s := range have {
		tracker.ExpectDeletion(s)
	}
	var current []*discoveryv1.EndpointSlice
	for i := range list.Items {
		if s := &list.Items[i]; managed(s) && s.DeletionTimestamp == nil {
			tracker.Update(s)
			current = append(current, s)
		}
	}
	return current, nil
}

// followSlices calls queue with the key of a Service when one of its managed slices is deleted or relabelled, or is added or
// changed by another client.
func followSlices(env *Env, slices cache.SharedIndexInformer, tracker *endpointsliceutil.EndpointSliceTracker,
	managed func(*discoveryv1.EndpointSlice) bool, queue func(key string)) {
	service := func(s *discoveryv1.EndpointSlice) {
		if key, err := endpointslice.ServiceControllerKey(s); err == nil {
			queue(key)
		}
	}
	Handle(env, slices, func(old, cur *discoveryv1.EndpointSlice) {
		switch {
		case cur == nil:
			if managed(old) {
				tracker.HandleDeletion(old)
				service(old)
			}
		case old != nil && (managed(old) != managed(cur) || old.Labels[discoveryv1.LabelServiceName] != cur.Labels[discoveryv1.LabelServiceName]):
			// A newer write of the controller, which restores the labels, is still to be shown.
			written := *old
			written.Generation = cur.Generation
			if managed(old) && tracker.ShouldSync(&written) {
				tracker.HandleDeletion(old)
			}
			service(old)
			service(cur)
		case managed(cur) && tracker.ShouldSync(cur):
			service(cur)
		}
	})
}

// either returns cur, or old if cur is nil.
func either[T any](old, cur *T) *T {
	if cur != nil {
		return cur
	}
	return old
}

func nodeReady(n *corev1.Node) bool {
	for _, c := range n.Status.Conditions {
		if c.Type == corev1.NodeReady {
			return c.Status == corev1.ConditionTrue
		}
	}
	return false
}
