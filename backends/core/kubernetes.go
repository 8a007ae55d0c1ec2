package core

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"strconv"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"portico/resource"
	"portico/resource/loop"
	"portico/resource/rest"
)

// kubernetesService keeps Service default/kubernetes, by which clients inside a
// cluster find the gateway, and its endpoints.
type kubernetesService struct {
	core *Core
	log  *slog.Logger
}

func (k *kubernetesService) run(ctx context.Context) error {
	tick := time.NewTicker(time.Minute)
	defer tick.Stop()
	// The address may be another one than before this start. Afterwards only
	// what is missing is made: several core servers that name different
	// gateways must not overwrite each other for ever.
	for replace := true; ; replace = false {
		told := "" // once for each reason
		err := loop.Retry(ctx, loop.Backoff{Max: 5 * time.Second}, func(ctx context.Context) error {
			err := k.ensure(ctx, replace)
			if err != nil && ctx.Err() == nil && err.Error() != told {
				told = err.Error()
				k.log.Warn("setting up service default/kubernetes failed", "err", err)
			}
			return err
		})
		if err != nil {
			return err
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-tick.C:
		}
	}
}

// ensure makes the service and its endpoints; with replace, endpoints that say
// something else are replaced.
func (k *kubernetesService) ensure(ctx context.Context, replace bool) error {
	host, portText, err := net.SplitHostPort(k.core.cfg.AdvertiseAddress)
	port, _ := strconv.ParseUint(portText, 10, 16)
	if err != nil || port == 0 {
		host, port = "", 6443
	}
	if addr, err := netip.ParseAddr(host); err == nil {
		if err := k.endpoints(ctx, addr.Unmap(), int32(port), replace); err != nil {
			return err
		}
	}
	return k.service(ctx, int32(port))
}

// service makes the service if it is missing, at the first address of the
// range.
func (k *kubernetesService) service(ctx context.Context, port int32) error {
	services := k.core.find("", "services")
	_, err := services.Store.Get(ctx, resource.Key{Namespace: "default", Name: "kubernetes"}, resource.At{})
	if err == nil {
		return nil
	}
	if !isNotFound(err) {
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

// endpoints says where the gateway is.
func (k *kubernetesService) endpoints(ctx context.Context, ip netip.Addr, port int32, replace bool) error {
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
	if err != nil || !replace {
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
