package controllers

import (
	"context"
	"fmt"
	"maps"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/validation"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	corelisters "k8s.io/client-go/listers/core/v1"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
	"k8s.io/client-go/tools/record"
	endpointsliceutil "k8s.io/endpointslice/util"
	utilnet "k8s.io/utils/net"
)

const (
	// mirrorManager is the value of LabelManagedBy of mirrored slices.
	mirrorManager = "endpointslicemirroring-controller.k8s.io"
	// maxMirrored is how many addresses of a subset are mirrored.
	maxMirrored = 1000
)

// mirroring keeps EndpointSlices equal to the Endpoints that users write for Services without a
// selector.
type mirroring struct {
	env       *Env
	services  corelisters.ServiceLister
	endpoints corelisters.EndpointsLister
	slices    cache.Indexer
	queue     Queue
	tracker   *endpointsliceutil.EndpointSliceTracker
	events    record.EventRecorder
}

func runMirroring(ctx context.Context, env *Env) error {
	core, slices := env.Informers.Core().V1(), env.Informers.Discovery().V1().EndpointSlices().Informer()
	c := &mirroring{
		env: env, services: core.Services().Lister(), endpoints: core.Endpoints().Lister(), slices: env.Index(slices, sliceIndex, serviceOfSlice),
		queue: env.NewQueue("endpoint_slice_mirroring", slowRetries()), tracker: endpointsliceutil.NewEndpointSliceTracker(),
		events: env.Recorder("endpoint-slice-mirroring-controller"),
	}
	Handle(env, core.Services().Informer(), func(old, cur *corev1.Service) {
		without := func(s *corev1.Service) bool { return s != nil && s.Spec.Selector == nil }
		if without(old) != without(cur) {
			c.queue.Add(Key(either(old, cur)))
		}
	})
	Handle(env, core.Endpoints().Informer(), func(old, cur *corev1.Endpoints) {
		if mirrored(old) || mirrored(cur) {
			c.queue.Add(Key(either(old, cur)))
		}
	})
	followSlices(env, slices, c.tracker, managedByMirroring, c.queue.Add)
	return env.Work(ctx, Loop{Queue: c.queue, Workers: 5, Sync: c.sync})
}

func managedByMirroring(s *discoveryv1.EndpointSlice) bool {
	return s.Labels[discoveryv1.LabelManagedBy] == mirrorManager
}

// mirrored reports whether an Endpoints is to be mirrored. e may be nil.
func mirrored(e *corev1.Endpoints) bool {
	if e == nil || e.Labels[discoveryv1.LabelSkipMirror] == "true" {
		return false
	}
	_, lock := e.Annotations[resourcelock.LeaderElectionRecordAnnotationKey]
	return !lock
}

// sync writes the slices of an Endpoints.
func (c *mirroring) sync(ctx context.Context, namespace, name string) error {
	e, err := c.endpoints.Endpoints(namespace).Get(name)
	if ignoreNotFound(err) != nil {
		return err
	}
	svc, err := c.services.Services(namespace).Get(name)
	if ignoreNotFound(err) != nil {
		return err
	}
	have, err := slicesOf(c.slices, namespace, name, managedByMirroring)
	if err != nil {
		return err
	}
	if !mirrored(e) || svc == nil || svc.Spec.Selector != nil {
		if len(have) == 0 {
			c.tracker.DeleteService(namespace, name)
		}
		for _, s := range have {
			if err := c.env.Client.DiscoveryV1().EndpointSlices(namespace).Delete(ctx, s.Name, metav1.DeleteOptions{}); ignoreNotFound(err) != nil {
				return fmt.Errorf("delete mirrored EndpointSlice: %w", err)
			}
			c.tracker.ExpectDeletion(s) // Until the informer has seen it, its slice is none to use again.
		}
		return nil
	}
	have, err = currentSlices(ctx, c.env, svc, have, managedByMirroring, c.tracker, c.queue)
	if err != nil {
		return err
	}
	return c.apply(ctx, e, mirrorChanges(e, c.desired(e), have, c.tracker))
}

// portSlices are the endpoints of one address type and one set of ports.
type portSlices struct {
	addressType discoveryv1.AddressType
	ports       []discoveryv1.EndpointPort
	endpoints   endpointsliceutil.EndpointSet
}

