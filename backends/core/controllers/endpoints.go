package controllers

import (
	"context"
	"maps"
	"math"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	corelisters "k8s.io/client-go/listers/core/v1"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
	"k8s.io/client-go/tools/record"
	endpointslice "k8s.io/endpointslice"
	endpointsliceutil "k8s.io/endpointslice/util"
	utilnet "k8s.io/utils/net"
)

const (
	// endpointsManager is the value of endpointsManagedBy, and the source of events.
	endpointsManager   = "endpoint-controller"
	endpointsManagedBy = "endpoints.kubernetes.io/managed-by"
	// maxEndpoints is how many addresses an Endpoints has at most.
	maxEndpoints = 1000
)

// endpoints keeps the Endpoints of Services with a selector: all addresses of one family in
// one object, for clients that know no EndpointSlices.
type endpoints struct {
	env       *Env
	services  corelisters.ServiceLister
	pods      corelisters.PodLister
	endpoints corelisters.EndpointsLister
	queue     Queue
	times     *endpointsliceutil.TriggerTimeTracker
	events    record.EventRecorder
	// replaced has the resourceVersion of each Endpoints that an update has replaced. The
	// informer is behind while it has that one.
	replaced sync.Map
}

func runEndpoints(ctx context.Context, env *Env) error {
	core := env.Informers.Core().V1()
	c := &endpoints{
		env: env, services: core.Services().Lister(), pods: core.Pods().Lister(), endpoints: core.Endpoints().Lister(),
		queue: env.NewQueue("endpoint"), times: endpointsliceutil.NewTriggerTimeTracker(), events: env.Recorder(endpointsManager),
	}
	Handle(env, core.Services().Informer(), func(old, cur *corev1.Service) { c.queue.Add(Key(either(old, cur))) })
	queueServicesOfPods(env, c.queue)
	Handle(env, core.Endpoints().Informer(), func(old, cur *corev1.Endpoints) {
		if cur == nil {
			c.queue.Add(Key(old))
		}
	})
	if err := env.Fill(ctx); err != nil {
		return err
	}
	all, err := c.endpoints.List(labels.Everything())
	if err != nil {
		return err
	}
	for _, e := range all { // their Services may be gone
		if _, lock := e.Annotations[resourcelock.LeaderElectionRecordAnnotationKey]; !lock {
			c.queue.Add(Key(e))
		}
	}
	return env.Work(ctx, Loop{Queue: c.queue, Workers: 5, Sync: c.sync})
}

// sync writes the Endpoints of a Service.
func (c *endpoints) sync(ctx context.Context, namespace, name string) error {
	client := c.env.Client.CoreV1().Endpoints(namespace)
	svc, err := c.services.Services(namespace).Get(name)
	if apierrors.IsNotFound(err) {
		c.times.DeleteService(namespace, name)
		c.replaced.Delete(namespace + "/" + name)
		return ignoreNotFound(client.Delete(ctx, name, metav1.DeleteOptions{}))
	}
	if err != nil || svc.Spec.Type == corev1.ServiceTypeExternalName || svc.Spec.Selector == nil {
		return err
	}
	pods, err := c.pods.Pods(namespace).List(labels.SelectorFromSet(svc.Spec.Selector))
	if err != nil {
		return err
	}
	changed := c.times.ComputeEndpointLastChangeTriggerTime(namespace, svc, pods)
	cur, err := c.endpoints.Endpoints(namespace).Get(name)
	if ignoreNotFound(err) != nil {
		return err
	}
	if err != nil {
		cur = &corev1.Endpoints{ObjectMeta: metav1.ObjectMeta{Name: name}}
	} else if old, ok := c.replaced.Load(Key(cur)); ok && old == cur.ResourceVersion {
		return errStale
	}
	subsets := subsetsOf(svc, pods)
	if cur.ResourceVersion != "" && upToDate(cur, svc, subsets) {
		return nil
	}
	return c.write(ctx, svc, cur, desiredEndpoints(svc, cur, subsets, changed))
}

// write creates or updates an Endpoints.
func (c *endpoints) write(ctx context.Context, svc *corev1.Service, cur, want *corev1.Endpoints) error {
	client := c.env.Client.CoreV1().Endpoints(svc.Namespace)
	if cur.ResourceVersion == "" {
		_, err := client.Create(ctx, want, metav1.CreateOptions{})
		if apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause) {
			return nil
		}
		if err != nil {
			want.Namespace = svc.Namespace
			c.events.Eventf(want, corev1.EventTypeWarning, "FailedToCreateEndpoint", "Failed to create endpoint for service %v/%v: %v", svc.Namespace, svc.Name, err)
		}
		return err
	}
	updated, err := client.Update(ctx, want, metav1.UpdateOptions{})
	if err != nil {
		c.events.Eventf(want, corev1.EventTypeWarning, "FailedToUpdateEndpoint", "Failed to update endpoint %v/%v: %v", svc.Namespace, svc.Name, err)
		return err
	}
	if updated.ResourceVersion != cur.ResourceVersion {
		c.replaced.Store(Key(cur), cur.ResourceVersion)
	}
	return nil
}

