package routing

import (
	"cmp"
	"context"
	"crypto/sha256"
	"crypto/x509"
	"encoding/hex"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"
	apireg "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"

	"portico/apiservice"
	"portico/apiservice/backend"
	"portico/discovery"
	"portico/discovery/openapi"
	"portico/discovery/sources"
	"portico/gateway/proxy"
	"portico/gateway/upstream"
	"portico/resource"
	"portico/resource/authn"
	"portico/resource/loop"
)

const (
	// socketSuspectInterval is the time between checks of a server on a unix socket that is
	// down: they are cheap, and start-up waits for them.
	socketSuspectInterval = 50 * time.Millisecond
	// openAPITimeout bounds reading the OpenAPI index of a server.
	openAPITimeout = 5 * time.Second
)

// Source reads the discovery of a server: *sources.Source, which documents the methods, or
// *sources.RESTSource.
type Source interface {
	Check(ctx context.Context) error
	GroupVersions() (gvs []discovery.GroupVersion, ok bool)
	Fetched() bool
	Served() (gvs []discovery.GroupVersion, whole bool)
	Restore(gvs []discovery.GroupVersion) bool
	RefreshOpenAPI(ctx context.Context) (changed bool, err error)
	OpenAPI() map[string]string
	Broken() []openapi.Broken
	ConvertsOpenAPI() bool
	FetchedOpenAPI() *sources.OpenAPIIndex
	RestoreOpenAPI(index *sources.OpenAPIIndex) bool
	Document(ctx context.Context, path string) ([]byte, error)
	Follow(ctx context.Context, changed func()) error
	Unread() []sources.Unread
	Dropped() int
	Want(gvs []schema.GroupVersion)
	Refetch(gv schema.GroupVersion)
	Lists(gv schema.GroupVersion) (listed, known bool)
	Announced() discovery.State
	Acknowledge(discovery.State)
	Close()
	Wait()
}

// Server is the server of a Backend, or of the Service of an APIService: its connections and
// its discovery. It remains the same when its addresses, trust or policy change. Exported
// fields and methods are safe for concurrent use.
type Server struct {
	Name   string // of the Backend or APIService
	Up     *proxy.Upstream
	Source Source
	// REST is the Source of a REST server; nil for any other.
	REST *sources.RESTSource

	target string // identifies it among the current servers, and its saved document
	id     string // another id makes another server
	serial int    // differs from those of earlier servers of the target
	// checkPath is the path of checks of single endpoints, unless the policy has one.
	checkPath string
	// whole: its whole discovery is read and followed, not single group/versions.
	whole bool

	// Of Controller.Run only:
	uid      string        // of its Backend or APIService; "": not stored yet
	trust    string        // identifies how it is verified
	checkURL string        // names it in messages
	rest     *backend.REST // of a REST server, see proxy.NewREST
	suspect  time.Duration // interval of checks while it is down; 0: that of the policy
	wasGood  bool          // it was healthy since the gateway started
	unfollow context.CancelFunc
	// published is the announced state of the last reconcile, and unrouted are the group/versions
	// that had no route then, with the last state that lacked them (shown.go).
	published discovery.State
	unrouted  map[schema.GroupVersion]int64
	settling  bool // followed, when the last reconcile began

	// indexed is the last state of which the index of OpenAPI documents was read.
	indexed atomic.Pointer[discovery.State]
	// followed: its stream has brought the first state, or could not be opened; settled: that was
	// published.
	followed, settled atomic.Bool

	// answered is set when it passes a check: its stream is opened at once.
	answered loop.Signal
	// openAPIChanged is set when its OpenAPI index may have changed.
	openAPIChanged loop.Signal
}

// Targets of servers, under which they are checked and saved.
func targetOfBackend(name string) string    { return backendPrefix + name }
func targetOfAPIService(name string) string { return apiservicePrefix + name }

// serverSpec describes a server.
type serverSpec struct {
	name, target, id    string
	uid, trustID        string
	checkURL, checkPath string
	base                *url.URL
	shown               string // base, if that is the address of the server
	endpoints           []upstream.Endpoint
	trust               upstream.Trust
	suspect             time.Duration
	policy              upstream.Policy
	// only are the group/versions that are read; nil: the whole discovery.
	only []schema.GroupVersion
	// rest, if not nil: it is a REST server.
	rest *backend.REST
	// permanent: it is that of a static Backend.
	permanent bool
}

