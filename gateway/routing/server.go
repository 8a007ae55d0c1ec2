package routing

import (
	"context"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"portico/apiservice/availability"
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

// socketSuspectInterval is how often a server on a unix socket is tried while
// it is away: that costs next to nothing, and start-up waits for it.
const socketSuspectInterval = 50 * time.Millisecond

// openAPITimeout bounds reading a server's OpenAPI index.
const openAPITimeout = 5 * time.Second

// Source is where what a server says it serves is read: *sources.Source, which
// documents the methods, or *sources.RESTSource of a REST server.
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
	Document(ctx context.Context, path, etag string) (*openapi.Answer, error)
	Follow(ctx context.Context, changed func()) error
	Unread() []sources.Unread
	Dropped() int
	Want(gvs []schema.GroupVersion)
	Refetch(gv schema.GroupVersion)
	Lists(gv schema.GroupVersion) (listed, known bool)
	Close()
	Wait()
}

// Server is a server behind the gateway, that of a Backend or of an APIService's
// Service: how to reach it, and what it says it serves. It is the same as long as it
// is described as the same, and may be at other addresses meanwhile. What is exported
// is safe for concurrent use.
type Server struct {
	Name     string // of the Backend or APIService
	id       string // identity: a change makes a new server
	uid      string // of the object that describes it; "": of none yet
	trust    string // tells apart how it is trusted
	target   string // tells it from all others; what is kept of it has the same name
	serial   int    // tells it from those that had the target before
	checkURL string // for messages; of Controller.Run only
	// checkPath is what endpoints are asked for by themselves, unless the policy
	// says otherwise.
	checkPath string
	Up        *proxy.Upstream
	Source    Source
	// REST is source of a REST server; nil of any other.
	REST    *sources.RESTSource
	anyBody bool          // of a REST server; see proxy.NewREST. Of Controller.Run only
	suspect time.Duration // interval while suspect; 0 is that of the policy

	// answered: it passed a check; its stream need not wait to be opened again.
	answered loop.Signal
	// wasGood: it has been healthy since this gateway began; of Controller.Run only.
	wasGood bool
	// followed: somebody reads its OpenAPI index when openAPISignal say that there
	// may be a new one (stream.go), so that the availability check need not.
	followed      atomic.Bool
	openAPISignal loop.Signal
	openAPI       sync.Mutex // one refresh at a time
	// tells: it is followed, to hear of all it serves.
	tells bool
	// unfollow ends what follows it; nil: nothing does. Of Controller.Run only.
	unfollow context.CancelFunc
}

// Targets of servers: what they are checked and kept as.
func targetOfBackend(name string) string    { return backendPrefix + name }
func targetOfAPIService(name string) string { return apiservicePrefix + name }

// making is what a server is made of.
type making struct {
	name, target, id    string
	uid, trustID        string
	checkURL, checkPath string
	base                *url.URL
	shown               string // base, where that says where the server is
	endpoints           []upstream.Endpoint
	trust               upstream.Trust
	suspect             time.Duration
	policy              upstream.Policy
	// only are the group/versions that are wanted of it; nil is everything it
	// says, which is then followed.
	only []schema.GroupVersion
	// rest, if not nil: it is a REST server.
	rest *backend.REST
	// permanent: gateways start with it.
	permanent bool
}