// desiredEndpoints returns cur with the subsets and what the Service says.
func desiredEndpoints(svc *corev1.Service, cur *corev1.Endpoints, subsets []corev1.EndpointSubset, changed time.Time) *corev1.Endpoints {
	out := cur.DeepCopy()
	out.Subsets = subsets
	if out.Annotations == nil {
		out.Annotations = map[string]string{}
	}
	delete(out.Annotations, corev1.EndpointsLastChangeTriggerTime)
	if !changed.IsZero() {
		out.Annotations[corev1.EndpointsLastChangeTriggerTime] = changed.UTC().Format(time.RFC3339Nano)
	}
	delete(out.Annotations, corev1.EndpointsOverCapacity)
	if truncate(out.Subsets) {
		out.Annotations[corev1.EndpointsOverCapacity] = "truncated"
	}
	out.Labels = maps.Clone(svc.Labels)
	if out.Labels == nil {
		out.Labels = map[string]string{}
	}
	delete(out.Labels, corev1.IsHeadlessService)
	if svc.Spec.ClusterIP == corev1.ClusterIPNone || svc.Spec.ClusterIP == "" {
		out.Labels[corev1.IsHeadlessService] = ""
	}
	out.Labels[endpointsManagedBy] = endpointsManager
	return out
}

// upToDate reports whether an Endpoints has the subsets and the labels of its Service.
func upToDate(cur *corev1.Endpoints, svc *corev1.Service, subsets []corev1.EndpointSubset) bool {
	if !subsetsEqual.DeepEqual(cur.Subsets, subsets) && !subsetsEqual.DeepEqual(repack(cur.Subsets), subsets) {
		return false
	}
	own := func(from map[string]string) map[string]string {
		out := maps.Clone(from)
		delete(out, corev1.IsHeadlessService)
		delete(out, endpointsManagedBy)
		return out
	}
	_, over := cur.Annotations[corev1.EndpointsOverCapacity]
	return cur.Labels[endpointsManagedBy] == endpointsManager && apiequality.Semantic.DeepEqual(own(cur.Labels), svc.Labels) && !over && count(cur.Subsets) <= maxEndpoints
}

// subsetsOf returns the subsets of a Service that selects pods.
func subsetsOf(svc *corev1.Service, pods []*corev1.Pod) []corev1.EndpointSubset {
	subsets := []corev1.EndpointSubset{}
	for _, pod := range pods {
		address, ok := addressOf(svc, pod)
		if !ok || !endpointsliceutil.ShouldPodBeInEndpoints(pod, svc.Spec.PublishNotReadyAddresses) {
			continue
		}
		add := func(ports ...corev1.EndpointPort) {
			subset := corev1.EndpointSubset{Ports: ports}
			if svc.Spec.PublishNotReadyAddresses || endpointsliceutil.IsPodReady(pod) {
				subset.Addresses = []corev1.EndpointAddress{address}
			} else {
				subset.NotReadyAddresses = []corev1.EndpointAddress{address}
			}
			subsets = append(subsets, subset)
		}
		if len(svc.Spec.Ports) == 0 && svc.Spec.ClusterIP == corev1.ClusterIPNone {
			add()
		}
		for i := range svc.Spec.Ports {
			p := &svc.Spec.Ports[i]
			number, err := endpointslice.FindPort(pod, p)
			if err != nil {
				continue // the pod has no port of that name
			}
			add(corev1.EndpointPort{Name: p.Name, Port: int32(number), Protocol: p.Protocol, AppProtocol: p.AppProtocol})
		}
	}
	return repack(subsets)
}

// addressOf returns the address of a pod in the first family of a Service.
func addressOf(svc *corev1.Service, pod *corev1.Pod) (corev1.EndpointAddress, bool) {
	ipv6 := utilnet.IsIPv6String(pod.Status.PodIP)
	switch {
	case len(svc.Spec.IPFamilies) > 0:
		ipv6 = svc.Spec.IPFamilies[0] == corev1.IPv6Protocol
	case svc.Spec.ClusterIP != "" && svc.Spec.ClusterIP != corev1.ClusterIPNone:
		ipv6 = utilnet.IsIPv6String(svc.Spec.ClusterIP)
	}
	for _, p := range pod.Status.PodIPs {
		ip := utilnet.ParseIPSloppy(p.IP)
		if ip == nil || utilnet.IsIPv6(ip) != ipv6 {
			continue
		}
		out := corev1.EndpointAddress{
			IP: ip.String(), NodeName: &pod.Spec.NodeName,
			TargetRef: &corev1.ObjectReference{Kind: "Pod", Namespace: pod.Namespace, Name: pod.Name, UID: pod.UID},
		}
		if endpointsliceutil.ShouldSetHostname(pod, svc) {
			out.Hostname = pod.Spec.Hostname
		}
		return out, true
	}
	return corev1.EndpointAddress{}, false
}

func count(subsets []corev1.EndpointSubset) (n int) {
	for _, s := range subsets {
		n += len(s.Addresses) + len(s.NotReadyAddresses)
	}
	return n
}

// truncate reduces the subsets to maxEndpoints addresses and reports whether they had more.
// Those that are not ready go first; each subset loses its share.
func truncate(subsets []corev1.EndpointSubset) bool {
	if count(subsets) <= maxEndpoints {
		return false
	}
	ready, notReady := 0, 0
	for _, s := range subsets {
		ready += len(s.Addresses)
		notReady += len(s.NotReadyAddresses)
	}
	keep, total := maxEndpoints-ready, notReady
	if ready > maxEndpoints {
		keep, total = maxEndpoints, ready
	}
	left := keep
	for i := range subsets {
		list := &subsets[i].NotReadyAddresses
		if ready > maxEndpoints {
			subsets[i].NotReadyAddresses = nil
			list = &subsets[i].Addresses
		}
		share := int(math.Ceil(float64(len(*list)) / float64(total) * float64(keep)))
		*list = (*list)[:min(share, left, len(*list))]
		left -= len(*list)
	}
	return true
}
