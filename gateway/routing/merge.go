package routing

import (
	"cmp"
	"errors"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"
	apireg "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"

	"portico/apiservice"
	"portico/apiservice/availability"
	"portico/discovery"
	"portico/discovery/sources"
	"portico/gateway/proxy"
)

// merge collects, APIService by APIService, what one reconcile publishes.
type merge struct {
	s             *Controller
	now           time.Time
	routes        map[schema.GroupVersion]*proxy.Route
	entries       []discovery.GroupVersion
	openAPI       *OpenAPI
	conditions    map[string]apiservice.Condition
	next          time.Duration        // until a grace period ends; 0 is never
	unresolved    map[string]time.Time // see Controller
	live          map[string]*Server   // as it is collected
	backendStates *BackendStates
	// unlisted are the checks of what servers do not list (unlisted.go).
	unlisted map[*Server][]availability.Target
	// told is what each server says, by group/version; nil is the gateway.
	served map[*Server]map[schema.GroupVersion]*discovery.GroupVersion
	// wanted is what users have registered with each server.
	wanted map[*Server][]schema.GroupVersion
	// owner is the server of each built-in group: the first of those that gateways
	// start with and that have a version of it. owned is the lowest version priority of
	// what it has in the group.
	owner map[string]*BackendState
	owned map[string]int32
	// beyond is what of each server is beyond the limits on its discovery.
	beyond map[*Server]map[schema.GroupVersion]bool
}

// newMerge starts with the gateway's own registration group, which is no
// APIService and always there.
func newMerge(s *Controller) *merge {
	size := 0 // about what it was before
	if before := s.table.Load(); before != nil {
		size = len(before.Routes) + 1
	}
	m := &merge{
		s: s, now: time.Now(), routes: make(map[schema.GroupVersion]*proxy.Route, size),
		openAPI: newOpenAPI(), conditions: make(map[string]apiservice.Condition, size),
		entries: make([]discovery.GroupVersion, 0, size), unresolved: map[string]time.Time{},
		unlisted: map[*Server][]availability.Target{}, served: map[*Server]map[schema.GroupVersion]*discovery.GroupVersion{},
		wanted: map[*Server][]schema.GroupVersion{}, beyond: map[*Server]map[schema.GroupVersion]bool{},
	}
	for _, gv := range s.own {
		if gv.Group != apiservice.Group {
			continue
		}
		m.routes[schema.GroupVersion{Group: gv.Group, Version: gv.Version}] = &proxy.Route{
			Name: apiservice.Name(gv.Group, gv.Version), Local: true, Condition: apiservice.Local(),
		}
		m.entries = append(m.entries, gv)
		m.openAPI.local(&gv)
	}
	return m
}

// add takes one APIService into account.
func (m *merge) add(a *apireg.APIService, p routeDecision) {
	if p.absent || p.noService {
		over := m.over(p.since, cmp.Or(m.s.grace, absentAfter))
		p.absent, p.noService = p.absent && over, p.noService && over
	}
	if p.condition.Available() && m.isBeyond(p.server, groupVersion(a)) {
		p.condition = p.condition.Truncated()
	}
	m.conditions[a.Name] = p.condition
	gv := groupVersion(a)
	if _, taken := m.routes[gv]; taken || p.nowhere {
		return
	}
	m.routes[gv] = p.route(a.Name)
	// What the gateway registers itself, it does because the server lists it; who is
	// asked for one group/version is asked for that one.
	if p.server != nil && p.server.tells && !apiservice.IsAutomanaged(a) {
		m.wanted[p.server] = append(m.wanted[p.server], gv)
	}
	entry := m.entry(a, p)
	m.entries = append(m.entries, entry)
	if p.local {
		m.openAPI.local(&entry)
	} else if p.server != nil {
		m.openAPI.remote(&entry, p.server)
	}
}

// entry returns the discovery of an APIService: what its server said last, in
// the place its priorities give it.
func (m *merge) entry(a *apireg.APIService, p routeDecision) discovery.GroupVersion {
	entry := discovery.GroupVersion{Group: a.Spec.Group, Version: a.Spec.Version, Unknown: true}
	switch {
	case p.local || p.server != nil:
		if gv := m.servedBy(p.server)[groupVersion(a)]; gv != nil {
			entry = *gv
		}
	case !p.nowhere:
		// It was not found since this gateway began, but may have been before.
		for _, gv := range m.s.savedServer(cmp.Or(p.kept, targetOfAPIService(a.Name))).versions {
			if gv.Group == a.Spec.Group && gv.Version == a.Spec.Version {
				entry = gv
			}
		}
	}
	entry.Absent = entry.Unknown && (p.absent || p.noService)
	entry.GroupPriority, entry.VersionPriority = a.Spec.GroupPriorityMinimum, a.Spec.VersionPriority
	if lowest, owned := m.owned[a.Spec.Group]; owned && !m.ofOwner(a) {
		entry.VersionPriority = min(entry.VersionPriority, lowest-1)
	}
	if !p.local && !entry.Unknown {
		// A server may itself have lost sight of what it says.
		entry.Stale = m.stale(a, p) || entry.Stale
	}
	return entry
}

