package kubelet

import (
	"context"
	"fmt"
	"net/url"
	"slices"
	"strconv"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/labels"
	utilnet "k8s.io/apimachinery/pkg/util/net"
	"k8s.io/apiserver/pkg/util/proxy"

	"portico/resource"
	"portico/resource/rest"
)

// locateService leads to a random one of the ready endpoints of a service that are pods. The
// port of the key is the name or the number of a port of the service.
func (c *Connector) locateService(ctx context.Context, key resource.Key) (*url.URL, transportKind, error) {
	scheme, name, port, ok := utilnet.SplitSchemeNamePort(key.Name)
	if !ok {
		return nil, proxyToPod, apierrors.NewBadRequest(fmt.Sprintf("invalid service request %q", key.Name))
	}
	if number, err := strconv.ParseInt(port, 10, 64); err == nil {
		service, err := rest.GetObject[*corev1.Service](ctx, c.cfg.Find("", "services"), resource.Key{Namespace: key.Namespace, Name: name}, resource.At{})
		if err != nil {
			return nil, proxyToPod, err
		}
		i := slices.IndexFunc(service.Spec.Ports, func(p corev1.ServicePort) bool { return int64(p.Port) == number })
		if i < 0 {
			return nil, proxyToPod, apierrors.NewServiceUnavailable(fmt.Sprintf("no service port %d found for service %q", number, name))
		}
		port = service.Spec.Ports[i].Name
	}
	endpoints, err := c.endpointSlices(ctx, key.Namespace, name)
	if err != nil {
		return nil, proxyToPod, err
	}
	if len(endpoints) == 0 {
		return nil, proxyToPod, apierrors.NewServiceUnavailable(fmt.Sprintf("no endpoints available for service %q", name))
	}
	host, err := proxy.RandomEndpoint(name, endpoints, port, corev1.IPv4Protocol, func(e *discoveryv1.Endpoint) bool {
		return c.isPod(ctx, key.Namespace, e)
	})
	if err != nil {
		return nil, proxyToPod, err
	}
	return &url.URL{Scheme: scheme, Host: host}, proxyToPod, nil
}

func (c *Connector) endpointSlices(ctx context.Context, namespace, service string) ([]*discoveryv1.EndpointSlice, error) {
	selector := resource.Selector{Labels: labels.SelectorFromSet(labels.Set{discoveryv1.LabelServiceName: service})}
	return rest.ListObjects[*discoveryv1.EndpointSlice](ctx, c.cfg.Find(discoveryv1.GroupName, "endpointslices"),
		resource.ListOptions{Namespace: namespace, Selector: selector, At: resource.At{Freshness: resource.Any}})
}

// isPod reports whether an endpoint is the address of a pod of the namespace: writers of
// slices must not reach other addresses.
func (c *Connector) isPod(ctx context.Context, namespace string, e *discoveryv1.Endpoint) bool {
	if e.TargetRef == nil || e.TargetRef.Namespace != namespace || len(e.Addresses) == 0 {
		return false
	}
	pod, err := c.pod(ctx, resource.Key{Namespace: namespace, Name: e.TargetRef.Name})
	return err == nil && slices.ContainsFunc(pod.Status.PodIPs, func(ip corev1.PodIP) bool { return ip.IP == e.Addresses[0] })
}
