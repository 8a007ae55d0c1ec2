package routing

import (
	"cmp"
	"errors"
	"maps"
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

// absentAfter is how long a group/version without a server or a Service is treated as that of a
// server that is down: it may be deleted to be created again.
const absentAfter = 60 * time.Second

// reconcile is one computation, from the inputs to what is published.
type reconcile struct {
	s   *Controller
	n   *inputs
	now time.Time

	// live are the servers that are in use, by target; resolving adds to them.
	live          map[string]*Server
	announced     map[*Server]discovery.State // when it began
	backendStates *BackendStates
	views         map[*Server]*serverView // nil is the gateway itself
	builtin       map[string]builtinGroup
	unresolved    map[string]time.Time // see Controller
	next          time.Duration        // until a grace period ends; 0: none

	routes     map[schema.GroupVersion]*proxy.Route
	entries    []discovery.GroupVersion
	openAPI    *OpenAPI
	conditions map[string]apiservice.Condition
}

// serverView is what a reconcile knows of one server.
type serverView struct {
	versions map[schema.GroupVersion]*discovery.GroupVersion
	// truncated are the group/versions of which discovery lacks a part.
	truncated map[schema.GroupVersion]bool
	// wanted are the group/versions that users registered for the server, and unlisted the
	// checks of those that it does not list.
	wanted   []schema.GroupVersion
	unlisted []availability.Target
}

// builtinGroup is a group of Kubernetes and the static Backend that owns it: the first one
// that has a version of it. Versions of other servers come after its versions in discovery.
type builtinGroup struct {
	owner *BackendState
	// lowest is the lowest version priority of the owner's versions.
	lowest int32
}

// Reconcile computes everything from the inputs and publishes it. It returns after what time
// a result changes by itself, because a grace period ends; 0: never. Run calls it.
func (s *Controller) Reconcile() time.Duration {
	n := s.snapshot()
	r := newReconcile(s, &n)
	r.backendStates = r.resolveBackends()
	if !n.known() {
		s.setLive(r)
		return 0
	}
	for _, st := range r.backendStates.List {
		if st.failed != nil {
			st.since = r.failing(targetOfBackend(st.Name))
		}
		st.Stale = !st.Condition.Available() && s.grace > 0 && r.over(st.since, s.grace)
	}
	r.findBuiltinGroups()
	for _, a := range apiservice.Ordered(n.apiservices) {
		r.add(a, r.resolve(a))
	}
	for _, srv := range r.live {
		srv.Source.Want(r.view(srv).wanted)
	}
	s.setLive(r)
	s.unresolved = r.unresolved
	s.publish(r)
	r.logOutages()
	return r.next
}

// newReconcile starts with the gateway's own registration group, which has no APIService.
func newReconcile(s *Controller, n *inputs) *reconcile {
	r := &reconcile{
		s: s, n: n, now: time.Now(), live: map[string]*Server{}, announced: map[*Server]discovery.State{}, backendStates: &BackendStates{}, views: map[*Server]*serverView{}, unresolved: map[string]time.Time{},
		routes: make(map[schema.GroupVersion]*proxy.Route, len(n.apiservices)+1), entries: make([]discovery.GroupVersion, 0, len(n.apiservices)+1),
		openAPI: newOpenAPI(), conditions: make(map[string]apiservice.Condition, len(n.apiservices)),
	}
	for _, srv := range s.servers {
		r.announced[srv], srv.settling = srv.announcedState(), srv.followed.Load()
	}
	for _, gv := range s.own {
		if gv.Group != apiservice.Group {
			continue
		}
		r.routes[schema.GroupVersion{Group: gv.Group, Version: gv.Version}] = &proxy.Route{
			Name: apiservice.Name(gv.Group, gv.Version), Local: true, Condition: apiservice.Local(),
		}
		r.entries = append(r.entries, gv)
		r.openAPI.local(&gv)
	}
	return r
}

// add adds the decision on one APIService to the results.
func (r *reconcile) add(a *apireg.APIService, d routeDecision) {
	if d.absent || d.noService {
		over := r.over(d.since, cmp.Or(r.s.grace, absentAfter))
		d.absent, d.noService = d.absent && over, d.noService && over
	}
	gv := groupVersion(a)
	if d.condition.Available() && d.server != nil && r.view(d.server).truncated[gv] {
		d.condition = d.condition.Truncated()
	}
	r.conditions[a.Name] = d.condition
	if _, taken := r.routes[gv]; taken || d.nowhere {
		return
	}
	r.routes[gv] = d.route(a.Name)
	// An automanaged APIService exists because the server lists the group/version.
	if d.server != nil && d.server.whole && !apiservice.IsAutomanaged(a) {
		view := r.view(d.server)
		view.wanted = append(view.wanted, gv)
	}
	entry := r.entry(a, d)
	if entry.Unknown && r.removed(a, d) {
		return
	}
	r.entries = append(r.entries, entry)
	if d.local {
		r.openAPI.local(&entry)
	} else if d.server != nil {
		r.openAPI.remote(&entry, d.server)
	}
}

// entry returns the discovery of an APIService: the last answer of its server, with the
// priorities of the APIService.
func (r *reconcile) entry(a *apireg.APIService, d routeDecision) discovery.GroupVersion {
	entry := discovery.GroupVersion{Group: a.Spec.Group, Version: a.Spec.Version, Unknown: true}
	switch {
	case d.local || d.server != nil:
		if gv := r.view(d.server).versions[groupVersion(a)]; gv != nil {
			entry = *gv
		}
	case !d.nowhere: // no server was made since the gateway started, but maybe before
		for _, gv := range r.s.savedServer(cmp.Or(d.savedAs, targetOfAPIService(a.Name))).versions {
			if gv.Group == a.Spec.Group && gv.Version == a.Spec.Version {
				entry = gv
			}
		}
	}
	entry.Absent = entry.Unknown && (d.absent || d.noService)
	entry.GroupPriority, entry.VersionPriority = a.Spec.GroupPriorityMinimum, a.Spec.VersionPriority
	if of, builtin := r.builtin[a.Spec.Group]; builtin && !of.owns(a) {
		entry.VersionPriority = min(entry.VersionPriority, of.lowest-1)
	}
	if !d.local && !entry.Unknown {
		entry.Stale = entry.Stale || r.stale(a, d)
	}
	return entry
}

// removed reports whether the server no longer has the group/version of an automanaged APIService,
// which is deleted soon: discovery answers 404 by then, as the server does.
func (r *reconcile) removed(a *apireg.APIService, d routeDecision) bool {
	if d.server == nil || !apiservice.IsAutomanaged(a) || !d.condition.Available() {
		return false
	}
	_, whole := d.server.Source.Served()
	return whole
}

// view returns what is known of a server; nil is the gateway itself.
func (r *reconcile) view(srv *Server) *serverView {
	if v, ok := r.views[srv]; ok {
		return v
	}
	from := r.s.own
	v := &serverView{}
	if srv != nil {
		from, _ = srv.Source.GroupVersions()
		if srv.Source.Dropped() > 0 {
			v.truncated = map[schema.GroupVersion]bool{}
			for _, u := range srv.Source.Unread() {
				v.truncated[u.GroupVersion] = v.truncated[u.GroupVersion] || errors.Is(u.Err, sources.ErrBeyondLimits)
			}
		}
	}
	v.versions = make(map[schema.GroupVersion]*discovery.GroupVersion, len(from))
	for i := range from {
		v.versions[schema.GroupVersion{Group: from[i].Group, Version: from[i].Version}] = &from[i]
	}
	r.views[srv] = v
	return v
}

// findBuiltinGroups finds the owners of built-in groups.
func (r *reconcile) findBuiltinGroups() {
	r.builtin = map[string]builtinGroup{}
	order := make(map[*BackendState]int, len(r.backendStates.List))
	for i, st := range r.backendStates.List {
		order[st] = i
	}
	for _, a := range r.n.apiservices {
		st := r.backendStates.ByName[a.Annotations[apiservice.BackendAnnotation]]
		if st == nil || !st.Permanent || !discovery.Builtin(a.Spec.Group) || !apiservice.IsAutomanaged(a) {
			continue
		}
		of, found := r.builtin[a.Spec.Group]
		switch {
		case !found || order[st] < order[of.owner]:
			r.builtin[a.Spec.Group] = builtinGroup{st, a.Spec.VersionPriority}
		case st == of.owner:
			r.builtin[a.Spec.Group] = builtinGroup{st, min(of.lowest, a.Spec.VersionPriority)}
		}
	}
}

// owns reports whether an APIService of the group was registered for the owner.
func (g builtinGroup) owns(a *apireg.APIService) bool {
	return apiservice.IsAutomanaged(a) && a.Annotations[apiservice.BackendAnnotation] == g.owner.Name
}

// failing records that an APIService or a target cannot be resolved, and returns since when.
func (r *reconcile) failing(name string) time.Time {
	since, ok := r.s.unresolved[name]
	if !ok {
		since = r.now
	}
	r.unresolved[name] = since
	return since
}

// stale reports whether the server of an APIService has been unavailable for longer than the
// grace period. Without one, its discovery remains current: a client that finds no kinds
// reports that there are none, where a request would have been answered 503.
func (r *reconcile) stale(a *apireg.APIService, d routeDecision) bool {
	if d.condition.Available() || r.s.grace == 0 {
		return false
	}
	since := d.since
	if !d.wasGood {
		// It may have become unavailable before this gateway started.
		for _, c := range a.Status.Conditions {
			if c.Type == apireg.Available && c.Status != apireg.ConditionTrue {
				since = c.LastTransitionTime.Time
			}
		}
	}
	if since.IsZero() {
		since = r.now
	}
	return r.over(since, r.s.grace)
}

// over reports whether a period that began at since is over, and records when it ends. The
// zero time is no period.
func (r *reconcile) over(since time.Time, period time.Duration) bool {
	if since.IsZero() {
		return false
	}
	left := period - r.now.Sub(since)
	if left <= 0 {
		return true
	}
	if r.next == 0 || left < r.next {
		r.next = left
	}
	return false
}

// setLive makes the servers of a reconcile the current ones, checks and follows them, and
// closes all others.
func (s *Controller) setLive(r *reconcile) {
	s.checker.Set(s.targets(r))
	for target, old := range s.servers {
		if r.live[target] != old {
			s.closeServer(old)
		}
	}
	s.forgetServers(r.live)
	live := r.live
	s.servers = live
	s.live.Store(&live)
	for _, srv := range live {
		if srv.unfollow == nil && s.lifetime != nil {
			s.follow(s.lifetime, srv)
		}
	}
}

// targets returns the checks of all servers, and of group/versions that they do not list.
func (s *Controller) targets(r *reconcile) []availability.Target {
	out := make([]availability.Target, 0, len(r.live))
	names := make([]checkName, 0, len(r.live))
	for _, target := range slices.Sorted(maps.Keys(r.live)) {
		srv := r.live[target]
		for _, check := range append(srv.checks(s), r.view(srv).unlisted...) {
			out = append(out, check)
			names = append(names, srv.checkNameOf(&check))
		}
	}
	s.checks.count(out, names)
	return out
}

// publish publishes the results. Documents that are equal to the current ones are not
// replaced.
func (s *Controller) publish(r *reconcile) {
	s.traffic.Watch(r.routes, s.upstreams())
	s.table.Store(&proxy.Table{Routes: r.routes})
	// Stored before the documents: followers of these read the index when it changes.
	newIndex := r.openAPI.complete(s.openAPI.Load())
	s.openAPI.Store(r.openAPI)
	old := s.documents.Load()
	docs, err := discovery.BuildAfter(old, r.entries, s.address)
	switch {
	case err != nil:
		s.log.Error("building discovery failed", "err", err)
	case old == nil || !old.Equal(docs):
		s.documents.StoreWith(docs, r.openAPI.state)
	case newIndex:
		s.documents.StoreWith(old, r.openAPI.state)
	}
	conditions := r.conditions // &r.conditions would keep r
	s.conditions.Store(&conditions)
	s.backendStates.Store(r.backendStates)
	r.acknowledge()
	s.changed()
}