// serverFor returns the server of that target, made anew if its identity
// changed, with the present addresses, trust and policy. It is live from now on.
func (s *Controller) serverFor(m making, live map[string]*Server) *Server {
	old := s.servers[m.target]
	if old != nil && old.id == m.id && !old.replacedBy(m.uid) {
		live[m.target] = old
		old.change(&m)
		s.restoreServer(old)
		return old
	}
	srv := &Server{
		Name: m.name, id: m.id, uid: m.uid, trust: m.trustID, target: m.target, checkURL: m.checkURL, checkPath: m.checkPath,
		suspect: m.suspect, tells: m.only == nil, anyBody: m.rest != nil && m.rest.AllowAnyBody,
	}
	s.made++
	srv.serial = s.made
	live[m.target] = srv
	srv.Up = proxy.NewUpstream(upstream.Config{
		Base: m.base, Endpoints: m.endpoints, Trust: m.trust, Policy: m.policy, Via: s.via, Lasting: s.lasting, REST: m.rest != nil,
		Broken: func(url string) { s.suspect(srv, url) }, Changed: s.endpointChanged,
	}, s.proxies)
	pinned := srv.Up.Pinned()
	cfg := sources.Config{
		Name: m.name, BaseURL: m.base.String(), Shown: m.shown, Identify: identifyAggregator, GroupVersions: m.only, Grace: s.grace,
		Transport: pinned, StreamTransport: pinned.Streams(), OpenAPIChanged: srv.openAPISignal.Set,
		Changed: func() { s.sourceChanged(srv) },
	}
	if m.permanent {
		cfg.Limits = sources.ConfiguredLimits()
	}
	var kept []discovery.GroupVersion
	var index *sources.OpenAPIIndex
	switch {
	case old == nil:
	case old.replacedBy(m.uid): // what another said is not its word
		s.forgetServer(m.target)
	case old.Source.Fetched():
		// The same, reached another way: what it said stands until the new server
		// speaks.
		said, whole := old.Source.Served()
		if kept = said; whole {
			cfg.Previous = said
		}
		index = old.Source.FetchedOpenAPI()
	}
	if m.rest == nil {
		srv.Source = sources.NewSource(cfg)
	} else {
		srv.REST = newRESTSource(cfg, m.rest)
		srv.Source = srv.REST
	}
	if kept != nil {
		srv.Source.Restore(kept)
	}
	if index != nil {
		srv.Source.RestoreOpenAPI(index)
	}
	s.restoreServer(srv)
	return srv
}

// identifyAggregator adds the identity under which the gateway asks servers
// for discovery (docs/wire.md 8.2).
func identifyAggregator(h http.Header) {
	authn.SetFrontProxyHeaders(h, &resource.User{Name: resource.KubeAggregator, Groups: []string{resource.GroupMasters}})
}

// replacedBy reports whether the server is described by another object now, of the
// same name: that one may mean another server.
func (srv *Server) replacedBy(uid string) bool {
	return srv.uid != "" && uid != "" && srv.uid != uid
}

// change takes in how the server is reached now. Endpoints that stay keep all that
// is known of them, and what is under way to them.
func (srv *Server) change(m *making) {
	srv.checkURL, srv.suspect, srv.anyBody = m.checkURL, m.suspect, m.rest != nil && m.rest.AllowAnyBody
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

// letGo lets go of a server: what is under way finishes, and nobody waits for it but
// who stops everything.
func (s *Controller) letGo(srv *Server) {
	if srv.unfollow != nil {
		srv.unfollow()
	}
	srv.Source.Close()
	srv.Up.Close()
	s.followers.Go(srv.Source.Wait)
}

// OpenAPIOwner is the server's name where its OpenAPI documents are kept: what was
// kept of another under the same name is not taken for its own.
func (srv *Server) OpenAPIOwner() string { return srv.target + " " + srv.id }

// version tells checks of the server from those of an earlier one of its target, and
// those with other trust.
func (srv *Server) version() string { return fmt.Sprint(srv.serial, " ", srv.id, " ", srv.trust) }

// availabilityTarget is how the checker asks the server: its discovery, which
// also tells what is new.
func (srv *Server) availabilityTarget(s *Controller) availability.Target {
	return availability.Target{
		ID: srv.target, Version: srv.version(), Schedule: availability.Schedule{Suspect: srv.suspect},
		Probe: func(ctx context.Context) error { return s.Probe(ctx, srv) },
	}
}

// Probe asks a server what it serves, and takes in what is new. Check does so from
// time to time; others need not.
func (s *Controller) Probe(ctx context.Context, srv *Server) error {
	if err := srv.Source.Check(ctx); err != nil {
		return stable(err)
	}
	srv.answered.Set()
	if srv.followed.Load() {
		srv.openAPISignal.Set()
	} else if srv.refreshOpenAPI(ctx) {
		s.wake.Set()
	}
	return nil
}

// refreshOpenAPI brings what is known of the server's OpenAPI up to date and
// reports whether it is new, or whether it can be used. It comes after discovery,
// which says what to look for in it. A failure is no verdict on the server: the
// index stays as it was.
func (srv *Server) refreshOpenAPI(ctx context.Context) bool {
	srv.openAPI.Lock()
	defer srv.openAPI.Unlock()
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), openAPITimeout)
	defer cancel()
	changed, _ := srv.Source.RefreshOpenAPI(ctx) // Broken has the error
	return changed
}

// shownAs is the name of a server to people: that of its Backend, or
// apiservice/NAME if it is the Service of an APIService. No Backend's name has a
// slash in it.
func (srv *Server) shownAs() string {
	if name, ok := strings.CutPrefix(srv.target, backendPrefix); ok {
		return name
	}
	return srv.target
}
