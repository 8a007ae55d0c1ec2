package core

//lint:file-ignore SA1019 v1 Endpoints are deprecated, and served.

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"portico/resource"
	"portico/resource/loop"
	"portico/resource/masterlease"
	"portico/resource/rest"
)

const (
	// endpointsInterval is the pause between two comparisons of the endpoints with the leases.
	endpointsInterval = 5 * time.Second
	// leaseInterval is the pause between two reads of the leases until there is one, for at most
	// leasePatience.
	leaseInterval, leasePatience = 50 * time.Millisecond, 3 * time.Second
	// defaultGatewayPort is the target port of the Service if no gateway is known.
	defaultGatewayPort = 6443
	// portName is the name of the gateways' port in the Service, its Endpoints and its EndpointSlice.
	portName = "https"
)

// kubernetesService keeps Service default/kubernetes, by which clients inside a cluster find the
// gateways, and its endpoints: the addresses of the gateways that run, by their leases.
type kubernetesService struct {
	core   *Core
	leases *masterlease.Leases
}

// kubernetesKey is the key of the Service, its Endpoints and its EndpointSlice.
var kubernetesKey = resource.Key{Namespace: "default", Name: "kubernetes"}

// run keeps the lease of the address that this server publishes, the Service and its endpoints,
// and creates them again when they are missing.
func (k *kubernetesService) run(ctx context.Context) error {
	k.leases = masterlease.New(k.core.storage.Store)
	wake := new(loop.Signal)
	return loop.Together(ctx, k.keepLease,
		func(ctx context.Context) error {
			return k.core.reconcile(ctx, "service default/kubernetes", wake, k.ensure)
		},
		func(ctx context.Context) error {
			err := k.awaitLease(ctx)
			for ; err == nil; err = pause(ctx, endpointsInterval) {
				wake.Set()
			}
			return err
		},
	)
}

// awaitLease waits until a gateway has a lease, so that the endpoints appear when it starts.
func (k *kubernetesService) awaitLease(ctx context.Context) error {
	for start := time.Now(); time.Since(start) < leasePatience; {
		if known, err := k.leases.List(ctx); err == nil && len(known) > 0 {
			return nil
		}
		if err := pause(ctx, leaseInterval); err != nil {
			return err
		}
	}
	return nil
}

// pause waits for d. If ctx ends first, it returns ctx's error.
func pause(ctx context.Context, d time.Duration) error {
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(d):
		return nil
	}
}

func (k *kubernetesService) keepLease(ctx context.Context) error {
	if own, ok := masterlease.Parse(k.core.cfg.AdvertiseAddress); ok {
		return k.leases.Keep(ctx, own, k.core.log)
	}
	<-ctx.Done()
	return ctx.Err()
}

// ensure creates what is missing and updates the endpoints. Without a lease these remain: it is
// more likely that the leases are lost than that all gateways are.
func (k *kubernetesService) ensure(ctx context.Context) error {
	known, err := k.leases.List(ctx)
	if err != nil {
		return err
	}
	subsets := subsetsOf(known)
	if err := k.service(ctx, subsets); err != nil {
		return err
	}
	k.core.started.kubernetesService.Store(true)
	if len(subsets) == 0 {
		return nil
	}
	return errors.Join(k.endpoints(ctx, subsets), k.slice(ctx, subsets[0]))
}

// subsetsOf returns the addresses by port, in the order of the addresses.
func subsetsOf(known []netip.AddrPort) (out []corev1.EndpointSubset) {
	index := map[int32]int{}
	for _, a := range known {
		port := int32(a.Port())
		if port == 0 {
			port = defaultGatewayPort
		}
		i, ok := index[port]
		if !ok {
			i = len(out)
			index[port] = i
			out = append(out, corev1.EndpointSubset{Ports: []corev1.EndpointPort{{Name: portName, Port: port, Protocol: corev1.ProtocolTCP}}})
		}
		out[i].Addresses = append(out[i].Addresses, corev1.EndpointAddress{IP: a.Addr().String()})
	}
	return out
}

// service creates the Service if it is missing, at the first address of the range, and keeps the
// port of a gateway as its target port.
func (k *kubernetesService) service(ctx context.Context, subsets []corev1.EndpointSubset) error {
	services := k.core.find("", "services")
	stored, err := rest.GetObject[*corev1.Service](ctx, services, kubernetesKey, resource.At{})
	switch {
	case apierrors.IsNotFound(err):
		return k.createService(ctx, services, targetPort(defaultGatewayPort, subsets))
	case err != nil:
		return fmt.Errorf("get service: %w", err)
	}
	if !retarget(stored, subsets) {
		return nil
	}
	return store(ctx, services, stored, func(have *corev1.Service) error {
		retarget(have, subsets)
		return nil
	})
}

// retarget sets the target port of the Service to the port of a gateway, if one is known, and reports
// whether that is a change.
func retarget(svc *corev1.Service, subsets []corev1.EndpointSubset) bool {
	if len(subsets) == 0 {
		return false
	}
	for i := range svc.Spec.Ports {
		port := &svc.Spec.Ports[i]
		if port.Name != portName {
			continue
		}
		if want := targetPort(port.TargetPort.IntVal, subsets); port.TargetPort != intstr.FromInt32(want) {
			port.TargetPort = intstr.FromInt32(want)
			return true
		}
	}
	return false
}

