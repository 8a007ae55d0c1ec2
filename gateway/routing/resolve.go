package routing

import (
	"fmt"
	"net/url"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"
	apireg "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"

	"portico/apiservice"
	"portico/apiservice/backend"
	"portico/discovery"
	"portico/gateway/proxy"
	"portico/gateway/upstream"
)

// routeDecision is where requests for one APIService go, and why.
type routeDecision struct {
	local     bool    // the gateway itself
	nowhere   bool    // no route: a 404
	server    *Server // nil: it was never found
	condition apiservice.Condition
	verdict   bool      // the condition is the checker's, of a server that was good before
	since     time.Time // of the verdict
	absent    bool      // no server has it: its Backend does not exist, or the server answers 404
	noService bool      // its Service does not exist
	// kept is the target under which an earlier gateway kept the discovery of a server that
	// this one has not found; "": that of the APIService.
	kept string
}

// route makes the table entry.
func (p routeDecision) route(name string) *proxy.Route {
	r := &proxy.Route{Name: name, Local: p.local, Condition: p.condition, Absent: p.absent}
	if p.server != nil {
		r.Upstream, r.REST = p.server.Up, p.server.restRoute()
	}
	return r
}

// resolveRoute decides where requests for an APIService go, and why if nowhere.
func (s *Controller) resolveRoute(a *apireg.APIService, n *inputs, m *merge) routeDecision {
	own := s.owns(a)
	if !own && s.reserves(a) && a.Annotations[apiservice.BackendAnnotation] != backend.Reserved {
		return routeDecision{nowhere: true, condition: reserved(a)}
	}
	if a.Spec.Service != nil {
		return s.resolveToService(a, n, m)
	}
	if own {
		return routeDecision{local: true, condition: apiservice.Local()}
	}
	name := a.Annotations[apiservice.BackendAnnotation]
	if st := m.backendStates.ByName[name]; st != nil {
		return s.resolveToBackend(a, st, m, apiservice.Local())
	}
	if name != "" && name != backend.Reserved && m.backendStates.Whole {
		since := m.failing(a.Name)
		if old := s.servers[targetOfBackend(name)]; old != nil && m.changesHands(a) && !m.over(since, handover) {
			m.live[old.target] = old
			return s.judge(a, old, apiservice.Local(), addresses{})
		}
		// As for a Service that does not exist: the 503 says why it is not served.
		return routeDecision{condition: apiservice.BackendNotFound(name), since: since, absent: true}
	}
	return routeDecision{nowhere: true, condition: apiservice.Local()}
}

// handover is how long the server of a deleted Backend keeps a group/version that another
// Backend takes over: registering it there needs a write to etcd (package registration).
const handover = 2 * time.Second

// changesHands reports whether an APIService whose Backend is deleted is about to be
// registered for another one, whose server has the group/version as well. Package
// registration chooses among several.
func (m *merge) changesHands(a *apireg.APIService) bool {
	return apiservice.IsAutomanaged(a) && slices.ContainsFunc(m.backendStates.List, func(st *BackendState) bool {
		auto := Registers(st.Spec)
		return auto != nil && auto.Takes(a.Spec.Group, a.Spec.Version) && st.Server != nil && m.servedBy(st.Server)[groupVersion(a)] != nil
	})
}

// resolveToBackend resolves an APIService to the server of a Backend.
func (s *Controller) resolveToBackend(a *apireg.APIService, st *BackendState, m *merge, good apiservice.Condition) routeDecision {
	if st.failed != nil {
		return routeDecision{condition: *st.failed, since: m.failing(a.Name), server: st.Server, kept: targetOfBackend(st.Name)}
	}
	return s.judgeUnlisted(a, s.judge(a, st.Server, good, st.addresses), m)
}

