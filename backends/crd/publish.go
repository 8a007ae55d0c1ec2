package crd

import (
	"maps"
	"slices"

	"portico/discovery"
	"portico/resource/rest"
)

// publish makes discovery and OpenAPI of what is served. Discovery comes last:
// its stream tells the gateway of changes in both.
func (s *Server) publish(now *served) {
	kinds := []*rest.Kind{s.definitions.Kind}
	gvs := discovery.FromKinds(kinds)
	for _, group := range slices.Sorted(maps.Keys(now.groups)) {
		for _, d := range now.groups[group] {
			kinds = append(kinds, d.kinds()...)
		}
		gvs = append(gvs, now.documents[group]...)
	}
	s.openAPI.Update(kinds)
	documents, err := discovery.BuildAfter(s.documents.Load(), gvs, "")
	if err != nil {
		s.log.Error("building discovery failed", "err", err)
		return
	}
	s.documents.StoreWith(documents, s.openAPI.State())
}
