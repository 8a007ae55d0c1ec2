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

// placement is where requests for one APIService go.
type placement struct {
	local     bool    // the gateway itself
	nowhere   bool    // nobody: a 404
	server    *Server // who answers, or answered when last heard of
	condition apiservice.Condition
	verdict   bool      // the condition is the checker's, of a server that was good before
	since     time.Time // of the verdict
	absent    bool      // no server has it: its Backend does not exist, or the server answers so
	noService bool      // its Service does not exist
	// kept is under what an earlier gateway kept the discovery of a server that was
	// not found since this one began; "": under the APIService's own name.
	kept string
}

// route makes the table entry.
func (p placement) route(name string) *proxy.Route {
	r := &proxy.Route{Name: name, Local: p.local, Condition: p.condition, Absent: p.absent}
	if p.server != nil {
		r.Upstream, r.REST = p.server.Up, p.server.restRoute()
	}
	return r
}

// place decides where requests for an APIService go, and why if nowhere.
func (s *Sync) place(a *apireg.APIService, n *news, m *merge) placement {
	own := s.owns(a)
	if !own && s.reserves(a) && a.Annotations[apiservice.BackendAnnotation] != backend.Reserved {
		return placement{nowhere: true, condition: reserved(a)}
	}
	if a.Spec.Service != nil {
		return s.placeService(a, n, m)
	}
	if own {
		return placement{local: true, condition: apiservice.Local()}
	}
	name := a.Annotations[apiservice.BackendAnnotation]
	if st := m.standings.ByName[name]; st != nil {
		return s.placeBackend(a, st, m, apiservice.Local())
	}
	if name != "" && name != backend.Reserved && m.standings.Whole {
		since := m.failing(a.Name)
		if old := s.servers[targetOfBackend(name)]; old != nil && m.changesHands(a) && !m.over(since, handover) {
			m.live[old.target] = old
			return s.judge(a, old, apiservice.Local(), addresses{})
		}
		// Like one whose Service does not exist: whoever registered it expects it to
		// be served, and hears why it is not.
		return placement{condition: apiservice.BackendNotFound(name), since: since, absent: true}
	}
	return placement{nowhere: true, condition: apiservice.Local()}
}

// handover is how long the server of a Backend that is gone keeps what another Backend
// takes over. Who registers it with that one (package registration) needs a write to
// etcd; that the elected gateway is just away is no reason to go on for longer.
const handover = 2 * time.Second

// changesHands reports whether an APIService whose Backend is gone is about to be
// registered with another one, whose server has the group/version as well. Which of
// several gets it is not for routing to say.
func (m *merge) changesHands(a *apireg.APIService) bool {
	return apiservice.IsAutomanaged(a) && slices.ContainsFunc(m.standings.List, func(st *Standing) bool {
		auto := Registers(st.Spec)
		return auto != nil && auto.Takes(a.Spec.Group, a.Spec.Version) && st.Server != nil && m.toldBy(st.Server)[groupVersion(a)] != nil
	})
}

// placeBackend sends an APIService to the server of a Backend.
func (s *Sync) placeBackend(a *apireg.APIService, st *Standing, m *merge, good apiservice.Condition) placement {
	if st.failed != nil {
		return placement{condition: *st.failed, since: m.failing(a.Name), server: st.Server, kept: targetOfBackend(st.Name)}
	}
	return s.judgeUnlisted(a, s.judge(a, st.Server, good, st.addresses), m)
}

// placeService sends an APIService to the server that it names: that of the
// Backend which names the same and trusts it alike, else one of its own: also
// beside a REST server, which requests go to by other paths. The Backend's policy
// holds either way.
func (s *Sync) placeService(a *apireg.APIService, n *news, m *merge) placement {
	ref := a.Spec.Service
	scheme, host, serverName := serviceURL(ref)
	trust := trustID(trustOf(a), serverName)
	policy := upstream.NewPolicy(&backend.Spec{})
	if st := m.standings.byService[keyOf(ref)]; st != nil {
		if st.trust == trust && st.Spec.REST == nil {
			return s.placeBackend(a, st, m, apiservice.Passed())
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
		p := placement{condition: *failed, since: m.failing(a.Name), noService: failed.Reason == apiservice.ServiceNotFound(ref).Reason}
		if old := s.servers[mk.target]; old != nil && old.id == mk.id {
			m.live[mk.target], p.server = old, old
		}
		return p
	}
	var err error
	if mk.trust, err = s.trustFrom(trustOf(a), serverName); err != nil {
		return placement{condition: apiservice.FailedDiscoveryCheck(mk.checkURL, err)}
	}
	mk.endpoints = upstream.At(found.list...)
	return s.judge(a, s.serverFor(mk, m.live), apiservice.Passed(), found)
}

// judge turns the verdict on a server into a placement. Until the first
// verdict what the APIService says stands: a gateway that starts anew neither
// cuts off a good server nor flaps the condition.
func (s *Sync) judge(a *apireg.APIService, srv *Server, good apiservice.Condition, at addresses) placement {
	v := s.Verdict(srv)
	srv.wasGood = srv.wasGood || v.Healthy
	// A server that was not reached since this gateway began has been away for
	// as long as the APIService says.
	p := placement{server: srv, condition: at.noted(good), since: v.Since, verdict: v.Known && srv.wasGood}
	if v.Known && !v.Healthy {
		p.condition = at.noted(badCondition(srv.checkURL, v.Err))
	}
	if !v.Known {
		p.condition = stands(a)
	}
	return p
}

// stands is the condition of an APIService until something is found out: what it
// says itself.
func stands(a *apireg.APIService) apiservice.Condition {
	if stored, ok := apiservice.Current(a); ok {
		return stored
	}
	return Unchecked()
}

// owns reports whether the gateway serves the group/version itself.
func (s *Sync) owns(a *apireg.APIService) bool {
	return slices.ContainsFunc(s.own, func(gv discovery.GroupVersion) bool {
		return gv.Group == a.Spec.Group && gv.Version == a.Spec.Version
	})
}

// reserves reports whether the gateway serves some version of the group itself.
func (s *Sync) reserves(a *apireg.APIService) bool {
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
