package routing

import (
	"cmp"
	"errors"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"
	apireg "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"

	"portico/apiservice"
	"portico/apiservice/availability"
	"portico/discovery"
	"portico/discovery/aggregate"
	"portico/gateway/proxy"
)

// merge collects, APIService by APIService, what one reconcile publishes.
type merge struct {
	s          *Sync
	now        time.Time
	routes     map[schema.GroupVersion]*proxy.Route
	entries    []discovery.GroupVersion
	openAPI    *OpenAPI
	conditions map[string]apiservice.Condition
	next       time.Duration        // until a grace period ends; 0 is never
	unresolved map[string]time.Time // see Sync
	live       map[string]*Server   // as it is collected
	standings  *Standings
	// unlisted are the checks of what servers do not list (unlisted.go).
	unlisted map[*Server][]availability.Target
	// told is what each server says, by group/version; nil is the gateway.
	told map[*Server]map[schema.GroupVersion]*discovery.GroupVersion
	// wanted is what users have registered with each server.
	wanted map[*Server][]schema.GroupVersion
	// owned is the lowest version priority, of each built-in group, of what the servers
	// have in it that gateways start with.
	owned map[string]int32
	// beyond is what of each server is beyond the limits on its discovery.
	beyond map[*Server]map[schema.GroupVersion]bool
}

// newMerge starts with the gateway's own registration group, which is no
// APIService and always there.
func newMerge(s *Sync) *merge {
	size := 0 // about what it was before
	if before := s.table.Load(); before != nil {
		size = len(before.Routes) + 1
	}
	m := &merge{
		s: s, now: time.Now(), routes: make(map[schema.GroupVersion]*proxy.Route, size),
		openAPI: newOpenAPI(), conditions: make(map[string]apiservice.Condition, size),
		entries: make([]discovery.GroupVersion, 0, size), unresolved: map[string]time.Time{},
		unlisted: map[*Server][]availability.Target{}, told: map[*Server]map[schema.GroupVersion]*discovery.GroupVersion{},
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
func (m *merge) add(a *apireg.APIService, p placement) {
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
		m.openAPI.remote(&entry, p.server, p.condition.Available())
	}
}

// entry returns the discovery of an APIService: what its server said last, in
// the place its priorities give it.
func (m *merge) entry(a *apireg.APIService, p placement) discovery.GroupVersion {
	entry := discovery.GroupVersion{Group: a.Spec.Group, Version: a.Spec.Version, Unknown: true}
	switch {
	case p.local || p.server != nil:
		if gv := m.toldBy(p.server)[groupVersion(a)]; gv != nil {
			entry = *gv
		}
	case !p.nowhere:
		// It was not found since this gateway began, but may have been before.
		for _, gv := range m.s.restoredVersions(cmp.Or(p.kept, targetOfAPIService(a.Name))) {
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

// toldBy returns what a server said last; nil is the gateway itself.
func (m *merge) toldBy(srv *Server) map[schema.GroupVersion]*discovery.GroupVersion {
	if known, ok := m.told[srv]; ok {
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
	m.told[srv] = known
	return known
}

// own notes which versions of built-in groups are of the servers that gateways start
// with: the others come after them, whatever priority they ask for.
func (m *merge) own(list []*apireg.APIService) {
	m.owned = map[string]int32{}
	for _, a := range list {
		if !discovery.Builtin(a.Spec.Group) || !m.ofOwner(a) {
			continue
		}
		if lowest, owned := m.owned[a.Spec.Group]; !owned || a.Spec.VersionPriority < lowest {
			m.owned[a.Spec.Group] = a.Spec.VersionPriority
		}
	}
}

// ofOwner reports whether an APIService was registered for a server that gateways start
// with.
func (m *merge) ofOwner(a *apireg.APIService) bool {
	st := m.standings.ByName[a.Annotations[apiservice.BackendAnnotation]]
	return apiservice.IsAutomanaged(a) && st != nil && st.Permanent
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
				if errors.Is(u.Err, aggregate.ErrBeyondLimits) {
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
func (m *merge) stale(a *apireg.APIService, p placement) bool {
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
