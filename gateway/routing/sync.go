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
	"portico/discovery/sources"
	"portico/gateway/proxy"
	"portico/gateway/upstream"
	"portico/resource/fairshare"
	"portico/resource/loop"
)

// absentAfter is how long a group/version that no server has, or whose Service does not
// exist, is treated as one whose server is away: it may be deleted to be made anew.
const absentAfter = 60 * time.Second

// Sync translates news into snapshots: APIServices, Backends, the services
// they name and the verdicts on servers go in; the route table, the discovery
// documents, the conditions and how each Backend stands come out. One goroutine
// (Run) does all of it; setters only note the news and wake it.
//
// Run and Check are to run side by side: without the one nothing that is found out
// becomes a route, without the other nothing is found out. All methods are safe for
// concurrent use but SetAddress, which comes before Run, and Reconcile.
type Sync struct {
	log        *slog.Logger
	checker    *availability.Checker
	proxies    *proxy.Maker
	trust      upstream.Trust // certificate shown to servers
	via        *upstream.Via  // the gateway's id, in requests to servers
	lasting    *fairshare.Limit
	own        []discovery.GroupVersion
	address    string // host:port that /api names
	grace      time.Duration
	configured []*Configured

	traffic *proxy.Traffic // nil: nobody looks
	checks  *checkMetrics  // nil: nobody looks

	wake loop.Nudge

	mu   sync.Mutex // guards what setters write
	news news
	// versions are what servers said to an earlier gateway, by target, until they
	// speak to this one or are gone.
	versions map[string][]discovery.GroupVersion
	// indexes are the same of their OpenAPI documents.
	indexes map[string]*sources.OpenAPIIndex

	lifetime context.Context    // of Run; nil: before it
	servers  map[string]*Server // by target; of Run only
	made     int                // servers so far; of Run only
	// unresolved are the APIServices whose service cannot be found, by name, and the
	// Backends, by target, and since when; of Run only.
	unresolved map[string]time.Time
	live       atomic.Pointer[map[string]*Server] // servers, for others; immutable
	followers  sync.WaitGroup                     // who follows servers, and who still reads of one that is gone

	table      atomic.Pointer[proxy.Table]
	documents  discovery.Current
	openAPI    atomic.Pointer[OpenAPI]
	conditions atomic.Pointer[map[string]apiservice.Condition]
	standings  atomic.Pointer[Standings]
	// changed wakes who writes conditions and automanaged APIServices, noticed who
	// shows the states of endpoints; nil: nobody does.
	changed, noticed func()
}

// Config of a Sync.
type Config struct {
	// Own are the group/versions that the gateway serves itself.
	Own []discovery.GroupVersion
	// Configured are the servers that the gateway starts with.
	Configured []*Configured
	// Trust has the certificate that is shown to servers.
	Trust upstream.Trust
	// Via is the gateway's id in requests to servers, by which it detects loops. nil:
	// requests carry none.
	Via *upstream.Via
	// Lasting bounds the connections to servers that carry one long-running request
	// each. nil: no bound.
	Lasting *fairshare.Limit
	// Address is the host:port that /api names, until SetAddress says another.
	Address string
	// Grace is how long the discovery of a server that is away stays Current; then it
	// is Stale. Default 0: until the server is unregistered.
	Grace time.Duration
	// Changed is called when routes, conditions or what a server serves may be others
	// than before, Noticed when the state of an endpoint is. They must not wait. nil:
	// nobody is told.
	Changed, Noticed func()
	// Logger, nil: slog.Default().
	Logger *slog.Logger
}

// New makes a Sync. Nothing starts before Run and Check.
func New(cfg Config) *Sync {
	if cfg.Logger == nil {
		cfg.Logger = slog.Default()
	}
	s := &Sync{
		log: cfg.Logger, proxies: proxy.NewMaker(cfg.Logger), trust: cfg.Trust, via: cfg.Via, lasting: cfg.Lasting, own: cfg.Own, address: cfg.Address, grace: cfg.Grace,
		configured: cfg.Configured, traffic: proxy.NewTraffic(), checks: newCheckMetrics(), changed: cfg.Changed, noticed: cfg.Noticed,
	}
	s.checker = availability.New(availability.Config{
		Logger: cfg.Logger, OnChange: func(string, availability.Verdict) { s.wake.Poke() },
	})
	return s
}

// news is what is followed elsewhere, as it was told last.
type news struct {
	apiservices  []*apireg.APIService
	haveServices bool // apiservices were followed at least once
	backends     []*backend.Backend
	haveBackends bool // backends were followed at least once
	services     *services
}

// known reports whether there is enough to go by.
func (n *news) known() bool {
	return (n.haveServices || n.apiservices != nil) && (n.haveBackends || n.backends != nil)
}

// SetAddress says what host:port /api names, before Run.
func (s *Sync) SetAddress(address string) { s.address = address }