// asREST completes the spec of a REST server.
func (m *serverSpec) asREST() {
	if m.rest == nil {
		return
	}
	m.only = []schema.GroupVersion{{Group: m.rest.Group, Version: m.rest.Version}}
	m.checkPath = m.rest.Document()
	if at, ok := strings.CutSuffix(m.checkURL, rootPath); ok {
		m.checkURL = at + m.checkPath
	}
	m.id += fmt.Sprintf(" rest=%s/%s %q %q", m.rest.Group, m.rest.Version, m.rest.OpenAPIPath, m.rest.PathPrefix)
}

// serverFor returns the server of a spec, a new one if its identity changed, and makes it
// live.
func (r *reconcile) serverFor(m *serverSpec) *Server {
	s, old := r.s, r.s.servers[m.target]
	if old != nil && old.id == m.id && !old.replacedBy(m.uid) {
		old.change(m)
		s.restoreServer(old)
		r.live[m.target] = old
		return old
	}
	if old != nil && old.replacedBy(m.uid) {
		s.forgetServer(m.target)
		old = nil
	}
	srv := s.newServer(m, old)
	s.restoreServer(srv)
	r.live[m.target] = srv
	return srv
}

// newServer makes a server. old is the same server with another identity; its discovery is used
// until that of the new one is read. nil: there is none.
func (s *Controller) newServer(m *serverSpec, old *Server) *Server {
	s.made++
	srv := &Server{
		Name: m.name, id: m.id, uid: m.uid, trust: m.trustID, target: m.target, checkURL: m.checkURL, checkPath: m.checkPath,
		suspect: m.suspect, whole: m.only == nil, rest: m.rest, serial: s.made,
	}
	srv.Up = proxy.NewUpstream(upstream.Config{
		Base: m.base, Endpoints: m.endpoints, Trust: m.trust, Policy: m.policy, Via: s.via, Lasting: s.lasting, REST: m.rest != nil,
		Broken: func(url string) { s.suspect(srv, url) }, Changed: s.onEndpoint,
	}, s.proxies)
	pinned := srv.Up.Pinned()
	cfg := sources.Config{
		Name: m.name, BaseURL: m.base.String(), Shown: m.shown, Identify: identifyAggregator, GroupVersions: m.only, Grace: s.grace,
		Transport: pinned, StreamTransport: pinned.Streams(), OpenAPIChanged: srv.openAPIChanged.Set,
		Changed: func() { s.sourceChanged(srv) },
	}
	if m.permanent {
		cfg.Limits = sources.ConfiguredLimits()
	}
	var previous []discovery.GroupVersion
	inherits := old != nil && old.Source.Fetched()
	if inherits {
		var whole bool
		if previous, whole = old.Source.Served(); whole {
			cfg.Previous = previous
		}
	}
	if m.rest == nil {
		srv.Source = sources.NewSource(cfg)
	} else {
		srv.REST = sources.NewRESTSource(cfg, sources.RESTConfig{
			Group: m.rest.Group, Version: m.rest.Version, OpenAPIPath: m.rest.Document(), PathPrefix: m.rest.PathPrefix,
		})
		srv.Source = srv.REST
	}
	if inherits {
		srv.Source.Restore(previous)
		if index := old.Source.FetchedOpenAPI(); index != nil {
			srv.Source.RestoreOpenAPI(index)
		}
	}
	return srv
}

// identifyAggregator adds the identity of requests for discovery (docs/wire.md 8.2).
func identifyAggregator(h http.Header) {
	authn.SetFrontProxyHeaders(h, &resource.User{Name: resource.KubeAggregator, Groups: []string{resource.GroupMasters}})
}

// replacedBy reports whether uid is that of another object of the same name, which describes
// another server.
func (srv *Server) replacedBy(uid string) bool {
	return srv.uid != "" && uid != "" && srv.uid != uid
}

