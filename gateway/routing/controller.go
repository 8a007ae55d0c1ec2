package routing

import (
	"context"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	apireg "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"

	"portico/apiservice"
	"portico/apiservice/availability"
	"portico/apiservice/backend"
	"portico/discovery"
	"portico/gateway/proxy"
	"portico/gateway/upstream"
	"portico/resource/fairshare"
	"portico/resource/loop"
)

// absentAfter is how long a group/version that no server has, or whose Service does not
// exist, is treated as one whose server is away: it may be deleted to be made anew.
const absentAfter = 60 * time.Second

// Controller computes snapshots from its inputs: from APIServices, Backends, the Services
// that they name and the verdicts on servers, it computes the route table, the discovery
// documents, the conditions and the state of each Backend. One goroutine (Run) does so;
// setters store the inputs and wake it.
//
// Run and Check must both run: Check asks the servers, and Run publishes what Check finds.
// All methods are safe for concurrent use but SetAddress, which comes before Run, and
// Reconcile.
type Controller struct {
	log        *slog.Logger
	checker    *availability.Checker
	proxies    *proxy.Maker
	trust      upstream.Trust // certificate shown to servers
	via        *upstream.Via  // the gateway's id, in requests to servers
	lasting    *fairshare.Limit
	own        []discovery.GroupVersion
	address    string // host:port in /api
	grace      time.Duration
	configured []*StaticBackend

	traffic *proxy.Traffic // nil: not counted
	checks  *checkMetrics  // nil: not counted

	wake loop.Signal

	mu sync.Mutex // guards what setters write
	in inputs
	// saved has the servers that an earlier gateway read, by target.
	saved map[string]savedServer

	lifetime context.Context    // of Run; nil: before it
	servers  map[string]*Server // by target; of Run only
	made     int                // servers so far; of Run only
	// unresolved says since when the Service of an APIService, by name, or of a Backend, by
	// target, cannot be resolved; of Run only.
	unresolved map[string]time.Time
	live       atomic.Pointer[map[string]*Server] // servers, for others; immutable
	followers  sync.WaitGroup                     // goroutines that follow servers, or wait for the readers of closed ones

	table         atomic.Pointer[proxy.Table]
	documents     discovery.Current
	openAPI       atomic.Pointer[OpenAPI]
	conditions    atomic.Pointer[map[string]apiservice.Condition]
	backendStates atomic.Pointer[BackendStates]
	// changed is called when conditions or what servers serve may have changed, noticed
	// when the state of an endpoint has; nil: not called.
	changed, noticed func()
}

// Config of a Controller.
type Config struct {
	// Own are the group/versions that the gateway serves itself.
	Own []discovery.GroupVersion
	// Configured are the servers that the gateway starts with.
	StaticBackends []*StaticBackend
	// Trust has the certificate that is shown to servers.
	Trust upstream.Trust
	// Via is the gateway's id in requests to servers, by which it detects loops. nil:
	// requests carry none.
	Via *upstream.Via
	// Lasting bounds the connections to servers that carry one long-running request each.
	// nil: no bound.
	Lasting *fairshare.Limit
	// Address is the host:port in /api, until SetAddress sets another.
	Address string
	// Grace is how long the discovery of a server that is away stays Current; then it
	// is Stale. Default 0: until the server is unregistered.
	Grace time.Duration
	// Changed is called when routes, conditions or what a server serves may have changed,
	// Noticed when the state of an endpoint has. They must not block. nil: not called.
	Changed, Noticed func()
	// Logger, nil: slog.Default().
	Logger *slog.Logger
}

// New makes a Controller. Nothing starts before Run and Check.
func New(cfg Config) *Controller {
	if cfg.Logger == nil {
		cfg.Logger = slog.Default()
	}
	s := &Controller{
		log: cfg.Logger, proxies: proxy.NewMaker(cfg.Logger), trust: cfg.Trust, via: cfg.Via, lasting: cfg.Lasting, own: cfg.Own, address: cfg.Address, grace: cfg.Grace,
		configured: cfg.StaticBackends, traffic: proxy.NewTraffic(), checks: newCheckMetrics(), changed: cfg.Changed, noticed: cfg.Noticed,
	}
	s.checker = availability.New(availability.Config{
		Logger: cfg.Logger, OnChange: func(string, availability.Verdict) { s.wake.Set() },
	})
	return s
}

// inputs are the latest states of what other packages follow.
type inputs struct {
	apiservices  []*apireg.APIService
	haveServices bool // apiservices were followed at least once
	backends     []*backend.Backend
	haveBackends bool // backends were followed at least once
	services     *services
}

// known reports whether routes can be computed.
func (n *inputs) known() bool {
	return (n.haveServices || n.apiservices != nil) && (n.haveBackends || n.backends != nil)
}

// SetAddress sets the host:port in /api, before Run.
func (s *Controller) SetAddress(address string) { s.address = address }

// Check runs the availability checks of all servers until ctx ends.
func (s *Controller) Check(ctx context.Context) error { return s.checker.Run(ctx) }

// Run reconciles whenever an input changes, until ctx ends. Then it closes all servers.
func (s *Controller) Run(ctx context.Context) error {
	s.lifetime = ctx
	refresh := time.NewTicker(time.Minute)
	defer refresh.Stop()
	for {
		next := s.Reconcile()
		var timer <-chan time.Time
		if next > 0 {
			timer = time.After(next)
		}
		select {
		case <-ctx.Done():
			s.retire()
			return ctx.Err()
		case <-s.wake.C():
		case <-timer:
		case <-refresh.C:
		}
	}
}

