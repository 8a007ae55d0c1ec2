package routing

import (
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	apireg "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"

	"portico/apiservice/backend"
	"portico/gateway/lastgood"
	"portico/resource"
)

// The documents of what is kept, by name.
const (
	documentsOfBackends    = "backend/"
	documentsOfAPIServices = "apiservice/"
	// documentsOfOpenAPI opens the names of indexes of OpenAPI documents; the
	// server's own follows.
	documentsOfOpenAPI = "openapi/"
	documentServices   = "core/services"
)

// Kept returns the documents of all that outlives this gateway: what servers said,
// and the Services that they are found by.
func (s *Controller) Kept() (out []lastgood.Document) {
	if live := s.live.Load(); live != nil {
		for target, srv := range *live {
			if gvs, _ := srv.Source.GroupVersions(); srv.Source.Heard() {
				out = append(out, lastgood.Document{Name: target, State: identity(gvs), Value: func() any { return lastgood.Versions(gvs) }})
			}
			if index := srv.Source.HeardOpenAPI(); index != nil {
				out = append(out, lastgood.Document{Name: documentsOfOpenAPI + target, State: index, Value: func() any { return index }})
			}
		}
	}
	n := s.snapshot()
	if known := n.services; known != nil && known.known && !known.restored && n.haveServices && n.haveBackends {
		type state struct {
			known    *services
			list     sliceIdentity[*apireg.APIService]
			backends sliceIdentity[*backend.Backend]
		}
		out = append(out, lastgood.Document{Name: documentServices, State: state{known, identity(n.apiservices), identity(n.backends)}, Value: func() any {
			return known.named(&n)
		}})
	}
	return out
}

// sliceIdentity tells two slices of one maker apart, who makes another when
// something changes.
type sliceIdentity[T any] struct {
	first *T
	n     int
}

func identity[T any](list []T) sliceIdentity[T] {
	if len(list) == 0 {
		return sliceIdentity[T]{}
	}
	return sliceIdentity[T]{&list[0], len(list)}
}

// Gone returns a function that tells documents of APIServices and Backends
// which do not exist any more. While these are not known, none are.
func (s *Controller) Gone() func(document string) bool {
	n := s.snapshot()
	if !n.haveServices || !n.haveBackends {
		return func(string) bool { return false }
	}
	there := make(map[string]bool, len(n.apiservices)+len(n.backends))
	for _, a := range n.apiservices {
		there[targetOfAPIService(a.Name)] = a.Spec.Service != nil
	}
	for _, d := range effectiveBackends(s.configured, n.backends) {
		there[targetOfBackend(d.Name)] = true
	}
	return func(document string) bool {
		document = strings.TrimPrefix(document, documentsOfOpenAPI)
		ofServer := strings.HasPrefix(document, documentsOfAPIServices) || strings.HasPrefix(document, documentsOfBackends)
		return ofServer && !there[document]
	}
}

// maxKeptAddresses bounds the addresses of one Service that are kept: a document has
// to fit into etcd, and no more than [backend.MaxEndpoints] of them are used.
const maxKeptAddresses = 4 * backend.MaxEndpoints

// keptSlices returns what there is to keep of the EndpointSlices of one Service:
// the endpoints that are ready, up to maxKeptAddresses.
func keptSlices(all []*discoveryv1.EndpointSlice) (out []discoveryv1.EndpointSlice) {
	left := maxKeptAddresses
	for _, slice := range all {
		kept := lastgood.SliceOf(slice)
		kept.Endpoints = slices.DeleteFunc(kept.Endpoints, func(e discoveryv1.Endpoint) bool {
			if e.Conditions.Ready != nil && !*e.Conditions.Ready || len(e.Addresses) > left {
				return true
			}
			left -= len(e.Addresses)
			return false
		})
		if len(kept.Endpoints) > 0 || left > 0 {
			out = append(out, kept)
		}
	}
	return out
}

// named returns what there is to keep: the Services that APIServices and
// Backends name.
func (s *services) named(n *inputs) lastgood.Services {
	out := lastgood.Services{Services: []corev1.Service{}, Slices: []discoveryv1.EndpointSlice{}}
	done := map[resource.Key]bool{}
	add := func(key resource.Key) {
		svc := s.service[key]
		if svc == nil || done[key] {
			return
		}
		done[key] = true
		out.Services = append(out.Services, lastgood.ServiceOf(svc))
		out.Slices = append(out.Slices, keptSlices(s.slices[key])...)
	}
	for _, a := range n.apiservices {
		if ref := a.Spec.Service; ref != nil {
			add(resource.Key{Namespace: ref.Namespace, Name: ref.Name})
		}
	}
	for _, b := range n.backends {
		if ref := b.Spec.Service; ref != nil {
			add(resource.Key{Namespace: ref.Namespace, Name: ref.Name})
		}
	}
	return out
}
