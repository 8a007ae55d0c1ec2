package routing

import (
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"slices"
	"strconv"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	apireg "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"

	"portico/apiservice"
	"portico/apiservice/backend"
	"portico/gateway/proxy"
	"portico/gateway/upstream"
	"portico/resource"
	"portico/resource/loop"
)

// routeDecision is where requests for one APIService go, and why.
type routeDecision struct {
	local     bool    // to the gateway itself
	nowhere   bool    // no route: 404
	server    *Server // nil: there is none
	static    bool    // server is one that the gateway starts with
	condition apiservice.Condition
	since     time.Time // when the condition began; zero: unknown
	wasGood   bool      // the server was healthy since the gateway started
	absent    bool      // no server has it: its Backend does not exist, or the server answers 404
	noService bool      // its Service does not exist
	slow      bool      // requests are sent although the condition is False: the server is only slow
	// savedAs is the target that the discovery of a missing server is saved as; "": that of
	// the APIService.
	savedAs string
}

// route makes the table entry.
func (d routeDecision) route(name string) *proxy.Route {
	r := &proxy.Route{Name: name, Local: d.local, Condition: d.condition, Absent: d.absent, Slow: d.slow}
	if d.server != nil {
		r.Upstream, r.REST, r.Static = d.server.Up, d.server.restRoute(), d.static
	}
	return r
}

// resolve decides where requests for an APIService go.
func (r *reconcile) resolve(a *apireg.APIService) routeDecision {
	own, reserved := r.s.serves(a)
	name := a.Annotations[apiservice.BackendAnnotation]
	switch {
	case reserved && !own && name != backend.Reserved:
		// In discovery it could be the version that clients prefer.
		return routeDecision{nowhere: true, condition: apiservice.Condition{
			Status: apireg.ConditionFalse, Reason: "GroupReserved",
			Message: fmt.Sprintf("spec.group: %s is served by the gateway itself; no other version of it can be registered", a.Spec.Group),
		}}
	case a.Spec.Service != nil:
		return r.resolveService(a)
	case own:
		return routeDecision{local: true, condition: apiservice.Local()}
	case r.backendStates.ByName[name] != nil:
		return r.resolveBackend(a, r.backendStates.ByName[name], apiservice.Local())
	case name == "" || name == backend.Reserved:
		return routeDecision{nowhere: true, condition: apiservice.NotServed(a)}
	case !r.backendStates.Whole:
		return routeDecision{nowhere: true, condition: storedCondition(a)}
	}
	since := r.failing(a.Name)
	if old := r.s.servers[targetOfBackend(name)]; old != nil && r.hasSuccessor(a) && !r.over(since, handover) {
		r.live[old.target] = old
		return r.judge(a, old, apiservice.Local(), addresses{})
	}
	// As for a Service that does not exist, the 503 has the condition.
	return routeDecision{condition: apiservice.BackendNotFound(name), since: since, absent: true}
}

// serves reports whether the gateway serves the group/version of an APIService itself, and
// whether it serves any version of the group.
func (s *Controller) serves(a *apireg.APIService) (version, group bool) {
	for _, gv := range s.own {
		group = group || gv.Group == a.Spec.Group
		version = version || gv.Group == a.Spec.Group && gv.Version == a.Spec.Version
	}
	return version, group
}

// handover is how long the server of a deleted Backend keeps a group/version that another
// Backend has as well: registering it there is a write to etcd (package registration).
const handover = 2 * time.Second

// hasSuccessor reports whether another Backend registers the group/version of an APIService
// after its own was deleted.
func (r *reconcile) hasSuccessor(a *apireg.APIService) bool {
	return apiservice.IsAutomanaged(a) && slices.ContainsFunc(r.backendStates.List, func(st *BackendState) bool {
		auto := Registers(st.Spec)
		return auto != nil && auto.Takes(a.Spec.Group, a.Spec.Version) && st.Server != nil && r.view(st.Server).versions[groupVersion(a)] != nil
	})
}

// resolveBackend resolves an APIService to the server of a Backend.
func (r *reconcile) resolveBackend(a *apireg.APIService, st *BackendState, good apiservice.Condition) routeDecision {
	if st.failed != nil {
		return routeDecision{condition: *st.failed, since: r.failing(a.Name), server: st.Server, savedAs: targetOfBackend(st.Name)}
	}
	d := r.judgeUnlisted(a, r.judge(a, st.Server, good, st.addresses))
	d.static = st.Own != nil
	return d
}

