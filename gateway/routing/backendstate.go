package routing

import (
	"cmp"
	"errors"
	"fmt"
	"net/url"
	"slices"
	"time"

	apireg "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"

	"portico/apiservice"
	"portico/apiservice/backend"
	"portico/gateway/upstream"
)

// BackendState is a Backend with its server and its state, as this gateway finds it. It must
// not be changed.
type BackendState struct {
	EffectiveBackend
	// Server is nil if there is none.
	Server *Server
	// failed is the condition if the server cannot be resolved; nil: it can.
	failed *apiservice.Condition
	// addresses are those of its Service, if it names one.
	addresses addresses
	// CheckURL names the server in messages, with the path of its discovery.
	CheckURL string
	// trust identifies how the server is verified.
	trust string
	// Condition is the condition Available.
	Condition apiservice.Condition
	// since is when the condition began; zero: unknown.
	since time.Time
	// Stale: it has been unavailable for longer than the grace period, if there is one.
	Stale bool
}

// BackendStates are all Backends. Immutable.
type BackendStates struct {
	// List has the static Backends in their order, then the others by name.
	List   []*BackendState
	ByName map[string]*BackendState
	// byService are those that name a Service; of several the first by name, REST servers
	// last.
	byService map[serviceKey]*BackendState
	// Whole: the stored Backends are among them.
	Whole bool
}

// rootPath is the path of a server's whole discovery.
const rootPath = "/apis"

// resolveBackends finds or makes the servers of all Backends.
func (r *reconcile) resolveBackends() *BackendStates {
	all := effectiveBackends(r.s.static, r.n.backends)
	out := &BackendStates{
		List: make([]*BackendState, 0, len(all)), ByName: make(map[string]*BackendState, len(all)),
		byService: map[serviceKey]*BackendState{}, Whole: r.n.haveBackends,
	}
	inherited := inheritances(all, r.n.apiservices)
	for i := range all {
		st := &BackendState{EffectiveBackend: all[i]}
		out.List = append(out.List, st)
		out.ByName[st.Name] = st
		if ref := st.reference(); ref != nil {
			key := keyOf(ref)
			r.resolveServiceBackend(st, ref, inherited[key])
			if first := out.byService[key]; first == nil || first.Spec.REST != nil && st.Spec.REST == nil {
				out.byService[key] = st
			}
		} else {
			r.resolveEndpointsBackend(st)
		}
		st.Condition, st.since = r.s.backendCondition(st)
	}
	return out
}

// reference returns the Service of the Backend as an APIService would name it; nil if it has
// none.
func (d *EffectiveBackend) reference() *apireg.ServiceReference { return serviceReference(d.Spec) }

func serviceReference(s *backend.Spec) *apireg.ServiceReference {
	if s.Service == nil {
		return nil
	}
	return &apireg.ServiceReference{Namespace: s.Service.Namespace, Name: s.Service.Name, Port: new(s.Service.PortOf())}
}

// SharedService returns a warning if other Backends name the Service of b, as far as they are
// read.
func (s *Controller) SharedService(b *backend.Backend) []string {
	ref := serviceReference(&b.Spec)
	if ref == nil || b.Spec.REST != nil {
		return nil
	}
	names := []string{b.Name}
	for _, o := range s.snapshot().backends {
		if other := serviceReference(&o.Spec); o.Name != b.Name && other != nil && o.Spec.REST == nil && keyOf(other) == keyOf(ref) {
			names = append(names, o.Name)
		}
	}
	if len(names) == 1 {
		return nil
	}
	return []string{fmt.Sprintf("spec.service: %d Backends name port %d of Service %s/%s; its APIServices use the first by name, %q",
		len(names), apiservice.Port(ref), ref.Namespace, ref.Name, slices.Min(names))}
}

// inheritances returns, by Service, the APIService that Backends without tls inherit the trust
// of, because they name the same Service: the first by name.
func inheritances(all []EffectiveBackend, list []*apireg.APIService) map[serviceKey]*apireg.APIService {
	out := map[serviceKey]*apireg.APIService{}
	for i := range all {
		if ref := all[i].reference(); ref != nil && all[i].Spec.TLS == nil {
			out[keyOf(ref)] = nil
		}
	}
	if len(out) == 0 {
		return out
	}
	for _, a := range list {
		if a.Spec.Service == nil {
			continue
		}
		key := keyOf(a.Spec.Service)
		if first, wanted := out[key]; wanted && (first == nil || a.Name < first.Name) {
			out[key] = a
		}
	}
	return out
}

// serverSpec returns the part of a Backend's server that does not depend on its addresses.
func (st *BackendState) serverSpec() serverSpec {
	return serverSpec{name: st.Name, target: targetOfBackend(st.Name), uid: st.uid(), checkPath: rootPath, policy: st.policy(), rest: st.Spec.REST}
}

