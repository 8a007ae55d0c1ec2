package admission

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net"
	"net/url"
	"strconv"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/labels"

	"portico/resource"
	"portico/resource/rest"
)

const (
	// endpointsLife is how long the endpoints of a Service are believed. The
	// webhook engines ask before every call.
	endpointsLife = 2 * time.Second
	// maxServices bounds how many Services are remembered.
	maxServices = 1000
)

// serviceResolver finds webhooks that are named by a Service: they are the ready
// endpoints of its EndpointSlices. What was found last is used for as long as
// nothing newer can be read.
type serviceResolver struct {
	services, slices           resource.Store
	servicesCodec, slicesCodec rest.Codec

	mu    sync.Mutex
	found map[servicePort]endpoints
}

type servicePort struct {
	namespace, name string
	port            int32
}

type endpoints struct {
	urls  []*url.URL
	until time.Time
}

func newServiceResolver(e *Engine) *serviceResolver {
	services := &resource.Info{Versions: []string{"v1"}, Resource: "services", Kind: "Service", Namespaced: true}
	slices := &resource.Info{Group: discoveryv1.GroupName, Versions: []string{"v1"}, Resource: "endpointslices", Kind: "EndpointSlice", Namespaced: true}
	return &serviceResolver{
		services: e.store(services), servicesCodec: rest.Typed(e.scheme, services.GVK("v1")),
		slices: e.store(slices), slicesCodec: rest.Typed(e.scheme, slices.GVK("v1")),
		found: map[servicePort]endpoints{},
	}
}

// ResolveEndpoint returns the address of one ready endpoint, chosen at random,
// as a URL. It implements webhook.ServiceResolver, which has no context.
func (r *serviceResolver) ResolveEndpoint(namespace, name string, port int32) (*url.URL, error) {
	key := servicePort{namespace, name, port}
	r.mu.Lock()
	last, known := r.found[key]
	r.mu.Unlock()
	if !known || time.Now().After(last.until) {
		urls, err := r.read(key)
		switch {
		case err == nil:
			last = endpoints{urls, time.Now().Add(endpointsLife)}
			r.remember(key, last)
		case !known || apierrors.IsNotFound(err):
			return nil, err
		}
	}
	if len(last.urls) == 0 {
		return nil, fmt.Errorf("no endpoints available for service %q", namespace+"/"+name)
	}
	return last.urls[rand.IntN(len(last.urls))], nil
}

func (r *serviceResolver) remember(key servicePort, e endpoints) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.found) >= maxServices {
		clear(r.found)
	}
	r.found[key] = e
}

// read returns the endpoints of a Service's port as they are now.
func (r *serviceResolver) read(key servicePort) ([]*url.URL, error) {
	ctx, cancel := context.WithTimeout(context.Background(), lookupTimeout)
	defer cancel()
	o, err := r.services.Get(ctx, resource.Key{Namespace: key.namespace, Name: key.name}, resource.At{})
	if err != nil {
		return nil, err
	}
	service, err := decodeAs[*corev1.Service](r.servicesCodec, o)
	if err != nil {
		return nil, err
	}
	if service.Spec.Type == corev1.ServiceTypeExternalName {
		return []*url.URL{urlOf(service.Spec.ExternalName, key.port)}, nil
	}
	portName, err := portNameOf(service, key.port)
	if err != nil {
		return nil, err
	}
	selector := labels.SelectorFromSet(labels.Set{discoveryv1.LabelServiceName: key.name})
	list, err := r.slices.List(ctx, resource.ListOptions{Namespace: key.namespace, Selector: resource.Selector{Labels: selector}})
	if err != nil {
		return nil, err
	}
	ready := []*url.URL{}
	for _, o := range list.Items {
		slice, err := decodeAs[*discoveryv1.EndpointSlice](r.slicesCodec, o)
		if err != nil {
			return nil, err
		}
		ready = append(ready, readyEndpoints(slice, portName)...)
	}
	return ready, nil
}

func portNameOf(service *corev1.Service, port int32) (string, error) {
	for _, p := range service.Spec.Ports {
		if p.Port == port {
			return p.Name, nil
		}
	}
	return "", fmt.Errorf("no service port %d found for service %q", port, service.Namespace+"/"+service.Name)
}

// readyEndpoints returns the slice's ready endpoints for the port of that name.
// Readiness that is not said counts as ready.
func readyEndpoints(slice *discoveryv1.EndpointSlice, portName string) (out []*url.URL) {
	for _, p := range slice.Ports {
		if p.Port == nil || p.Name == nil && portName != "" || p.Name != nil && *p.Name != portName {
			continue
		}
		for _, e := range slice.Endpoints {
			if e.Conditions.Ready != nil && !*e.Conditions.Ready {
				continue
			}
			for _, address := range e.Addresses {
				out = append(out, urlOf(address, *p.Port))
			}
		}
	}
	return out
}

func urlOf(host string, port int32) *url.URL {
	return &url.URL{Scheme: "https", Host: net.JoinHostPort(host, strconv.Itoa(int(port)))}
}
