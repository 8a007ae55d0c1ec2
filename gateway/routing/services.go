package routing

import (
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"slices"
	"strconv"
	"sync"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	apireg "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"

	"portico/apiservice"
	"portico/apiservice/backend"
	"portico/resource"
	"portico/resource/loop"
)

// services are the Services and EndpointSlices of the core server, for the addresses of
// servers that APIServices and Backends name. Immutable; the last state remains while the
// core server is down.
type services struct {
	// restored: only resolved is known, from an earlier gateway.
	restored bool
	service  map[resource.Key]*corev1.Service
	slices   map[resource.Key][]*discoveryv1.EndpointSlice // by Service

	// resolved caches the results of resolve: every reconcile needs the same ones.
	mu       sync.Mutex
	resolved map[serviceKey]resolution
}

// serviceKey names a port of a Service.
type serviceKey struct {
	namespace, name string
	port            int32
}

func keyOf(ref *apireg.ServiceReference) serviceKey {
	return serviceKey{ref.Namespace, ref.Name, apiservice.Port(ref)}
}

// addresses are those of a Service.
type addresses struct {
	list []string // host:port of each, sorted: the first [backend.MaxEndpoints]
	all  int      // how many there are
}

// noted adds to a condition that not all addresses are used, if so: users that may write
// EndpointSlices decide how many there are.
func (a addresses) noted(c apiservice.Condition) apiservice.Condition {
	if a.all > len(a.list) {
		c.Message += fmt.Sprintf("; of the %d ready addresses of its Service the first %d are used", a.all, len(a.list))
	}
	return c
}

// resolution is the result of resolving a Service.
type resolution struct {
	addresses
	failed *apiservice.Condition
}

var errServicesUnknown = errors.New("the core server has not been reached yet")

// newServices decodes two snapshots, and leaves out invalid objects.
func newServices(svc, eps loop.Snapshot) *services {
	s := &services{service: map[resource.Key]*corev1.Service{}, slices: map[resource.Key][]*discoveryv1.EndpointSlice{}}
	for _, o := range svc.Items {
		v := &corev1.Service{}
		if json.Unmarshal(o.Data, v) == nil {
			s.service[o.Key()] = v
		}
	}
	for _, o := range eps.Items {
		v := &discoveryv1.EndpointSlice{}
		if json.Unmarshal(o.Data, v) == nil {
			key := resource.Key{Namespace: v.Namespace, Name: v.Labels[discoveryv1.LabelServiceName]}
			s.slices[key] = append(s.slices[key], v)
		}
	}
	return s
}

// resolve returns the addresses of a Service, or the condition that says why there are none
// (docs/wire.md 8.2, 8.3). There is no kube-proxy: a Service is always resolved to the ready
// addresses of its EndpointSlices, or to its external name. Safe for concurrent use.
func (s *services) resolve(ref *apireg.ServiceReference) (addresses, *apiservice.Condition) {
	if s == nil {
		failed := apiservice.ServiceAccessError(ref, errServicesUnknown)
		return addresses{}, &failed
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	key := keyOf(ref)
	found, ok := s.resolved[key]
	if !ok {
		if s.resolved == nil {
			s.resolved = map[serviceKey]resolution{}
		}
		found.addresses, found.failed = s.lookup(ref)
		s.resolved[key] = found
	}
	return found.addresses, found.failed
}

// lookup is resolve without the cache.
func (s *services) lookup(ref *apireg.ServiceReference) (addresses, *apiservice.Condition) {
	fail := func(c apiservice.Condition) (addresses, *apiservice.Condition) { return addresses{}, &c }
	key := resource.Key{Namespace: ref.Namespace, Name: ref.Name}
	svc := s.service[key]
	switch {
	case svc == nil && s.restored:
		return fail(apiservice.ServiceAccessError(ref, errServicesUnknown))
	case svc == nil:
		return fail(apiservice.ServiceNotFound(ref))
	}
	port := apiservice.Port(ref)
	if svc.Spec.Type == corev1.ServiceTypeExternalName {
		return addresses{list: []string{net.JoinHostPort(svc.Spec.ExternalName, strconv.Itoa(int(port)))}, all: 1}, nil
	}
	at := slices.IndexFunc(svc.Spec.Ports, func(p corev1.ServicePort) bool { return p.Port == port })
	if at < 0 {
		return fail(apiservice.ServicePortError(ref))
	}
	name := svc.Spec.Ports[at].Name
	eps := s.slices[key]
	if len(eps) == 0 {
		return fail(apiservice.EndpointsNotFound(ref))
	}
	var ready []string
	for _, slice := range eps {
		ready = append(ready, readyAddresses(slice, name)...)
	}
	if len(ready) == 0 {
		return fail(apiservice.MissingEndpoints(ref, name))
	}
	slices.Sort(ready)
	ready = slices.Compact(ready)
	return addresses{list: slices.Clone(ready[:min(len(ready), backend.MaxEndpoints)]), all: len(ready)}, nil
}

// readyAddresses returns host:port of the ready endpoints of a slice, for the port of that
// name. Endpoints without the condition are ready.
func readyAddresses(slice *discoveryv1.EndpointSlice, portName string) (out []string) {
	for _, p := range slice.Ports {
		if p.Port == nil || (p.Name == nil && portName != "") || (p.Name != nil && *p.Name != portName) {
			continue
		}
		for _, e := range slice.Endpoints {
			if e.Conditions.Ready != nil && !*e.Conditions.Ready {
				continue
			}
			for _, a := range e.Addresses {
				out = append(out, net.JoinHostPort(a, strconv.Itoa(int(*p.Port))))
			}
		}
	}
	return out
}

// serviceURL returns the scheme and host of the server of a Service in requests and messages,
// and the name that its certificate must have.
func serviceURL(ref *apireg.ServiceReference) (scheme, host, serverName string) {
	serverName = fmt.Sprintf("%s.%s.svc", ref.Name, ref.Namespace)
	return "https", net.JoinHostPort(serverName, strconv.Itoa(int(apiservice.Port(ref)))), serverName
}