// resolveToService resolves an APIService to the server of the Service that it names: to
// that of the Backend which names the same Service and trusts it alike, else to one of its
// own, as for a REST server, whose paths differ. Either way the Backend's policy holds.
func (s *Controller) resolveToService(a *apireg.APIService, n *inputs, m *merge) routeDecision {
	ref := a.Spec.Service
	scheme, host, serverName := serviceURL(ref)
	trust := trustID(trustOf(a), serverName)
	policy := upstream.NewPolicy(&backend.Spec{})
	if st := m.backendStates.byService[keyOf(ref)]; st != nil {
		if st.trust == trust && st.Spec.REST == nil {
			return s.resolveToBackend(a, st, m, apiservice.Passed())
		}
		policy = upstream.NewPolicy(st.Spec)
	}
	mk := making{
		name: a.Name, target: targetOfAPIService(a.Name), base: &url.URL{Scheme: scheme, Host: host},
		checkPath: discoveryPath(a), policy: policy, only: []schema.GroupVersion{groupVersion(a)},
	}
	mk.shown = mk.base.String()
	mk.id, mk.uid, mk.trustID = mk.shown, string(a.UID), trust
	mk.checkURL = mk.shown + mk.checkPath
	found, failed := n.services.resolve(ref)
	if failed != nil {
		// The server may still be known from before: its documents stay.
		p := routeDecision{condition: *failed, since: m.failing(a.Name), noService: failed.Reason == apiservice.ServiceNotFound(ref).Reason}
		if old := s.servers[mk.target]; old != nil && old.id == mk.id {
			m.live[mk.target], p.server = old, old
		}
		return p
	}
	var err error
	if mk.trust, err = s.trustFrom(trustOf(a), serverName); err != nil {
		return routeDecision{condition: apiservice.FailedDiscoveryCheck(mk.checkURL, err)}
	}
	mk.endpoints = upstream.At(found.list...)
	return s.judge(a, s.serverFor(mk, m.live), apiservice.Passed(), found)
}

// judge turns the verdict on a server into a routeDecision. Until the first verdict the
// stored condition holds: a gateway that restarts neither cuts off a good server nor flaps
// the condition.
func (s *Controller) judge(a *apireg.APIService, srv *Server, good apiservice.Condition, at addresses) routeDecision {
	v := s.Verdict(srv)
	srv.wasGood = srv.wasGood || v.Healthy
	// A server that was not reached since this gateway began has been away for
	// as long as the APIService says.
	p := routeDecision{server: srv, condition: at.noted(good), since: v.Since, verdict: v.Known && srv.wasGood}
	if v.Known && !v.Healthy {
		p.condition = at.noted(badCondition(srv.checkURL, v.Err))
	}
	if !v.Known {
		p.condition = storedCondition(a)
	}
	return p
}

// storedCondition is the condition of an APIService until its server is checked: the stored
// one.
func storedCondition(a *apireg.APIService) apiservice.Condition {
	if stored, ok := apiservice.Current(a); ok {
		return stored
	}
	return Unchecked()
}

// owns reports whether the gateway serves the group/version itself.
func (s *Controller) owns(a *apireg.APIService) bool {
	return slices.ContainsFunc(s.own, func(gv discovery.GroupVersion) bool {
		return gv.Group == a.Spec.Group && gv.Version == a.Spec.Version
	})
}

// reserves reports whether the gateway serves some version of the group itself.
func (s *Controller) reserves(a *apireg.APIService) bool {
	return slices.ContainsFunc(s.own, func(gv discovery.GroupVersion) bool { return gv.Group == a.Spec.Group })
}

// reserved is the condition of an APIService for another version of a group that the
// gateway serves: it is in no discovery, where it could be the version that clients
// prefer.
func reserved(a *apireg.APIService) apiservice.Condition {
	return apiservice.Condition{
		Status: apireg.ConditionFalse, Reason: "GroupReserved",
		Message: fmt.Sprintf("spec.group: %s is served by the gateway itself; no other version of it can be registered", a.Spec.Group),
	}
}

// groupVersion returns the APIService's group/version.
func groupVersion(a *apireg.APIService) schema.GroupVersion {
	return schema.GroupVersion{Group: a.Spec.Group, Version: a.Spec.Version}
}

// discoveryPath is what the availability check of a registered server asks for.
func discoveryPath(a *apireg.APIService) string {
	if a.Spec.Group == "" {
		return "/api/" + a.Spec.Version
	}
	return "/apis/" + a.Spec.Group + "/" + a.Spec.Version
}
