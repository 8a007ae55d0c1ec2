package routing

import (
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"portico/apiservice/backend"
	"portico/discovery"
)

// Registrable reports whether a group/version is to be registered: auto, which is
// spec.autoRegister of its Backend, takes it, the server lists it, and it can be an APIService. A nil
// auto takes none. Package sources bounds the number of group/versions and has checked their names.
func Registrable(gv *discovery.GroupVersion, auto *backend.AutoRegister) bool {
	return auto != nil && !gv.Unlisted && auto.Takes(gv.Group, gv.Version) && (gv.Group != "" || gv.Version == "v1")
}

// announcedState returns the last state of a server's discovery of which the index of OpenAPI
// documents was read as well.
func (srv *Server) announcedState() discovery.State {
	state, indexed := srv.Source.Announced(), srv.indexed.Load()
	if indexed == nil || indexed.Process != state.Process {
		return discovery.State{}
	}
	state.Serial = min(state.Serial, indexed.Serial)
	return state
}

// acknowledge acknowledges to each server of a Backend the state of its discovery that is published: the
// state that was announced when the reconcile began, or an earlier one if a group/version that is to be
// registered has no route yet.
func (r *reconcile) acknowledge() {
	for _, st := range r.backendStates.List {
		srv := st.Server
		if srv == nil || !srv.whole {
			continue
		}
		state := r.announced[srv]
		if srv.published.Process != state.Process {
			srv.published, srv.unrouted = discovery.State{Process: state.Process}, nil
		}
		state.Serial = min(state.Serial, r.routed(st))
		srv.published = r.announced[srv]
		srv.Source.Acknowledge(state)
		srv.settled.Store(srv.settling)
	}
}

// routed returns a serial of the server's states, up to which all group/versions that are to be
// registered have routes. A group/version that the last reconcile did not find belongs to a later state
// than the one that was announced then.
func (r *reconcile) routed(st *BackendState) int64 {
	srv, auto := st.Server, Registers(st.Spec)
	unrouted := map[schema.GroupVersion]int64{}
	last := r.announced[srv].Serial
	for gv, of := range r.view(srv).versions {
		if r.routes[gv] != nil || !Registrable(of, auto) || r.reserves(gv.Group) {
			continue
		}
		since, known := srv.unrouted[gv]
		if !known {
			since = srv.published.Serial
		}
		unrouted[gv] = since
		last = min(last, since)
	}
	srv.unrouted = unrouted
	return last
}

// reserves reports whether the gateway serves a group itself.
func (r *reconcile) reserves(group string) bool {
	return slices.ContainsFunc(r.s.own, func(gv discovery.GroupVersion) bool { return gv.Group == group })
}

// firstDiscovery bounds how long a gateway that starts waits for servers that do not answer.
const firstDiscovery = 5 * time.Second

// Discovered reports whether the discovery of the servers that the gateway starts with is published,
// except of servers that are down: the gateway is not ready while it shows the discovery that an
// earlier gateway has stored.
func (s *Controller) Discovered() bool {
	all := s.BackendStates()
	if !s.Ready() || all == nil {
		return false
	}
	if time.Since(s.began) > firstDiscovery {
		return true
	}
	for _, b := range s.static {
		st := all.ByName[b.Name]
		if st == nil || st.Server == nil || !st.Server.whole || st.Server.settled.Load() {
			continue
		}
		if v := s.DiscoveryVerdict(st.Server); !v.Known || v.Healthy {
			return false
		}
	}
	return true
}