// resolveService resolves an APIService to the server of its Service: that of the Backend
// that names the same Service with the same trust, else one of its own with the policy of
// that Backend. The paths of a REST server differ, so it is never shared.
func (r *reconcile) resolveService(a *apireg.APIService) routeDecision {
	ref, tls := a.Spec.Service, trustOf(a)
	_, _, serverName := serviceURL(ref)
	policy := upstream.NewPolicy(&backend.Spec{})
	if st := r.backendStates.byService[keyOf(ref)]; st != nil {
		if st.trust == trustID(tls, serverName) && st.Spec.REST == nil {
			return r.resolveBackend(a, st, apiservice.Passed())
		}
		policy = upstream.NewPolicy(st.Spec)
	}
	spec := serverSpec{
		name: a.Name, target: targetOfAPIService(a.Name), uid: string(a.UID), checkPath: discoveryPath(a), policy: policy,
		only: []schema.GroupVersion{groupVersion(a)},
	}
	srv, at, failed := r.serviceServer(&spec, ref, tls, nil)
	if failed != nil {
		return routeDecision{condition: *failed, since: r.failing(a.Name), server: srv, noService: failed.Reason == apiservice.ServiceNotFound(ref).Reason}
	}
	return r.judge(a, srv, apiservice.Passed(), at)
}

// judge decides by the verdict on a server. Until the first verdict the stored condition
// holds, so that the restart of a gateway neither cuts off a good server nor changes the
// condition twice.
func (r *reconcile) judge(a *apireg.APIService, srv *Server, good apiservice.Condition, at addresses) routeDecision {
	v := r.s.Verdict(srv)
	srv.wasGood = srv.wasGood || v.Healthy
	d := routeDecision{server: srv, condition: at.noted(good), since: v.Since, wasGood: v.Known && srv.wasGood}
	switch {
	case !v.Known:
		d.condition = storedCondition(a)
	case !v.Healthy:
		d.condition, d.slow = at.noted(badCondition(srv.checkURL, v.Err)), srv.Up.Slow()
	}
	return d
}

// storedCondition is the condition of an APIService until its server is checked.
func storedCondition(a *apireg.APIService) apiservice.Condition {
	if stored, ok := apiservice.Current(a); ok {
		return stored
	}
	return Unchecked()
}

// judgeUnlisted completes the decision on a user's APIService if its server is healthy and
// does not list the group/version: that the server answers is no proof that it serves it, so
// a check of its own decides (unlistedTarget). A REST server has no such path.
func (r *reconcile) judgeUnlisted(a *apireg.APIService, d routeDecision) routeDecision {
	srv := d.server
	if srv == nil || srv.REST != nil || apiservice.IsAutomanaged(a) || !d.condition.Available() || r.lists(srv, groupVersion(a)) {
		return d
	}
	check, view := srv.unlistedTarget(r.s, a), r.view(srv)
	view.unlisted = append(view.unlisted, check)
	v := r.s.checker.Verdict(check.ID)
	switch {
	case !v.Known:
		d.condition = storedCondition(a)
	case !v.Healthy:
		d.condition, d.since = apiservice.FailedDiscoveryCheck(srv.urlOf(discoveryPath(a)), v.Err), v.Since
		if d.absent = errors.Is(v.Err, errNotServed); d.absent {
			d.condition = d.condition.Kept()
		}
	}
	return d
}

// lists reports whether a server lists a group/version, now or before it was last read.
func (r *reconcile) lists(srv *Server, gv schema.GroupVersion) bool {
	if listed, known := srv.Source.Lists(gv); known {
		return listed
	}
	served := r.view(srv).versions[gv]
	return served != nil && !served.Unlisted
}

// badCondition is the condition of a server that is not healthy.
func badCondition(asked string, err error) apiservice.Condition {
	if errors.Is(err, upstream.ErrAllDrained) {
		return apiservice.AllDrained()
	}
	return apiservice.FailedDiscoveryCheck(asked, err)
}

// Unchecked is the condition before the first check.
func Unchecked() apiservice.Condition {
	return apiservice.Condition{Status: apireg.ConditionUnknown, Reason: "Checking", Message: "the server has not been checked yet"}
}

// groupVersion returns the APIService's group/version.
func groupVersion(a *apireg.APIService) schema.GroupVersion {
	return schema.GroupVersion{Group: a.Spec.Group, Version: a.Spec.Version}
}

// discoveryPath is the path of the group/version of an APIService.
func discoveryPath(a *apireg.APIService) string {
	if a.Spec.Group == "" {
		return "/api/" + a.Spec.Version
	}
	return "/apis/" + a.Spec.Group + "/" + a.Spec.Version
}

// Registers returns the groups to register for a Backend, for a REST server its own; nil:
// none.
func Registers(spec *backend.Spec) *backend.AutoRegister {
	if r := spec.REST; r != nil {
		return &backend.AutoRegister{Groups: []string{r.Group}}
	}
	return spec.AutoRegister
}

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
