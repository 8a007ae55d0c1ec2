package routing

import (
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"slices"
	"strconv"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	apireg "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"

	"portico/apiservice"
	"portico/resource"
	"portico/resource/loop"
)

// services is what the gateway follows of Services and EndpointSlices, to find
// the servers that APIServices name. Immutable; the last good state is kept
// while the core server is away.
type services struct {
	known bool // both were followed at least once
	// restored: it is what an earlier gateway knew of those that were named then.
	restored bool
	service  map[resource.Key]*corev1.Service
	slices   map[resource.Key][]*discoveryv1.EndpointSlice // by service
}

var errServicesUnknown = errors.New("the core server has not been reached yet")

// newServices decodes the two snapshots. An object that does not decode is left
// out: it cannot name a server.
func newServices(svc, eps loop.Snapshot) *services {
	s := &services{known: true, service: map[resource.Key]*corev1.Service{}, slices: map[resource.Key][]*discoveryv1.EndpointSlice{}}
	for _, o := range svc.Items {
		v := &corev1.Service{}
		if json.Unmarshal(o.Data, v) == nil {
			s.service[o.Key()] = v
		}
	}
	for _, o := range eps.Items {
		v := &discoveryv1.EndpointSlice{}
		if json.Unmarshal(o.Data, v) == nil {
			s.addSlice(v)
		}
	}
	return s
}

func (s *services) addSlice(v *discoveryv1.EndpointSlice) {
	key := resource.Key{Namespace: v.Namespace, Name: v.Labels[discoveryv1.LabelServiceName]}
	s.slices[key] = append(s.slices[key], v)
}

// resolve returns the addresses (host:port) of the server that an APIService
// names, or the condition that says why there are none (contract 8.2, 8.3).
// There is no kube-proxy here: a Service with a selector or hand-written
// endpoints is always resolved to the ready addresses of its EndpointSlices.
func (s *services) resolve(ref *apireg.ServiceReference) (addresses []string, failed *apiservice.Condition) {
	fail := func(c apiservice.Condition) ([]string, *apiservice.Condition) { return nil, &c }
	if s == nil || !s.known {
		return fail(apiservice.ServiceAccessError(ref, errServicesUnknown))
	}
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
		return []string{net.JoinHostPort(svc.Spec.ExternalName, strconv.Itoa(int(port)))}, nil
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
	for _, slice := range eps {
		addresses = append(addresses, readyAddresses(slice, name)...)
	}
	if len(addresses) == 0 {
		return fail(apiservice.MissingEndpoints(ref, name))
	}
	slices.Sort(addresses)
	return slices.Compact(addresses), nil
}

// readyAddresses returns host:port of the slice's ready endpoints for the port
// of that name. Readiness that is not said counts as ready.
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

// serviceURL is how a registered server is named in requests and messages; its
// host is also the name that its certificate must have.
func serviceURL(ref *apireg.ServiceReference) (scheme, host, serverName string) {
	serverName = fmt.Sprintf("%s.%s.svc", ref.Name, ref.Namespace)
	return "https", net.JoinHostPort(serverName, strconv.Itoa(int(apiservice.Port(ref)))), serverName
}
