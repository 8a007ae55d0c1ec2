package crd

import (
	"portico/discovery"
	"portico/resource/rest"
)

// publish makes discovery and OpenAPI of what is served. Discovery comes last:
// its stream tells the gateway of changes in both.
func (s *Server) publish(now *served) {
	kinds := []*rest.Kind{s.definitions.Kind}
	gvs := discovery.FromKinds(kinds)
	all := now.totals()
	group := ""
	for i := range all.documents {
		if all.documents[i].Group == group {
			continue // its versions are in one place
		}
		group = all.documents[i].Group
		for _, d := range now.groups[group] {
			kinds = append(kinds, d.kinds()...)
		}
	}
	gvs = append(gvs, all.documents...)
	if before := s.omitted.Swap(int64(all.omitted)); before != int64(all.omitted) {
		s.log.Warn("discovery leaves out group/versions of definitions, which are beyond its bounds", "left", all.omitted, "most", maxGroupVersions, "mostBytes", maxDiscovery)
	}
	s.openAPI.Update(kinds)
	documents, err := discovery.BuildAfter(s.documents.Load(), gvs, "")
	if err != nil {
		s.log.Error("building discovery failed", "err", err)
		return
	}
	s.documents.StoreWith(documents, s.openAPI.State())
}
