package core

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"strconv"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"portico/resource"
	"portico/resource/loop"
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
	for {
		err := loop.Retry(ctx, loop.Backoff{Max: 5 * time.Second}, func(ctx context.Context) error {
			err := k.ensure(ctx)
			if err != nil && ctx.Err() == nil {
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

func (k *kubernetesService) ensure(ctx context.Context) error {
	services := k.core.find("", "services")
	_, err := services.Store.Get(ctx, resource.Key{Namespace: "default", Name: "kubernetes"}, resource.At{})
	if err == nil {
		return nil
	}
	if !isNotFound(err) {
		return err
	}
	host, portText, err := net.SplitHostPort(k.core.cfg.AdvertiseAddress)
	port, _ := strconv.Atoi(portText)
	if err != nil || port == 0 {
		host, port = "", 6443
	}
	addr := k.core.addresses.nth(1)
	if _, err := k.core.addresses.claim(ctx, addr, "default/kubernetes"); err != nil && !apierrors.IsAlreadyExists(err) {
		return fmt.Errorf("claim %s: %w", addr, err)
	}
	labels := map[string]string{"component": "apiserver", "provider": "kubernetes"}
	if ip := net.ParseIP(host); ip != nil {
		if err := k.endpoints(ctx, ip.String(), int32(port)); err != nil {
			return err
		}
	}
	single, none, cluster := corev1.IPFamilyPolicySingleStack, corev1.ServiceAffinityNone, corev1.ServiceInternalTrafficPolicyCluster
	return create(ctx, services, &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "kubernetes", Labels: labels},
		Spec: corev1.ServiceSpec{
			Type: corev1.ServiceTypeClusterIP, ClusterIP: addr.String(), ClusterIPs: []string{addr.String()},
			Ports:           []corev1.ServicePort{{Name: "https", Protocol: corev1.ProtocolTCP, Port: 443, TargetPort: intstr.FromInt32(int32(port))}},
			SessionAffinity: none, IPFamilyPolicy: &single, IPFamilies: []corev1.IPFamily{corev1.IPv4Protocol}, InternalTrafficPolicy: &cluster,
		},
	})
}

// endpoints says where the gateway is.
func (k *kubernetesService) endpoints(ctx context.Context, ip string, port int32) error {
	name, protocol, ready := "https", corev1.ProtocolTCP, true
	family := discoveryv1.AddressTypeIPv4
	if net.ParseIP(ip).To4() == nil {
		family = discoveryv1.AddressTypeIPv6
	}
	return create(ctx, k.core.find("discovery.k8s.io", "endpointslices"), &discoveryv1.EndpointSlice{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: "default", Name: "kubernetes", Labels: map[string]string{discoveryv1.LabelServiceName: "kubernetes"},
		},
		AddressType: family,
		Endpoints:   []discoveryv1.Endpoint{{Addresses: []string{ip}, Conditions: discoveryv1.EndpointConditions{Ready: &ready}}},
		Ports:       []discoveryv1.EndpointPort{{Name: &name, Protocol: &protocol, Port: &port}},
	})
}