// SetAPIServices sets the stored APIServices.
func (s *Controller) SetAPIServices(list []*apireg.APIService) {
	s.update(func(n *inputs) { n.apiservices, n.haveServices = list, true })
}

// SetBackends sets the stored Backends.
func (s *Controller) SetBackends(list []*backend.Backend) {
	s.update(func(n *inputs) { n.backends, n.haveBackends = list, true })
}

// SetServices sets the Services and EndpointSlices.
func (s *Controller) SetServices(svc, eps loop.Snapshot) { s.setServices(newServices(svc, eps)) }

func (s *Controller) setServices(v *services) { s.update(func(n *inputs) { n.services = v }) }

// update changes the inputs and wakes the controller.
func (s *Controller) update(change func(n *inputs)) {
	s.mu.Lock()
	change(&s.in)
	s.mu.Unlock()
	s.wake.Set()
}

// endpointChanged is called when the state of an endpoint changes. Routes change by the
// verdict of the checker.
func (s *Controller) endpointChanged() {
	if s.noticed != nil {
		s.noticed()
	}
}

// snapshot returns the inputs as they are now.
func (s *Controller) snapshot() inputs {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.in
}

// Listed returns the stored APIServices; ok is false before they were read.
func (s *Controller) Listed() (list []*apireg.APIService, ok bool) {
	n := s.snapshot()
	return n.apiservices, n.haveServices
}

// Ready reports whether the first table and documents were computed from what is stored,
// not from what was restored.
func (s *Controller) Ready() bool {
	n := s.snapshot()
	return n.haveServices && n.haveBackends && s.table.Load() != nil && s.documents.Load() != nil
}

// Reconcile computes everything from the inputs and publishes it. It returns after what
// time something changes by itself (a grace period ends); 0 is never. Run calls it.
func (s *Controller) Reconcile() time.Duration {
	n := s.snapshot()
	live := map[string]*Server{}
	backendStates := s.resolveBackends(&n, live)
	if !n.known() { // nor restored
		s.settle(live, nil)
		return 0
	}

	m := newMerge(s)
	m.live, m.backendStates = live, backendStates
	for _, st := range backendStates.List {
		if st.failed != nil {
			st.since = m.failing(targetOfBackend(st.Name))
		}
		st.Stale = !st.Condition.Available() && s.grace > 0 && m.over(st.since, s.grace)
	}
	m.own(n.apiservices)
	for _, a := range apiservice.Ordered(n.apiservices) {
		m.add(a, s.resolveRoute(a, &n, m))
	}
	for _, srv := range live {
		srv.Source.Want(m.wanted[srv])
	}
	s.settle(live, m.unlisted)
	s.unresolved = m.unresolved
	s.publish(m)
	return m.next
}

// settle makes live the current servers and closes all others. unlisted are checks beside
// those of the servers themselves.
func (s *Controller) settle(live map[string]*Server, unlisted map[*Server][]availability.Target) {
	s.checker.Set(s.targets(live, unlisted))
	for target, old := range s.servers {
		if live[target] != old {
			s.letGo(old)
		}
	}
	s.forgetServers(live)
	s.servers = live
	s.live.Store(&live)
	for _, srv := range live {
		if srv.unfollow == nil && s.lifetime != nil {
			s.follow(s.lifetime, srv)
		}
	}
}

// targets returns the targets of the checker: every server, and what it does not list.
func (s *Controller) targets(live map[string]*Server, unlisted map[*Server][]availability.Target) []availability.Target {
	out := make([]availability.Target, 0, len(live))
	names := make([]checkName, 0, len(live))
	for _, target := range slices.Sorted(maps.Keys(live)) {
		srv := live[target]
		for _, check := range append(srv.checks(s), unlisted[srv]...) {
			out = append(out, check)
			names = append(names, srv.checkNameOf(&check))
		}
	}
	if s.checks == nil {
		return out
	}
	return s.checks.watched(out, func(i int) checkName { return names[i] })
}

// upstreams are those of all servers, by the names in metrics.
func (s *Controller) upstreams() map[string]*upstream.Upstream {
	out := map[string]*upstream.Upstream{}
	for _, srv := range s.liveServers() {
		out[srv.shownAs()] = srv.Up.Upstream
	}
	return out
}

// liveServers returns the current servers by target. It must not be changed.
func (s *Controller) liveServers() map[string]*Server {
	if live := s.live.Load(); live != nil {
		return *live
	}
	return nil
}

// publish publishes the results of a merge. Documents that are equal to the present ones
// are not replaced.
func (s *Controller) publish(m *merge) {
	if s.traffic != nil {
		s.traffic.Watch(m.routes, s.upstreams())
	}
	s.table.Store(&proxy.Table{Routes: m.routes})
	// Stored before the documents: their followers read the index when it changes.
	newIndex := m.openAPI.settle(s.openAPI.Load())
	s.openAPI.Store(m.openAPI)
	old := s.documents.Load()
	docs, err := discovery.BuildAfter(old, m.entries, s.address)
	switch {
	case err != nil:
		s.log.Error("building discovery failed", "err", err)
	case old == nil || !old.Equal(docs):
		s.documents.StoreWith(docs, m.openAPI.state)
	case newIndex:
		s.documents.StoreWith(old, m.openAPI.state)
	}
	s.conditions.Store(&m.conditions)
	s.backendStates.Store(m.backendStates)
	if s.changed != nil {
		s.changed()
	}
}

// retire closes all servers when the gateway stops.
func (s *Controller) retire() {
	for _, srv := range s.servers {
		s.letGo(srv)
	}
	s.followers.Wait()
}
