package gateway

import (
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"net/url"
	"sync"
	"sync/atomic"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"
	apireg "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"

	"portico/apiservice"
	"portico/apiservice/availability"
	"portico/apiservice/backend"
	"portico/discovery/aggregate"
	"portico/gateway/upstream"
	"portico/resource/loop"
)

// socketSuspectInterval is how often a server on a unix socket is tried while
// it is away: that costs next to nothing, and start-up waits for it.
const socketSuspectInterval = 50 * time.Millisecond

// openAPITimeout bounds reading a server's OpenAPI index.
const openAPITimeout = 5 * time.Second

// server is a server behind the gateway as sync sees it: how to reach it, what
// it says it serves, and under which name it is checked.
type server struct {
	name     string // of the backend or APIService
	id       string // identity: a change makes a new server
	target   string // availability target
	checkURL string // for messages
	up       *proxied
	source   *aggregate.Source
	suspect  time.Duration // interval while suspect; 0 is the default

	// answered: it passed a check; its stream need not wait to be opened again.
	answered loop.Nudge
	// wasGood: it has been healthy since this gateway began; of sync.run only.
	wasGood bool
	// followed: somebody reads its OpenAPI index when openAPINews say that there
	// may be a new one (stream.go), so that the availability check need not.
	followed    atomic.Bool
	openAPINews loop.Nudge
	openAPI     sync.Mutex // one refresh at a time
}

// newBackend makes the server of a configured backend.
func (s *syncer) newBackend(b Backend, t upstream.Trust) (*server, error) {
	endpoint, err := upstream.ParseURL(b.Name, b.URL)
	if err != nil {
		return nil, err
	}
	if endpoint.Network != "unix" && endpoint.Base.Scheme != "https" {
		return nil, fmt.Errorf("backend %s: URL %q must be unix:///path or https://host:port", b.Name, b.URL)
	}
	policy := upstream.NewPolicy(&backend.Spec{})
	// Who configured them protects them; limits are for those registered later.
	policy.Concurrent = 0
	srv := &server{name: b.Name, id: b.URL, target: "backend/" + b.Name, checkURL: b.URL + "/apis"}
	if endpoint.Network == "unix" {
		srv.suspect = socketSuspectInterval
	}
	srv.up = newProxied(upstream.Config{
		Base: endpoint.Base, Endpoints: []upstream.Endpoint{endpoint}, Trust: t, Policy: policy,
		Broken: func(url string) { s.suspect(srv, url) }, Changed: s.news.Poke,
	}, s.proxies)
	srv.source = aggregate.NewSource(aggregate.Config{
		Name: b.Name, BaseURL: endpoint.Base.String(), Identify: identifyAggregator,
		Transport:      srv.up.Long(),
		OpenAPIChanged: srv.openAPINews.Poke,
	})
	return srv, nil
}

// serverID identifies the server an APIService names, with all that changes
// how it is reached.
func serverID(a *apireg.APIService) string {
	scheme, host, _ := serviceURL(a.Spec.Service)
	return fmt.Sprintf("%s://%s insecure=%v ca=%s", scheme, host, a.Spec.InsecureSkipTLSVerify, digest(a.Spec.CABundle))
}

// discoveryURL is what the availability check of a registered server asks for.
func discoveryURL(a *apireg.APIService) string {
	scheme, host, _ := serviceURL(a.Spec.Service)
	if a.Spec.Group == "" {
		return scheme + "://" + host + "/api/" + a.Spec.Version
	}
	return scheme + "://" + host + "/apis/" + a.Spec.Group + "/" + a.Spec.Version
}

// serverFor returns the server that an APIService names, made anew if its
// identity changed, with the present addresses.
func (s *syncer) serverFor(a *apireg.APIService, addresses []string) (*server, error) {
	id := serverID(a)
	old := s.servers[a.Name]
	if old != nil && old.id == id {
		old.up.SetEndpoints(upstream.At(addresses...))
		return old, nil
	}
	roots, err := upstream.ParsePool(a.Spec.CABundle)
	if err != nil {
		return nil, err
	}
	scheme, host, serverName := serviceURL(a.Spec.Service)
	base := &url.URL{Scheme: scheme, Host: host}
	srv := &server{name: a.Name, id: id, target: "apiservice/" + a.Name, checkURL: discoveryURL(a)}
	t := upstream.Trust{
		Roots: func() *x509.CertPool { return roots }, Insecure: a.Spec.InsecureSkipTLSVerify,
		ServerName: serverName, Certificate: s.trust.Certificate,
	}
	srv.up = newProxied(upstream.Config{
		Base: base, Endpoints: upstream.At(addresses...), Trust: t, Policy: upstream.NewPolicy(&backend.Spec{}),
		Broken: func(url string) { s.suspect(srv, url) }, Changed: s.news.Poke,
	}, s.proxies)
	cfg := aggregate.Config{
		Name: a.Name, BaseURL: base.String(), Transport: srv.up.Long(), Identify: identifyAggregator,
		GroupVersions: []schema.GroupVersion{groupVersion(a)},
	}
	if old != nil && old.source.Heard() {
		// Same group/version, reached another way: what it said stands until
		// the new server speaks.
		cfg.Previous, _ = old.source.GroupVersions()
	}
	srv.source = aggregate.NewSource(cfg)
	if kept := s.restoredVersions(a.Name); kept != nil {
		srv.source.Restore(kept)
	}
	return srv, nil
}

// availabilityTarget is how the checker asks the server: its discovery, which
// also tells what is new.
func (srv *server) availabilityTarget(s *syncer) availability.Target {
	return availability.Target{
		ID: srv.target, Version: srv.id, Schedule: availability.Schedule{Suspect: srv.suspect},
		Probe: func(ctx context.Context) error {
			changed, err := srv.source.Check(ctx)
			if err != nil {
				return withoutPorts(err)
			}
			srv.answered.Poke()
			switch {
			case changed && srv.followed.Load():
				s.sourceChanged(srv)
			case srv.followed.Load():
				srv.openAPINews.Poke()
			case srv.refreshOpenAPI(ctx) || changed:
				s.news.Poke()
			}
			return nil
		},
	}
}

// refreshOpenAPI brings what is known of the server's OpenAPI up to date and
// reports whether it is new. It comes after discovery, which says what to look
// for in it. A failure is no verdict on the server: the index stays as it was.
func (srv *server) refreshOpenAPI(ctx context.Context) bool {
	srv.openAPI.Lock()
	defer srv.openAPI.Unlock()
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), openAPITimeout)
	defer cancel()
	changed, err := srv.source.RefreshOpenAPI(ctx)
	return err == nil && changed
}

// withoutPorts takes the gateway's own port out of network errors: it differs
// each time, and a condition that changes with every check would be written
// with every check.
func withoutPorts(err error) error {
	var op *net.OpError
	if !errors.As(err, &op) || op.Source == nil {
		return err
	}
	plain := *op
	plain.Source = nil
	return &plain
}

// placement is where requests for one APIService go.
type placement struct {
	local     bool    // the gateway itself
	nowhere   bool    // nobody: a 404
	server    *server // who answers, or answered when last heard of
	condition apiservice.Condition
	verdict   bool      // the condition is the checker's, of a server that was good before
	since     time.Time // of the verdict
}

// route makes the table entry.
func (p placement) route(name string) *route {
	r := &route{name: name, local: p.local, condition: p.condition}
	if p.server != nil {
		r.upstream = p.server.up
	}
	return r
}
