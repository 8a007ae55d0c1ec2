package routing

import (
	"crypto/sha256"
	"crypto/x509"
	"encoding/hex"
	"errors"
	"fmt"
	"net/url"
	"time"

	apireg "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"

	"portico/apiservice"
	"portico/apiservice/backend"
	"portico/gateway/upstream"
)

// BackendState is how a Backend stands with this gateway: what it is, the server that was
// made of it, and what is to be said of both. Not to be changed.
type BackendState struct {
	EffectiveBackend
	// Server is its server; nil if there is none, and never was.
	Server *Server
	// failed says why the server's addresses are not known; nil: they are.
	failed *apiservice.Condition
	// addresses are those of the Service that it names; none if it names none.
	addresses addresses
	// Asked says where the server's discovery is asked for, in messages.
	Asked string
	// trust identifies how the server is trusted.
	trust string
	// Condition is Available, as far as this gateway sees.
	Condition apiservice.Condition
	// since is when the server came to be as it is; zero: it is not known.
	since time.Time
	// Stale: it has been away for longer than the grace period, if there is one.
	Stale bool
}

// BackendStates are all Backends. Immutable.
type BackendStates struct {
	// List has the configured ones first, in their order, then the others by
	// name.
	List   []*BackendState
	ByName map[string]*BackendState
	// byService are those that name a Service; of several the first by name, and
	// one of a REST server after all others.
	byService map[serviceKey]*BackendState
	// Whole: the stored ones are among them, so that what is missing does not
	// exist.
	Whole bool
}

// serviceKey names a port of a Service.
type serviceKey struct {
	namespace, name string
	port            int32
}

func keyOf(ref *apireg.ServiceReference) serviceKey {
	return serviceKey{ref.Namespace, ref.Name, apiservice.Port(ref)}
}

// rootPath is the discovery of all that a server serves.
const rootPath = "/apis"

var errNoEndpoints = errors.New("it has no endpoints")

// resolveBackends makes the servers of all Backends, or finds them among those there are.
func (s *Controller) resolveBackends(n *inputs, live map[string]*Server) *BackendStates {
	all := effectiveBackends(s.configured, n.backends)
	out := &BackendStates{
		List: make([]*BackendState, 0, len(all)), ByName: make(map[string]*BackendState, len(all)),
		byService: map[serviceKey]*BackendState{}, Whole: n.haveBackends,
	}
	inherited := inheritances(all, n.apiservices)
	for i := range all {
		st := &BackendState{EffectiveBackend: all[i]}
		out.List = append(out.List, st)
		out.ByName[st.Name] = st
		if ref := st.reference(); ref != nil {
			s.resolveServiceBackend(st, ref, n, inherited[keyOf(ref)], live)
			key := keyOf(ref)
			if first := out.byService[key]; first == nil || first.Spec.REST != nil && st.Spec.REST == nil {
				out.byService[key] = st
			}
		} else if st.failed = s.disguised(st); st.failed != nil {
			st.Asked = rootPath
		} else if err := s.resolveEndpointsBackend(st, live); err != nil {
			failed := apiservice.FailedDiscoveryCheck("/apis", err)
			st.failed = &failed
		}
		st.Condition, st.since = s.backendCondition(st)
	}
	return out
}

// reference returns the Service that the Backend names, as an APIService would;
// nil if it names none.
func (d *EffectiveBackend) reference() *apireg.ServiceReference { return serviceReference(d.Spec) }

func serviceReference(s *backend.Spec) *apireg.ServiceReference {
	v := s.Service
	if v == nil {
		return nil
	}
	port := v.PortOf()
	return &apireg.ServiceReference{Namespace: v.Namespace, Name: v.Name, Port: &port}
}

// inheritances finds the APIServices whose Service a Backend without tls names:
// the trust is theirs, that of the first by name. They are listed by the
// Service.
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

// resolveServiceBackend makes the server that a Service names.
func (s *Controller) resolveServiceBackend(st *BackendState, ref *apireg.ServiceReference, n *inputs, heir *apireg.APIService, live map[string]*Server) {
	scheme, host, serverName := serviceURL(ref)
	tls := st.Spec.TLS
	if tls == nil && heir != nil {
		tls = trustOf(heir)
	}
	m := making{
		name: st.Name, target: targetOfBackend(st.Name), base: &url.URL{Scheme: scheme, Host: host},
		checkPath: rootPath, policy: st.policy(),
	}
	m.shown = m.base.String()
	m.checkURL = m.shown + rootPath
	st.trust = trustID(tls, serverName)
	m.id, m.uid, m.trustID = m.base.String(), st.uid(), st.trust
	m.asREST(st.Spec.REST)
	st.Asked = m.checkURL
	found, failed := n.services.resolve(ref)
	if failed != nil {
		// The server may still be known from before: its documents stay.
		st.failed = failed
		if old := s.servers[m.target]; old != nil && old.id == m.id {
			live[m.target], st.Server = old, old
		}
		return
	}
	st.addresses = found
	m.endpoints = upstream.At(found.list...)
	urls := make([]string, 0, len(m.endpoints))
	for _, e := range m.endpoints {
		urls = append(urls, e.URL)
	}
	if st.failed = s.disguisedAt(st, urls); st.failed != nil {
		return
	}
	trust, err := s.trustFrom(tls, serverName)
	if err != nil {
		failed := apiservice.FailedDiscoveryCheck(m.checkURL, err)
		st.failed = &failed
		return
	}
	m.trust = trust
	st.Server = s.serverFor(m, live)
}