// servedBy returns what a server said last; nil is the gateway itself.
func (m *merge) servedBy(srv *Server) map[schema.GroupVersion]*discovery.GroupVersion {
	if known, ok := m.served[srv]; ok {
		return known
	}
	from := m.s.own
	if srv != nil {
		from, _ = srv.Source.GroupVersions()
	}
	known := make(map[schema.GroupVersion]*discovery.GroupVersion, len(from))
	for i := range from {
		known[schema.GroupVersion{Group: from[i].Group, Version: from[i].Version}] = &from[i]
	}
	m.served[srv] = known
	return known
}

// own finds the servers of built-in groups. Versions of other servers come after
// theirs in discovery, whatever priority they have.
func (m *merge) own(list []*apireg.APIService) {
	m.owner, m.owned = map[string]*BackendState{}, map[string]int32{}
	has := map[string]map[*BackendState]bool{}
	for _, a := range list {
		st := m.backendStates.ByName[a.Annotations[apiservice.BackendAnnotation]]
		if st == nil || !st.Permanent || !discovery.Builtin(a.Spec.Group) || !apiservice.IsAutomanaged(a) {
			continue
		}
		if has[a.Spec.Group] == nil {
			has[a.Spec.Group] = map[*BackendState]bool{}
		}
		has[a.Spec.Group][st] = true
	}
	for group, some := range has {
		if at := slices.IndexFunc(m.backendStates.List, func(st *BackendState) bool { return some[st] }); at >= 0 {
			m.owner[group] = m.backendStates.List[at]
		}
	}
	for _, a := range list {
		if !m.ofOwner(a) {
			continue
		}
		if lowest, owned := m.owned[a.Spec.Group]; !owned || a.Spec.VersionPriority < lowest {
			m.owned[a.Spec.Group] = a.Spec.VersionPriority
		}
	}
}

// ofOwner reports whether an APIService was registered for the server of its built-in
// group.
func (m *merge) ofOwner(a *apireg.APIService) bool {
	st := m.owner[a.Spec.Group]
	return st != nil && apiservice.IsAutomanaged(a) && a.Annotations[apiservice.BackendAnnotation] == st.Name
}

// isBeyond reports whether discovery lacks some of a group/version because it is beyond
// the limits on what is taken of its server.
func (m *merge) isBeyond(srv *Server, gv schema.GroupVersion) bool {
	if srv == nil {
		return false
	}
	of, known := m.beyond[srv]
	if !known {
		if srv.Source.Dropped() > 0 {
			of = map[schema.GroupVersion]bool{}
			for _, u := range srv.Source.Unread() {
				if errors.Is(u.Err, sources.ErrBeyondLimits) {
					of[u.GroupVersion] = true
				}
			}
		}
		m.beyond[srv] = of
	}
	return of[gv]
}

// failing notes that the service of an APIService, or of a Backend's target, cannot be
// found, and returns since when that is so.
func (m *merge) failing(name string) time.Time {
	since, ok := m.s.unresolved[name]
	if !ok {
		since = m.now
	}
	m.unresolved[name] = since
	return since
}

// stale reports whether the server of an APIService has been unavailable for longer
// than the grace period, and notes when it will have been. Without a grace period what
// is known of a server stays current: a client that finds no kinds says that there are
// none, where a request would have been answered 503.
func (m *merge) stale(a *apireg.APIService, p routeDecision) bool {
	if p.condition.Available() || m.s.grace == 0 {
		return false
	}
	since := p.since
	if !p.verdict {
		// Before this gateway began, or looked, others may have seen it go.
		for _, c := range a.Status.Conditions {
			if c.Type == apireg.Available && c.Status != apireg.ConditionTrue {
				since = c.LastTransitionTime.Time
			}
		}
	}
	if since.IsZero() {
		since = m.now
	}
	return m.over(since, m.s.grace)
}

// over reports whether a period that began then is over, and notes when it will be.
// The zero time is none.
func (m *merge) over(since time.Time, period time.Duration) bool {
	if since.IsZero() {
		return false
	}
	left := period - m.now.Sub(since)
	if left <= 0 {
		return true
	}
	if m.next == 0 || left < m.next {
		m.next = left
	}
	return false
}
