package routing

import (
	"maps"
	"strings"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	apireg "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"

	"portico/apiservice/backend"
	"portico/discovery"
	"portico/discovery/sources"
	"portico/gateway/lastgood"
	"portico/resource"
)

// Restore takes a document over as what is known, as far as nobody has said anything
// since. It returns false if the document is none of those that Kept returns.
func (s *Controller) Restore(name string, data []byte) (mine bool, err error) {
	if strings.HasPrefix(name, documentsOfBackends) || strings.HasPrefix(name, documentsOfAPIServices) {
		gvs, err := lastgood.UnpackVersions(data)
		if err == nil {
			s.restoreVersions(name, gvs)
		}
		return true, err
	}
	if target, ok := strings.CutPrefix(name, documentsOfOpenAPI); ok {
		index := &sources.OpenAPIIndex{}
		if err := lastgood.Unpack(data, index); err != nil {
			return true, err
		}
		s.restoreOpenAPI(target, index)
		return true, nil
	}
	if name != documentServices {
		return false, nil
	}
	var kept lastgood.Services
	if err := lastgood.Unpack(data, &kept); err != nil {
		return true, err
	}
	s.restoreServices(restoredServices(&kept))
	return true, nil
}

// restoredServices makes of a document what can be resolved.
func restoredServices(kept *lastgood.Services) *services {
	s := &services{known: true, restored: true, service: map[resource.Key]*corev1.Service{}, slices: map[resource.Key][]*discoveryv1.EndpointSlice{}}
	for i := range kept.Services {
		svc := &kept.Services[i]
		s.service[resource.Key{Namespace: svc.Namespace, Name: svc.Name}] = svc
	}
	for i := range kept.Slices {
		s.addSlice(&kept.Slices[i])
	}
	return s
}

// RestoreRegistrations makes list the APIServices, and backends the Backends,
// until they can be read. Nothing is written because of it.
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

// restoreServices makes v the Services until they can be followed.
func (s *Controller) restoreServices(v *services) {
	s.update(func(n *inputs) {
		if n.services == nil || n.services.restored {
			n.services = v
		}
	})
}

// restoreVersions makes gvs what the server of a target said last, for when it
// is made and until it speaks.
func (s *Controller) restoreVersions(target string, gvs []discovery.GroupVersion) {
	s.mu.Lock()
	if s.versions == nil {
		s.versions = map[string][]discovery.GroupVersion{}
	}
	s.versions[target] = gvs
	s.mu.Unlock()
	if live := s.live.Load(); live != nil && (*live)[target] != nil {
		(*live)[target].Source.Restore(gvs)
	}
	s.wake.Set()
}

// restoreOpenAPI is restoreVersions for the index of OpenAPI documents.
func (s *Controller) restoreOpenAPI(target string, index *sources.OpenAPIIndex) {
	s.mu.Lock()
	if s.indexes == nil {
		s.indexes = map[string]*sources.OpenAPIIndex{}
	}
	s.indexes[target] = index
	s.mu.Unlock()
	if live := s.live.Load(); live != nil && (*live)[target] != nil {
		(*live)[target].Source.RestoreOpenAPI(index)
	}
	s.wake.Set()
}

// restoreKept makes what the server said to an earlier gateway what is known of
// it, unless it spoke since. It reports whether that is so.
func (s *Controller) restoreKept(srv *Server) (restored bool) {
	s.mu.Lock()
	gvs, index := s.versions[srv.target], s.indexes[srv.target]
	s.mu.Unlock()
	if _, known := srv.Source.GroupVersions(); gvs != nil && !known {
		restored = srv.Source.Restore(gvs)
	}
	if index != nil && srv.Source.OpenAPI() == nil {
		restored = srv.Source.RestoreOpenAPI(index) || restored
	}
	return restored
}

// restoredVersions returns what the server of a target said to an earlier
// gateway; nil if that is not known.
func (s *Controller) restoredVersions(target string) []discovery.GroupVersion {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.versions[target]
}

// forgetKept lets go of what the server of a target said to an earlier gateway.
func (s *Controller) forgetKept(target string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.versions, target)
	delete(s.indexes, target)
}

// forgetVersions lets go of what servers said to an earlier gateway where that is
// out of date: a server spoke, or it was there and is not any more. One that
// comes later under the same name is another.
func (s *Controller) forgetVersions(before, live map[string]*Server) {
	s.mu.Lock()
	defer s.mu.Unlock()
	maps.DeleteFunc(s.versions, func(target string, _ []discovery.GroupVersion) bool {
		srv := live[target]
		return srv == nil && before[target] != nil || srv != nil && srv.Source.Heard()
	})
	maps.DeleteFunc(s.indexes, func(target string, _ *sources.OpenAPIIndex) bool {
		srv := live[target]
		return srv == nil && before[target] != nil || srv != nil && srv.Source.HeardOpenAPI() != nil
	})
}
