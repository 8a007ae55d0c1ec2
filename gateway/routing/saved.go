package routing

import (
	"cmp"
	"maps"
	"strings"

	apireg "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"

	"portico/apiservice"
	"portico/apiservice/backend"
	"portico/discovery"
	"portico/discovery/sources"
	"portico/gateway/lastgood"
)

// Names of last-good documents: those of servers are their targets.
const (
	backendPrefix    = "backend/"
	apiservicePrefix = "apiservice/"
	savedServices    = "core/services"
)

// savedServer is what an earlier gateway read from a server. It is used until this gateway
// reads it from the server, or the server is gone.
type savedServer struct {
	versions []discovery.GroupVersion
	openAPI  *sources.OpenAPIIndex
}

// serverDocument is the document of a server.
type serverDocument struct {
	Versions []lastgood.Version    `json:"versions"`
	OpenAPI  *sources.OpenAPIIndex `json:"openAPI,omitempty"`
}

// savedAddresses are those of a Service that an APIService or a Backend names. Services
// that could not be resolved are not saved.
type savedAddresses struct {
	Namespace string   `json:"namespace"`
	Name      string   `json:"name"`
	Port      int32    `json:"port"`
	Addresses []string `json:"addresses"`
	Ready     int      `json:"ready"`
}

// Saved returns the last-good documents of servers, and of the Services that their
// addresses come from.
func (s *Controller) Saved() (out []lastgood.Document) {
	for target, srv := range s.liveServers() {
		if !srv.Source.Fetched() {
			continue
		}
		type state struct {
			versions sliceIdentity[discovery.GroupVersion]
			openAPI  *sources.OpenAPIIndex
		}
		gvs, _ := srv.Source.GroupVersions()
		index := cmp.Or(srv.Source.FetchedOpenAPI(), s.savedServer(target).openAPI)
		out = append(out, lastgood.Document{Name: target, State: state{identity(gvs), index}, Value: func() any {
			return serverDocument{lastgood.Versions(gvs), index}
		}})
	}
	n := s.snapshot()
	if n.services == nil || n.services.restored || !n.haveServices || !n.haveBackends {
		return out
	}
	type state struct {
		services *services
		list     sliceIdentity[*apireg.APIService]
		backends sliceIdentity[*backend.Backend]
	}
	return append(out, lastgood.Document{Name: savedServices, State: state{n.services, identity(n.apiservices), identity(n.backends)}, Value: func() any {
		return n.savedAddresses()
	}})
}

// sliceIdentity identifies a slice that is replaced, never changed.
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

// savedAddresses resolves the Services that APIServices and Backends name.
func (n *inputs) savedAddresses() []savedAddresses {
	out := []savedAddresses{}
	seen := map[serviceKey]bool{}
	add := func(ref *apireg.ServiceReference) {
		if ref == nil || seen[keyOf(ref)] {
			return
		}
		seen[keyOf(ref)] = true
		if found, failed := n.services.resolve(ref); failed == nil {
			out = append(out, savedAddresses{ref.Namespace, ref.Name, apiservice.Port(ref), found.list, found.all})
		}
	}
	for _, a := range n.apiservices {
		add(a.Spec.Service)
	}
	for _, b := range n.backends {
		add(serviceReference(&b.Spec))
	}
	return out
}

// Gone returns a function that reports whether the APIService or the Backend of a document
// was deleted; false before both are known.
func (s *Controller) Gone() func(document string) bool {
	n := s.snapshot()
	if !n.haveServices || !n.haveBackends {
		return func(string) bool { return false }
	}
	exists := make(map[string]bool, len(n.apiservices)+len(n.backends))
	for _, a := range n.apiservices {
		exists[targetOfAPIService(a.Name)] = a.Spec.Service != nil
	}
	for _, d := range effectiveBackends(s.static, n.backends) {
		exists[targetOfBackend(d.Name)] = true
	}
	return func(document string) bool { return isTarget(document) && !exists[document] }
}

// isTarget reports whether the document is that of a server.
func isTarget(document string) bool {
	return strings.HasPrefix(document, backendPrefix) || strings.HasPrefix(document, apiservicePrefix)
}

// Restore restores a document until there is newer state. It returns false if it is none of
// Saved.
func (s *Controller) Restore(name string, data []byte) (restored bool, err error) {
	switch {
	case isTarget(name):
		var doc serverDocument
		if err := lastgood.Unpack(data, &doc); err != nil {
			return true, err
		}
		gvs, err := lastgood.GroupVersions(doc.Versions)
		if err != nil {
			return true, err
		}
		s.mu.Lock()
		if s.saved == nil {
			s.saved = map[string]savedServer{}
		}
		s.saved[name] = savedServer{gvs, doc.OpenAPI}
		s.mu.Unlock()
		s.wake.Set()
	case name == savedServices:
		var list []savedAddresses
		if err := lastgood.Unpack(data, &list); err != nil {
			return true, err
		}
		known := &services{restored: true, resolved: map[serviceKey]resolution{}}
		for _, a := range list {
			known.resolved[serviceKey{a.Namespace, a.Name, a.Port}] = resolution{addresses: addresses{a.Addresses, a.Ready}}
		}
		s.update(func(n *inputs) {
			if n.services == nil || n.services.restored {
				n.services = known
			}
		})
	default:
		return false, nil
	}
	return true, nil
}

// RestoreRegistrations sets the APIServices and Backends until they are read from etcd. It
// causes no writes.
func (s *Controller) RestoreRegistrations(list []*apireg.APIService, backends []*backend.Backend) {
	s.update(func(n *inputs) {
		if !n.haveServices {
			n.apiservices = list
		}
		if !n.haveBackends {
			n.backends = backends
		}
	})
}

// savedServer returns what an earlier gateway read from the server of a target.
func (s *Controller) savedServer(target string) savedServer {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.saved[target]
}

// restoreServer gives a server what an earlier gateway read from it, unless this gateway
// read it.
func (s *Controller) restoreServer(srv *Server) {
	saved := s.savedServer(srv.target)
	if _, known := srv.Source.GroupVersions(); saved.versions != nil && !known {
		srv.Source.Restore(saved.versions)
	}
	if saved.openAPI != nil && srv.Source.OpenAPI() == nil {
		srv.Source.RestoreOpenAPI(saved.openAPI)
	}
}

// forgetServer removes what an earlier gateway read from the server of a target.
func (s *Controller) forgetServer(target string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.saved, target)
}

// forgetServers removes what is outdated: that of servers that were read since, and of those
// that are no longer live. A later server of the same name is another one.
func (s *Controller) forgetServers(live map[string]*Server) {
	s.mu.Lock()
	defer s.mu.Unlock()
	maps.DeleteFunc(s.saved, func(target string, _ savedServer) bool {
		srv := live[target]
		if srv == nil {
			return s.servers[target] != nil
		}
		return srv.Source.Fetched() && srv.Source.FetchedOpenAPI() != nil
	})
}