// change updates how the server is reached. Endpoints that remain keep their state and their
// requests.
func (srv *Server) change(m *serverSpec) {
	srv.checkURL, srv.suspect, srv.rest = m.checkURL, m.suspect, m.rest
	if m.uid != "" {
		srv.uid = m.uid
	}
	if srv.trust != m.trustID {
		srv.trust = m.trustID
		srv.Up.SetTrust(m.trust)
	}
	srv.Up.SetEndpoints(m.endpoints)
	if srv.Up.Policy() != m.policy {
		srv.Up.SetPolicy(m.policy)
	}
}

// closeServer closes a server. Requests in flight finish; only closeAll waits for them.
func (s *Controller) closeServer(srv *Server) {
	if srv.unfollow != nil {
		srv.unfollow()
	}
	srv.Source.Close()
	srv.Up.Close()
	s.followers.Go(srv.Source.Wait)
}

// restRoute returns how requests are sent to a REST server; nil for any other.
func (srv *Server) restRoute() *proxy.REST {
	if srv.REST == nil {
		return nil
	}
	prefix, known := srv.REST.PathPrefix()
	hosts := []string{srv.Up.Base().Host}
	for _, e := range srv.Up.Endpoints() {
		if e.Base != nil {
			hosts = append(hosts, e.Base.Host)
		}
	}
	return proxy.NewREST(srv.REST.GroupVersion(), prefix, known, hosts, srv.rest)
}

// OpenAPIOwner identifies the server in the cache of OpenAPI documents: documents of another
// server of the same name are not used.
func (srv *Server) OpenAPIOwner() string { return srv.target + " " + srv.id }

// shownAs is the server's name in metrics: that of its Backend, or apiservice/NAME, which no
// Backend can have.
func (srv *Server) shownAs() string {
	if name, ok := strings.CutPrefix(srv.target, backendPrefix); ok {
		return name
	}
	return srv.target
}

// restNotAllowed is the reason of the condition of disguised.
const restNotAllowed = "RESTNotAllowed"

// disguised returns the condition of a REST Backend that has the address of a static Backend;
// nil: it has not. Requests would be authorized by the group of the REST Backend, and reach a
// server that trusts the gateway to have authorized them. Names are not resolved: this finds
// mistakes, and is no boundary.
func (s *Controller) disguised(st *BackendState, endpoints []upstream.Endpoint) *apiservice.Condition {
	if st.Spec.REST == nil {
		return nil
	}
	for _, c := range s.static {
		for _, theirs := range c.spec.Endpoints {
			i := slices.IndexFunc(endpoints, func(e upstream.Endpoint) bool { return backend.SameAddress(e.URL, theirs.URL) })
			if i < 0 {
				continue
			}
			return &apiservice.Condition{
				Status: apireg.ConditionFalse, Reason: restNotAllowed,
				Message: fmt.Sprintf("spec.rest: %s is the server %q, which the gateway starts with; it cannot be served under another group", endpoints[i].URL, c.Name),
			}
		}
	}
	return nil
}

// trustOf returns how an APIService verifies its server.
func trustOf(a *apireg.APIService) *backend.TLS {
	return &backend.TLS{CABundle: a.Spec.CABundle, InsecureSkipVerify: a.Spec.InsecureSkipTLSVerify}
}

// trustID identifies how a server is verified; nil is the default.
func trustID(t *backend.TLS, serverName string) string {
	if t == nil {
		t = &backend.TLS{}
	}
	ca := sha256.Sum256(t.CABundle)
	return fmt.Sprintf("name=%s insecure=%v shown=%v ca=%s", cmp.Or(t.ServerName, serverName), t.InsecureSkipVerify, t.ClientCertificate != backend.NoneShown, hex.EncodeToString(ca[:8]))
}

// trustFrom returns how a server is verified, and the certificate shown to it.
func (s *Controller) trustFrom(t *backend.TLS, serverName string) (upstream.Trust, error) {
	if t == nil {
		t = &backend.TLS{}
	}
	roots, err := upstream.ParsePool(t.CABundle)
	if err != nil {
		return upstream.Trust{}, err
	}
	out := upstream.Trust{Dial: s.trust.Dial, Roots: func() *x509.CertPool { return roots }, Insecure: t.InsecureSkipVerify, ServerName: cmp.Or(t.ServerName, serverName)}
	if t.ClientCertificate != backend.NoneShown {
		out.Certificate = s.trust.Certificate
	}
	return out, nil
}