// targetPort returns the current target port if a gateway has it or none is known, and the port of
// the first gateway otherwise.
func targetPort(current int32, subsets []corev1.EndpointSubset) int32 {
	has := func(s corev1.EndpointSubset) bool { return s.Ports[0].Port == current }
	if len(subsets) == 0 || slices.ContainsFunc(subsets, has) {
		return current
	}
	return subsets[0].Ports[0].Port
}

func (k *kubernetesService) createService(ctx context.Context, services *rest.Resource, port int32) error {
	addr, err := k.core.services.ClaimAPIService(ctx)
	if err != nil {
		return fmt.Errorf("claim %s: %w", addr, err)
	}
	single, cluster := corev1.IPFamilyPolicySingleStack, corev1.ServiceInternalTrafficPolicyCluster
	return create(ctx, services, &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: kubernetesKey.Namespace, Name: kubernetesKey.Name, Labels: map[string]string{"component": "apiserver", "provider": "kubernetes"},
		},
		Spec: corev1.ServiceSpec{
			Type: corev1.ServiceTypeClusterIP, ClusterIP: addr, ClusterIPs: []string{addr},
			Ports:           []corev1.ServicePort{{Name: portName, Protocol: corev1.ProtocolTCP, Port: 443, TargetPort: intstr.FromInt32(port)}},
			SessionAffinity: corev1.ServiceAffinityNone, IPFamilyPolicy: &single,
			IPFamilies: k.core.services.Families()[:1], InternalTrafficPolicy: &cluster,
		},
	})
}

// endpoints stores the Endpoints, which no controller mirrors.
func (k *kubernetesService) endpoints(ctx context.Context, subsets []corev1.EndpointSubset) error {
	meta := metav1.ObjectMeta{Namespace: kubernetesKey.Namespace, Name: kubernetesKey.Name, Labels: map[string]string{discoveryv1.LabelSkipMirror: "true"}}
	return store(ctx, k.core.find("", "endpoints"), &corev1.Endpoints{ObjectMeta: meta, Subsets: subsets}, func(have *corev1.Endpoints) error {
		if have.Labels == nil {
			have.Labels = map[string]string{}
		}
		have.Labels[discoveryv1.LabelSkipMirror], have.Subsets = "true", subsets
		return nil
	})
}

// errFamily means that the EndpointSlice has another family, which cannot change.
var errFamily = errors.New("the endpoint slice has another address type")

// slice stores the EndpointSlice of one port: its IPv4 addresses, or those of IPv6 if it has no
// others.
func (k *kubernetesService) slice(ctx context.Context, subset corev1.EndpointSubset) error {
	family := discoveryv1.AddressTypeIPv6
	byFamily := map[discoveryv1.AddressType][]discoveryv1.Endpoint{}
	for _, a := range subset.Addresses {
		of := discoveryv1.AddressTypeIPv6
		if addr, err := netip.ParseAddr(a.IP); err == nil && addr.Is4() {
			of, family = discoveryv1.AddressTypeIPv4, discoveryv1.AddressTypeIPv4
		}
		byFamily[of] = append(byFamily[of], discoveryv1.Endpoint{Addresses: []string{a.IP}, Conditions: discoveryv1.EndpointConditions{Ready: new(true)}})
	}
	port := subset.Ports[0]
	want := &discoveryv1.EndpointSlice{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: kubernetesKey.Namespace, Name: kubernetesKey.Name, Labels: map[string]string{discoveryv1.LabelServiceName: kubernetesKey.Name},
			Generation: 1,
		},
		AddressType: family, Endpoints: byFamily[family],
		Ports: []discoveryv1.EndpointPort{{Name: &port.Name, Protocol: &port.Protocol, Port: &port.Port}},
	}
	stored := k.core.find("discovery.k8s.io", "endpointslices")
	err := store(ctx, stored, want, func(have *discoveryv1.EndpointSlice) error {
		if have.AddressType != want.AddressType {
			return errFamily
		}
		have.Labels, have.Endpoints, have.Ports = want.Labels, want.Endpoints, want.Ports
		return nil
	})
	if !errors.Is(err, errFamily) {
		return err
	}
	if _, err := stored.Store.Delete(ctx, kubernetesKey, nil); err != nil && !apierrors.IsNotFound(err) {
		return fmt.Errorf("replace endpoint slice: %w", err)
	}
	return create(ctx, stored, want)
}

// store changes an object of a controller, or creates it.
func store[T rest.Object](ctx context.Context, r *rest.Resource, obj T, change func(have T) error) error {
	_, err := rest.Modify(ctx, r, resource.Key{Namespace: obj.GetNamespace(), Name: obj.GetName()}, change)
	if apierrors.IsNotFound(err) {
		return create(ctx, r, obj)
	}
	if err != nil {
		return fmt.Errorf("update %s %s/%s: %w", r.Kind.Kind, obj.GetNamespace(), obj.GetName(), err)
	}
	return nil
}
