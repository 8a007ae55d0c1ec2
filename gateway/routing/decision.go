package routing

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"
	apireg "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"

	"portico/apiservice"
	"portico/apiservice/backend"
	"portico/gateway/proxy"
	"portico/gateway/upstream"
)

// routeDecision is where requests for one APIService go, and why.
type routeDecision struct {
	local     bool    // to the gateway itself
	nowhere   bool    // no route: 404
	server    *Server // nil: there is none
	condition apiservice.Condition
	since     time.Time // when the condition began; zero: unknown
	wasGood   bool      // the server was healthy since the gateway started
	absent    bool      // no server has it: its Backend does not exist, or the server answers 404
	noService bool      // its Service does not exist
	// savedAs is the target that the discovery of a missing server is saved as; "": that of
	// the APIService.
	savedAs string
}

// route makes the table entry.
func (d routeDecision) route(name string) *proxy.Route {
	r := &proxy.Route{Name: name, Local: d.local, Condition: d.condition, Absent: d.absent}
	if d.server != nil {
		r.Upstream, r.REST = d.server.Up, d.server.restRoute()
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
	case name == "" || name == backend.Reserved || !r.backendStates.Whole:
		return routeDecision{nowhere: true, condition: apiservice.Local()}
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
	return r.judgeUnlisted(a, r.judge(a, st.Server, good, st.addresses))
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
		d.condition = at.noted(badCondition(srv.checkURL, v.Err))
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
