package core

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"strconv"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"portico/resource"
	"portico/resource/loop"
	"portico/resource/rest"
)

// kubernetesService keeps Service default/kubernetes, by which clients inside a cluster
// find the gateway, and its endpoints.
type kubernetesService struct {
	core *Core
	// replaced reports that the endpoints were replaced after the start.
	replaced bool
}

// run creates the service and its endpoints, and creates them again when they are missing.
func (k *kubernetesService) run(ctx context.Context) error {
	return k.core.reconcile(ctx, "service default/kubernetes", new(loop.Signal), k.ensure)
}

// ensure creates the service and its endpoints. The first call replaces other endpoints,
// because the address may have changed since the last start. Later calls do not: several
// core servers with different gateways must not overwrite each other forever.
func (k *kubernetesService) ensure(ctx context.Context) error {
	host, portText, err := net.SplitHostPort(k.core.cfg.AdvertiseAddress)
	port, _ := strconv.ParseUint(portText, 10, 16)
	if err != nil || port == 0 {
		host, port = "", 6443
	}
	if addr, err := netip.ParseAddr(host); err == nil {
		if err := k.endpoints(ctx, addr.Unmap(), int32(port)); err != nil {
			return err
		}
	}
	k.replaced = true
	return k.service(ctx, int32(port))
}

// service creates the service if it is missing, at the first address of the range.
func (k *kubernetesService) service(ctx context.Context, port int32) error {
	services := k.core.find("", "services")
	_, err := services.Store.Get(ctx, resource.Key{Namespace: "default", Name: "kubernetes"}, resource.At{})
	if err == nil {
		return nil
	}
	if !apierrors.IsNotFound(err) {
		return fmt.Errorf("get service: %w", err)
	}
	addr := k.core.addresses.nth(1)
	if _, err := k.core.addresses.claim(ctx, addr, apiService); err != nil && !apierrors.IsAlreadyExists(err) {
		return fmt.Errorf("claim %s: %w", addr, err)
	}
	single, cluster := corev1.IPFamilyPolicySingleStack, corev1.ServiceInternalTrafficPolicyCluster
	return create(ctx, services, &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: "default", Name: "kubernetes", Labels: map[string]string{"component": "apiserver", "provider": "kubernetes"},
		},
		Spec: corev1.ServiceSpec{
			Type: corev1.ServiceTypeClusterIP, ClusterIP: addr.String(), ClusterIPs: []string{addr.String()},
			Ports:           []corev1.ServicePort{{Name: "https", Protocol: corev1.ProtocolTCP, Port: 443, TargetPort: intstr.FromInt32(port)}},
			SessionAffinity: corev1.ServiceAffinityNone, IPFamilyPolicy: &single,
			IPFamilies: []corev1.IPFamily{corev1.IPv4Protocol}, InternalTrafficPolicy: &cluster,
		},
	})
}

// endpoints creates the EndpointSlice with the address of the gateway.
func (k *kubernetesService) endpoints(ctx context.Context, ip netip.Addr, port int32) error {
	name, protocol, ready := "https", corev1.ProtocolTCP, true
	family := discoveryv1.AddressTypeIPv4
	if ip.Is6() {
		family = discoveryv1.AddressTypeIPv6
	}
	want := &discoveryv1.EndpointSlice{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: "default", Name: "kubernetes", Labels: map[string]string{discoveryv1.LabelServiceName: "kubernetes"},
		},
		AddressType: family,
		Endpoints:   []discoveryv1.Endpoint{{Addresses: []string{ip.String()}, Conditions: discoveryv1.EndpointConditions{Ready: &ready}}},
		Ports:       []discoveryv1.EndpointPort{{Name: &name, Protocol: &protocol, Port: &port}},
	}
	slices := k.core.find("discovery.k8s.io", "endpointslices")
	err := create(ctx, slices, want.DeepCopy())
	if err != nil || k.replaced {
		return err
	}
	_, err = rest.Modify(ctx, slices, resource.Key{Namespace: "default", Name: "kubernetes"}, func(have *discoveryv1.EndpointSlice) error {
		have.AddressType, have.Endpoints, have.Ports = want.AddressType, want.Endpoints, want.Ports
		return nil
	})
	if err != nil {
		return fmt.Errorf("update endpoints: %w", err)
	}
	return nil
}