func sliceKey(ports []discoveryv1.EndpointPort, addressType discoveryv1.AddressType) string {
	return string(addressType) + "-" + string(endpointsliceutil.NewPortMapKey(ports))
}

// desired returns the endpoints to mirror. It reports addresses that are left out as events.
func (c *mirroring) desired(e *corev1.Endpoints) map[string]*portSlices {
	out := map[string]*portSlices{}
	invalid, skipped := 0, 0
	for _, subset := range repack(e.Subsets) {
		ports := []discoveryv1.EndpointPort{}
		for _, p := range subset.Ports {
			ports = append(ports, discoveryv1.EndpointPort{Name: &p.Name, Port: &p.Port, Protocol: &p.Protocol, AppProtocol: p.AppProtocol})
		}
		for _, t := range []discoveryv1.AddressType{discoveryv1.AddressTypeIPv4, discoveryv1.AddressTypeIPv6} {
			if key := sliceKey(ports, t); out[key] == nil {
				out[key] = &portSlices{addressType: t, ports: ports, endpoints: endpointsliceutil.EndpointSet{}}
			}
		}
		added := 0
		for i, a := range append(subset.Addresses, subset.NotReadyAddresses...) {
			if added == maxMirrored {
				break
			}
			endpoint, addressType, ok := mirroredEndpoint(a, i < len(subset.Addresses))
			if !ok {
				invalid++
				continue
			}
			out[sliceKey(ports, addressType)].endpoints.Insert(endpoint)
			added++
		}
		skipped += len(subset.Addresses) + len(subset.NotReadyAddresses) - added
	}
	if invalid > 0 {
		c.events.Eventf(e, corev1.EventTypeWarning, "InvalidIPAddress", "Skipped %d invalid IP addresses when mirroring to EndpointSlices", invalid)
	}
	if skipped > invalid {
		c.events.Eventf(e, corev1.EventTypeWarning, "TooManyAddressesToMirror",
			"A max of %d addresses can be mirrored to EndpointSlices per Endpoints subset. %d addresses were skipped", maxMirrored, skipped)
	}
	return out
}

func mirroredEndpoint(a corev1.EndpointAddress, ready bool) (*discoveryv1.Endpoint, discoveryv1.AddressType, bool) {
	ip := utilnet.ParseIPSloppy(a.IP)
	if ip == nil {
		return nil, "", false
	}
	out := &discoveryv1.Endpoint{
		Addresses: []string{ip.String()}, Conditions: discoveryv1.EndpointConditions{Ready: &ready}, TargetRef: a.TargetRef, NodeName: a.NodeName,
	}
	if a.Hostname != "" {
		out.Hostname = &a.Hostname
	}
	if utilnet.IsIPv6(ip) {
		return out, discoveryv1.AddressTypeIPv6, true
	}
	return out, discoveryv1.AddressTypeIPv4, true
}

// sliceChanges are the writes that make slices what they should be.
type sliceChanges struct{ create, update, remove []*discoveryv1.EndpointSlice }

// mirrorChanges compares the slices of an Endpoints with the desired ones.
func mirrorChanges(e *corev1.Endpoints, desired map[string]*portSlices, have []*discoveryv1.EndpointSlice, tracker *endpointsliceutil.EndpointSliceTracker) sliceChanges {
	var out sliceChanges
	byKey := map[string][]*discoveryv1.EndpointSlice{}
	for _, s := range have {
		key := sliceKey(s.Ports, s.AddressType)
		byKey[key] = append(byKey[key], s)
	}
	for key, want := range desired {
		existing := byKey[key]
		delete(byKey, key)
		switch {
		case want.endpoints.Len() == 0:
			out.remove = append(out.remove, existing...)
		case len(existing) == 0:
			out.create = append(out.create, mirrorSlice(e, want, ""))
		default:
			out.remove = append(out.remove, existing[1:]...)
			if same(e, want, existing[0]) {
				if !tracker.Has(existing[0]) {
					tracker.Update(existing[0])
				}
			} else {
				out.update = append(out.update, mirrorSlice(e, want, existing[0].Name))
			}
		}
	}
	for _, existing := range byKey {
		out.remove = append(out.remove, existing...)
	}
	out.recycle()
	return out
}