// resolveEndpointsBackend makes the server that is at the endpoints of a Backend.
func (s *Controller) resolveEndpointsBackend(st *BackendState, live map[string]*Server) error {
	m := making{
		name: st.Name, target: targetOfBackend(st.Name), base: &url.URL{Scheme: "https", Host: st.Name},
		checkPath: rootPath, policy: st.policy(),
	}
	for i := range st.Spec.Endpoints {
		e := &st.Spec.Endpoints[i]
		endpoint, err := upstream.ParseURL(st.Name, e.URL)
		if err != nil {
			return err
		}
		endpoint.Weight = e.WeightOf()
		if endpoint.Network == "unix" {
			m.suspect = socketSuspectInterval
		}
		m.endpoints = append(m.endpoints, endpoint)
	}
	switch len(m.endpoints) {
	case 0:
		return errNoEndpoints
	case 1:
		m.checkURL = m.endpoints[0].URL + rootPath
	default:
		m.checkURL = "any endpoint of " + st.Name
	}
	st.trust = "configured"
	if st.Own != nil {
		m.trust = st.Own.trust
	} else {
		trust, err := s.trustFrom(st.Spec.TLS, "")
		if err != nil {
			return err
		}
		m.trust, st.trust = trust, trustID(st.Spec.TLS, "")
	}
	m.id, m.uid, m.trustID, m.permanent = m.base.String(), st.uid(), st.trust, st.Permanent
	m.asREST(st.Spec.REST)
	st.Asked = m.checkURL
	st.Server = s.serverFor(m, live)
	return nil
}

// uid tells the object from others of its name, before and after it; "" of what
// this gateway is configured with, whatever is stored.
func (d *EffectiveBackend) uid() string {
	if d.Object == nil || d.Own != nil {
		return ""
	}
	return string(d.Object.UID)
}

// policy returns how requests are sent. Servers that gateways start with have what puts
// things right while they are overloaded: administrators and Portico's own processes
// have no limit there.
func (d *EffectiveBackend) policy() upstream.Policy {
	p := upstream.NewPolicy(d.Spec)
	p.ExemptUnlimited = d.Permanent
	return p
}

// backendCondition is what this gateway says of the server as a whole, and since
// when.
func (s *Controller) backendCondition(st *BackendState) (apiservice.Condition, time.Time) {
	if st.failed != nil {
		return *st.failed, time.Time{}
	}
	v := s.Verdict(st.Server)
	switch {
	case !v.Known:
		return Unchecked(), time.Time{}
	case !v.Healthy:
		return st.addresses.noted(badCondition(st.Asked, v.Err)), v.Since
	}
	return st.addresses.noted(apiservice.Passed()), v.Since
}

// badCondition is that of a server whose verdict is bad.
func badCondition(asked string, err error) apiservice.Condition {
	if errors.Is(err, upstream.ErrAllDrained) {
		return apiservice.AllDrained()
	}
	return apiservice.FailedDiscoveryCheck(asked, err)
}

// Noted adds to a condition that not all addresses of the server's Service are used,
// if that is so.
func (st *BackendState) Noted(c apiservice.Condition) apiservice.Condition {
	return st.addresses.noted(c)
}

// Unchecked is the condition before there is a verdict.
func Unchecked() apiservice.Condition {
	return apiservice.Condition{Status: apireg.ConditionUnknown, Reason: "Checking", Message: "the server has not been checked yet"}
}

// trustOf returns what an APIService says of trust.
func trustOf(a *apireg.APIService) *backend.TLS {
	return &backend.TLS{CABundle: a.Spec.CABundle, InsecureSkipVerify: a.Spec.InsecureSkipTLSVerify}
}

// trustID tells ways to trust a server apart. Nothing said is the default.
func trustID(t *backend.TLS, serverName string) string {
	if t == nil {
		t = &backend.TLS{}
	}
	if t.ServerName != "" {
		serverName = t.ServerName
	}
	return fmt.Sprintf("name=%s insecure=%v shown=%v ca=%s", serverName, t.InsecureSkipVerify, t.ClientCertificate != backend.NoneShown, digest(t.CABundle))
}

// digest makes a short name of bytes, for identities.
func digest(b []byte) string {
	sum := sha256.Sum256(b)
	return hex.EncodeToString(sum[:8])
}

// trustFrom makes of it how a server is recognised and what is shown to it.
func (s *Controller) trustFrom(t *backend.TLS, serverName string) (upstream.Trust, error) {
	if t == nil {
		t = &backend.TLS{}
	}
	roots, err := upstream.ParsePool(t.CABundle)
	if err != nil {
		return upstream.Trust{}, err
	}
	out := upstream.Trust{Roots: func() *x509.CertPool { return roots }, Insecure: t.InsecureSkipVerify, ServerName: serverName}
	if t.ServerName != "" {
		out.ServerName = t.ServerName
	}
	if t.ClientCertificate != backend.NoneShown {
		out.Certificate = s.trust.Certificate
	}
	return out, nil
}