// resolveServiceBackend makes the server of a Backend that names a Service.
func (r *reconcile) resolveServiceBackend(st *BackendState, ref *apireg.ServiceReference, heir *apireg.APIService) {
	tls := st.Spec.TLS
	if tls == nil && heir != nil {
		tls = trustOf(heir)
	}
	spec := st.serverSpec()
	st.Server, st.addresses, st.failed = r.serviceServer(&spec, ref, tls, st)
	st.CheckURL, st.trust = spec.checkURL, spec.trustID
}

// serviceServer completes spec for the server of a Service and returns that server, which may
// still be known if it failed. st is the Backend of the server; nil: it is of an APIService.
func (r *reconcile) serviceServer(spec *serverSpec, ref *apireg.ServiceReference, tls *backend.TLS, st *BackendState) (srv *Server, at addresses, failed *apiservice.Condition) {
	scheme, host, serverName := serviceURL(ref)
	spec.base = &url.URL{Scheme: scheme, Host: host}
	spec.shown = spec.base.String()
	spec.id, spec.checkURL, spec.trustID = spec.shown, spec.shown+spec.checkPath, trustID(tls, serverName)
	spec.asREST()
	at, failed = r.n.services.resolve(ref)
	if failed != nil {
		if old := r.s.servers[spec.target]; old != nil && old.id == spec.id {
			r.live[spec.target], srv = old, old
		}
		return srv, addresses{}, failed
	}
	spec.endpoints = upstream.At(at.list...)
	if st != nil {
		if failed = r.s.disguised(st, spec.endpoints); failed != nil {
			return nil, at, failed
		}
	}
	var err error
	if spec.trust, err = r.s.trustFrom(tls, serverName); err != nil {
		failed := apiservice.FailedDiscoveryCheck(spec.checkURL, err)
		return nil, at, &failed
	}
	return r.serverFor(spec), at, nil
}

// resolveEndpointsBackend makes the server of a Backend with endpoints.
func (r *reconcile) resolveEndpointsBackend(st *BackendState) {
	spec := st.serverSpec()
	spec.base = &url.URL{Scheme: "https", Host: st.Name}
	spec.id, spec.permanent = spec.base.String(), st.Permanent
	err := r.endpoints(st, &spec)
	st.CheckURL, st.trust = cmp.Or(spec.checkURL, rootPath), spec.trustID
	if st.failed = r.s.disguised(st, spec.endpoints); st.failed != nil {
		return
	}
	if err != nil {
		failed := apiservice.FailedDiscoveryCheck(rootPath, err)
		st.failed = &failed
		return
	}
	st.Server = r.serverFor(&spec)
}

// endpoints completes spec with the endpoints and the trust of a Backend.
func (r *reconcile) endpoints(st *BackendState, spec *serverSpec) (err error) {
	for i := range st.Spec.Endpoints {
		e := &st.Spec.Endpoints[i]
		endpoint, err := upstream.ParseURL(st.Name, e.URL)
		if err != nil {
			return err
		}
		endpoint.Weight = e.WeightOf()
		if endpoint.Network == "unix" {
			spec.suspect = socketSuspectInterval
		}
		spec.endpoints = append(spec.endpoints, endpoint)
	}
	switch len(spec.endpoints) {
	case 0:
		return errors.New("it has no endpoints")
	case 1:
		spec.checkURL = spec.endpoints[0].URL + rootPath
	default:
		spec.checkURL = "any endpoint of " + st.Name
	}
	if st.Own != nil {
		spec.trust, spec.trustID = st.Own.trust, "configured"
	} else {
		spec.trustID = trustID(st.Spec.TLS, "")
		spec.trust, err = r.s.trustFrom(st.Spec.TLS, "")
	}
	spec.asREST()
	return err
}

// Checked reports whether the server was checked since the gateway started. The server of a
// Backend that the gateway sends no requests to (disguised) never is.
func (st *BackendState) Checked() bool {
	return st.Condition.Reason != restNotAllowed && st.Condition.Reason != Unchecked().Reason
}

// uid returns the uid of the stored object, by which a later object of the same name is
// another Backend; "" for a static Backend and its object.
func (d *EffectiveBackend) uid() string {
	if d.Object == nil || d.Own != nil {
		return ""
	}
	return string(d.Object.UID)
}

// policy returns how requests are sent. Administrators and Portico's own processes are not
// limited on a static Backend, so that they can mend an overloaded server.
func (d *EffectiveBackend) policy() upstream.Policy {
	p := upstream.NewPolicy(d.Spec)
	p.ExemptUnlimited = d.Permanent
	return p
}

// backendCondition returns the condition Available of a Backend, and since when it holds.
func (s *Controller) backendCondition(st *BackendState) (apiservice.Condition, time.Time) {
	if st.failed != nil {
		return *st.failed, time.Time{}
	}
	v := s.Verdict(st.Server)
	switch {
	case !v.Known:
		return Unchecked(), time.Time{}
	case !v.Healthy:
		return st.Noted(badCondition(st.CheckURL, v.Err)), v.Since
	}
	return st.Noted(apiservice.Passed()), v.Since
}

// Noted adds to a condition that not all addresses of the Service are used, if so.
func (st *BackendState) Noted(c apiservice.Condition) apiservice.Condition {
	return st.addresses.noted(c)
}