// recycle replaces a creation and a removal of the same address type by an update.
func (ch *sliceChanges) recycle() {
	var create []*discoveryv1.EndpointSlice
	for _, s := range ch.create {
		reused := false
		for i, old := range ch.remove {
			if reused = old.AddressType == s.AddressType; reused {
				s.Name = old.Name
				ch.update = append(ch.update, s)
				ch.remove = append(ch.remove[:i:i], ch.remove[i+1:]...)
				break
			}
		}
		if !reused {
			create = append(create, s)
		}
	}
	ch.create = create
}

// same reports whether a slice has exactly the endpoints, and the metadata of the Endpoints.
func same(e *corev1.Endpoints, want *portSlices, have *discoveryv1.EndpointSlice) bool {
	if len(have.Endpoints) != want.endpoints.Len() {
		return false
	}
	for i := range have.Endpoints {
		if got := want.endpoints.Get(&have.Endpoints[i]); got == nil || !endpointsliceutil.EndpointsEqualBeyondHash(got, &have.Endpoints[i]) {
			return false
		}
	}
	for _, o := range have.OwnerReferences {
		if o.Kind == "Endpoints" && o.Name == e.Name && o.UID != e.UID {
			return false
		}
	}
	return apiequality.Semantic.DeepEqual(e.Labels, without(have.Labels, discoveryv1.LabelManagedBy, discoveryv1.LabelServiceName)) &&
		apiequality.Semantic.DeepEqual(without(e.Annotations, corev1.EndpointsLastChangeTriggerTime, corev1.LastAppliedConfigAnnotation), have.Annotations)
}

// without returns a copy of m without keys.
func without(m map[string]string, keys ...string) map[string]string {
	out := maps.Clone(m)
	for _, k := range keys {
		delete(out, k)
	}
	return out
}

// mirrorSlice returns a slice with the endpoints; without a name it is to be created.
func mirrorSlice(e *corev1.Endpoints, want *portSlices, name string) *discoveryv1.EndpointSlice {
	out := &discoveryv1.EndpointSlice{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: e.Namespace, Name: name, Labels: map[string]string{},
			Annotations:     without(e.Annotations, corev1.EndpointsLastChangeTriggerTime, corev1.LastAppliedConfigAnnotation),
			OwnerReferences: []metav1.OwnerReference{*metav1.NewControllerRef(e, corev1.SchemeGroupVersion.WithKind("Endpoints"))},
		},
		Ports: want.ports, AddressType: want.addressType, Endpoints: []discoveryv1.Endpoint{},
	}
	maps.Copy(out.Labels, e.Labels)
	out.Labels[discoveryv1.LabelServiceName], out.Labels[discoveryv1.LabelManagedBy] = e.Name, mirrorManager
	if name == "" {
		out.GenerateName = e.Name + "-"
		if len(validation.NameIsDNSSubdomain(out.GenerateName, true)) > 0 {
			out.GenerateName = e.Name
		}
	}
	for want.endpoints.Len() > 0 && len(out.Endpoints) < maxMirrored {
		endpoint, _ := want.endpoints.PopAny()
		out.Endpoints = append(out.Endpoints, *endpoint)
	}
	return out
}

// apply writes changes.
func (c *mirroring) apply(ctx context.Context, e *corev1.Endpoints, changes sliceChanges) error {
	client := c.env.Client.DiscoveryV1().EndpointSlices(e.Namespace)
	fail := func(verb string, s *discoveryv1.EndpointSlice, err error) error {
		return fmt.Errorf("failed to %s %s EndpointSlice for Endpoints %s/%s: %w", verb, s.Name, e.Namespace, e.Name, err)
	}
	for _, s := range changes.create {
		if e.DeletionTimestamp != nil {
			break
		}
		made, err := client.Create(ctx, s, metav1.CreateOptions{})
		if apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause) {
			return nil
		}
		if err != nil {
			return fail("create", s, err)
		}
		c.tracker.Update(made)
	}
	for _, s := range changes.update {
		updated, err := client.Update(ctx, s, metav1.UpdateOptions{})
		if err != nil {
			return fail("update", s, err)
		}
		c.tracker.Update(updated)
	}
	for _, s := range changes.remove {
		if err := client.Delete(ctx, s.Name, metav1.DeleteOptions{}); ignoreNotFound(err) != nil {
			return fail("delete", s, err)
		}
		c.tracker.ExpectDeletion(s)
	}
	return nil
}