// Check asks the servers whether they are there and what they serve, until ctx ends.
func (s *Sync) Check(ctx context.Context) error { return s.checker.Run(ctx) }

// Run reconciles whenever there is news, until ctx ends, and lets go of all servers
// then.
func (s *Sync) Run(ctx context.Context) error {
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

// SetAPIServices takes in every state of the stored APIServices.
func (s *Sync) SetAPIServices(list []*apireg.APIService) {
	s.tell(func(n *news) { n.apiservices, n.haveServices = list, true })
}

// SetBackends takes in every state of the stored Backends.
func (s *Sync) SetBackends(list []*backend.Backend) {
	s.tell(func(n *news) { n.backends, n.haveBackends = list, true })
}

// SetServices takes in every state of the Services and EndpointSlices.
func (s *Sync) SetServices(svc, eps loop.Snapshot) { s.resolveBy(newServices(svc, eps)) }

func (s *Sync) resolveBy(v *services) {
	s.tell(func(n *news) { n.services = v })
}

// tell takes news in.
func (s *Sync) tell(change func(n *news)) {
	s.mu.Lock()
	change(&s.news)
	s.mu.Unlock()
	s.wake.Poke()
}

// endpointChanged is told that the state of an endpoint is another. What follows
// for routes, the checker tells.
func (s *Sync) endpointChanged() {
	if s.noticed != nil {
		s.noticed()
	}
}

// told returns the news so far.
func (s *Sync) told() news {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.news
}

// Listed returns the APIServices as of the last news from etcd; ok is false
// before any.
func (s *Sync) Listed() (list []*apireg.APIService, ok bool) {
	n := s.told()
	return n.apiservices, n.haveServices
}

// Ready reports whether the first table and documents are there, made of what is
// stored. What was restored from before does not count.
func (s *Sync) Ready() bool {
	n := s.told()
	return n.haveServices && n.haveBackends && s.table.Load() != nil && s.documents.Load() != nil
}

// Reconcile computes everything anew from what is known now and swaps it in.
// It returns after what time something changes by itself (a grace period
// ends); 0 is never. Run calls it; who does not run may.
func (s *Sync) Reconcile() time.Duration {
	n := s.told()
	live := map[string]*Server{}
	standings := s.stand(&n, live)
	if !n.known() { // nor restored
		s.settle(live, nil)
		return 0
	}

	m := newMerge(s)
	m.live, m.standings = live, standings
	for _, st := range standings.List {
		if st.failed != nil {
			st.since = m.failing(targetOfBackend(st.Name))
		}
		st.Stale = !st.Condition.Available() && s.grace > 0 && m.over(st.since, s.grace)
	}
	m.own(n.apiservices)
	for _, a := range apiservice.Ordered(n.apiservices) {
		m.add(a, s.place(a, &n, m))
	}
	for _, srv := range live {
		srv.Source.Want(m.wanted[srv])
	}
	s.settle(live, m.unlisted)
	s.unresolved = m.unresolved
	s.publish(m)
	return m.next
}

// settle makes live the servers there are, and lets go of all others. unlisted are
// checks beside those of the servers themselves.
func (s *Sync) settle(live map[string]*Server, unlisted map[*Server][]availability.Target) {
	s.checker.Set(s.targets(live, unlisted))
	for target, old := range s.servers {
		if live[target] != old {
			s.letGo(old)
		}
	}
	s.forgetVersions(s.servers, live)
	s.servers = live
	s.live.Store(&live)
	for _, srv := range live {
		if srv.unfollow == nil && s.lifetime != nil {
			s.follow(s.lifetime, srv)
		}
		// Who restores may have looked before it was there.
		if s.restoreKept(srv) {
			s.wake.Poke()
		}
	}
}

// targets returns what is to be checked: every server, and what it does not list.
func (s *Sync) targets(live map[string]*Server, unlisted map[*Server][]availability.Target) []availability.Target {
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

// upstreams are the ways to all servers, by the names they are shown under.
func (s *Sync) upstreams() map[string]*upstream.Upstream {
	out := map[string]*upstream.Upstream{}
	if live := s.live.Load(); live != nil {
		for _, srv := range *live {
			out[srv.shownAs()] = srv.Up.Upstream
		}
	}
	return out
}

// publish swaps in what a merge made. Documents that say the same as before
// are not replaced.
func (s *Sync) publish(m *merge) {
	if s.traffic != nil {
		s.traffic.Watch(m.routes, s.upstreams())
	}
	s.table.Store(&proxy.Table{Routes: m.routes})
	// Whoever is told of a new index reads it.
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
	s.standings.Store(m.standings)
	if s.changed != nil {
		s.changed()
	}
}

// retire lets go of all servers when the gateway stops.
func (s *Sync) retire() {
	for _, srv := range s.servers {
		s.letGo(srv)
	}
	s.followers.Wait()
}
