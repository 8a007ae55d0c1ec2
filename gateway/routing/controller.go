// Package routing decides where requests go. It reconciles what is registered and the state
// of servers into immutable snapshots: the route table (package gateway/proxy), the discovery
// documents, the index of OpenAPI documents and the conditions of APIServices and Backends.
//
//   - controller.go has the inputs (APIServices, Backends, Services, EndpointSlices, verdicts
//     of checks), the loop that any change of them wakes, and what it publishes.
//   - reconcile.go computes everything from the inputs, in three steps: servers of Backends
//     (backendstate.go), a decision per APIService (decision.go), and from these the snapshots.
//   - server.go has a server: its connections (package gateway/proxy) and its discovery. It is
//     reused across reconciles by identity, and closed when no Backend or APIService
//     describes it. checks.go defines its availability checks, metrics.go counts them, and
//     stream.go follows its discovery.
//   - outages.go logs what becomes unavailable, and what is available again.
//   - openapi.go has the index of OpenAPI documents, and saved.go what is restored after a
//     restart (package gateway/lastgood).
//
// A Backend of the gateway's flags is a StaticBackend; joined with the stored Backend, or
// stored only, it is an EffectiveBackend; with its Server, a BackendState.
//
// No request waits for a server: checks and streams run in goroutines of their own, and the
// last answer is used meanwhile. Of the gateway's packages it imports proxy, upstream and
// lastgood.
//
// Runs in: gateway.
package routing

import (
	"context"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	apireg "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"

	"portico/apiservice"
	"portico/apiservice/availability"
	"portico/apiservice/backend"
	"portico/discovery"
	"portico/gateway/proxy"
	"portico/gateway/upstream"
	"portico/resource"
	"portico/resource/fairshare"
	"portico/resource/loop"
	"portico/resource/rest"
)

// Config of a Controller.
type Config struct {
	// Own are the group/versions that the gateway serves itself.
	Own []discovery.GroupVersion
	// StaticBackends are the Backends that the gateway starts with.
	StaticBackends []*StaticBackend
	// Trust has the certificate that is shown to servers.
	Trust upstream.Trust
	// Via is the gateway's id in requests to servers, by which it detects loops. nil:
	// requests carry none.
	Via *upstream.Via
	// Lasting bounds the connections to servers that carry one long-running request each.
	// nil: no bound.
	Lasting *fairshare.Limit
	// Grace is how long the discovery of a server that is down remains Current; then it is
	// Stale. Default 0: until the server is unregistered.
	Grace time.Duration
	// Changed is called when routes, conditions or the discovery of a server may have
	// changed, EndpointChanged when the state of an endpoint has. They must not block. nil: not
	// called.
	Changed, EndpointChanged func()
	// Logger, nil: slog.Default().
	Logger *slog.Logger
}

// Controller computes the snapshots. Setters store the inputs and wake the goroutine of Run,
// which reconciles; Check must run as well and asks the servers. All methods are safe for
// concurrent use except SetAddress, which is called before Run, and Reconcile.
type Controller struct {
	log                 *slog.Logger
	checker             *availability.Checker
	proxies             *proxy.Maker
	trust               upstream.Trust
	via                 *upstream.Via
	lasting             *fairshare.Limit
	own                 []discovery.GroupVersion
	address             string
	grace               time.Duration
	static              []*StaticBackend
	traffic             *proxy.Traffic
	checks              *checkMetrics
	changed, onEndpoint func()
	began               time.Time

	wake loop.Signal

	mu    sync.Mutex // guards in and saved
	in    inputs
	saved map[string]savedServer // by target

	// Of Run only:
	lifetime context.Context    // nil: before Run
	servers  map[string]*Server // by target
	made     int                // servers so far
	// unresolved is since when the Service or Backend of an APIService, by name, or the
	// Service of a Backend, by target, cannot be resolved.
	unresolved map[string]time.Time
	outages    map[subject]*outage // that were logged
	followers  sync.WaitGroup      // goroutines that follow servers, or wait for closed ones

	live          atomic.Pointer[map[string]*Server] // servers, immutable
	table         atomic.Pointer[proxy.Table]
	documents     discovery.Current
	openAPI       atomic.Pointer[OpenAPI]
	conditions    atomic.Pointer[map[string]apiservice.Condition]
	backendStates atomic.Pointer[BackendStates]
}

// New makes a Controller. Nothing starts before Run and Check.
func New(cfg Config) *Controller {
	if cfg.Logger == nil {
		cfg.Logger = slog.Default()
	}
	if cfg.Changed == nil {
		cfg.Changed = func() {}
	}
	if cfg.EndpointChanged == nil {
		cfg.EndpointChanged = func() {}
	}
	s := &Controller{
		log: cfg.Logger, proxies: proxy.NewMaker(cfg.Logger), trust: cfg.Trust, via: cfg.Via, lasting: cfg.Lasting, own: cfg.Own, grace: cfg.Grace,
		began: time.Now(), static: cfg.StaticBackends, traffic: proxy.NewTraffic(), checks: newCheckMetrics(), changed: cfg.Changed, onEndpoint: cfg.EndpointChanged,
		outages: map[subject]*outage{},
	}
	s.checker = availability.New(availability.Config{
		Logger: cfg.Logger, OnChange: func(string, availability.Verdict) { s.wake.Set() },
	})
	return s
}

// inputs are the latest states of what is watched.
type inputs struct {
	apiservices  []*apireg.APIService
	haveServices bool // apiservices were read, not restored
	backends     []*backend.Backend
	haveBackends bool // backends were read, not restored
	services     *services
}

// known reports whether routes can be computed.
func (n *inputs) known() bool {
	return (n.haveServices || n.apiservices != nil) && (n.haveBackends || n.backends != nil)
}

// SetAddress sets the host:port in /api, before Run.
func (s *Controller) SetAddress(address string) { s.address = address }

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

// followWindow is how long changes of an APIService or Backend are collected. It is short,
// because the client that made the change waits for its effect.
const followWindow = time.Millisecond

// Follow takes every state of the stored APIServices and Backends as input, once the last-good
// discovery of their servers is restored, until ctx ends. restored waits for that, and returns
// false if ctx ended.
func (s *Controller) Follow(ctx context.Context, apiservices, backends *rest.Resource, restored func(context.Context) bool) error {
	return loop.Together(ctx,
		func(ctx context.Context) error { return follow(ctx, s.log, apiservices, restored, s.SetAPIServices) },
		func(ctx context.Context) error { return follow(ctx, s.log, backends, restored, s.SetBackends) },
	)
}

// follow passes every state of a resource to set. Unchanged objects are not decoded again: of
// thousands, most changes are of one.
func follow[T any](ctx context.Context, log *slog.Logger, r *rest.Resource, restored func(context.Context) bool, set func([]T)) error {
	decoded := map[*resource.Object]T{}
	return loop.Follow(ctx, r.Store, loop.FollowOptions{Logger: log, Window: followWindow}, func(snapshot loop.Snapshot) {
		list, before := make([]T, 0, len(snapshot.Items)), decoded
		decoded = make(map[*resource.Object]T, len(snapshot.Items))
		for _, o := range snapshot.Items {
			v, ok := before[o]
			if !ok {
				obj, err := r.Decode(o)
				if err != nil {
					log.Error("an object does not decode and is left out", "resource", r.Resource, "name", o.Name, "err", err)
					continue
				}
				v = any(obj).(T)
			}
			decoded[o] = v
			list = append(list, v)
		}
		if restored(ctx) {
			set(list)
		}
	})
}

// update changes the inputs and wakes the controller.
func (s *Controller) update(change func(n *inputs)) {
	s.mu.Lock()
	change(&s.in)
	s.mu.Unlock()
	s.wake.Set()
}

// snapshot returns the current inputs.
func (s *Controller) snapshot() inputs {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.in
}

// Check runs the availability checks of all servers until ctx ends.
func (s *Controller) Check(ctx context.Context) error { return s.checker.Run(ctx) }

// Run reconciles whenever an input changes, and once a minute, until ctx ends. Then it closes
// all servers.
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
			s.closeAll()
			return ctx.Err()
		case <-s.wake.C():
		case <-timer:
		case <-refresh.C:
		}
	}
}

// closeAll closes all servers.
func (s *Controller) closeAll() {
	for _, srv := range s.servers {
		s.closeServer(srv)
	}
	s.followers.Wait()
}

// liveServers returns the current servers by target. It must not be changed.
func (s *Controller) liveServers() map[string]*Server {
	if live := s.live.Load(); live != nil {
		return *live
	}
	return nil
}

// upstreams returns the upstreams of all servers, by their names in metrics.
func (s *Controller) upstreams() map[string]*upstream.Upstream {
	out := map[string]*upstream.Upstream{}
	for _, srv := range s.liveServers() {
		out[srv.shownAs()] = srv.Up.Upstream
	}
	return out
}

// Listed returns the stored APIServices; ok is false before they were read.
func (s *Controller) Listed() (list []*apireg.APIService, ok bool) {
	n := s.snapshot()
	return n.apiservices, n.haveServices
}

// Known reports whether the stored APIServices and Backends have been read.
func (s *Controller) Known() bool {
	n := s.snapshot()
	return n.haveServices && n.haveBackends
}

// AllChecked reports whether every APIService has been checked; false before conditions are computed.
func (s *Controller) AllChecked() bool {
	conditions := s.Conditions()
	for _, c := range conditions {
		if c.Reason == Unchecked().Reason {
			return false
		}
	}
	return conditions != nil
}

// Ready reports whether the first table and documents were computed from what is stored, not
// from what was restored.
func (s *Controller) Ready() bool {
	n := s.snapshot()
	return n.haveServices && n.haveBackends && s.table.Load() != nil && s.documents.Load() != nil
}

// Table returns the current routes; nil before there are any. A Table is never changed.
func (s *Controller) Table() *proxy.Table { return s.table.Load() }

// Discovery returns the discovery documents of the gateway, those of all servers included.
func (s *Controller) Discovery() *discovery.Current { return &s.documents }

// OpenAPI returns the index of OpenAPI documents; nil before it is computed.
func (s *Controller) OpenAPI() *OpenAPI { return s.openAPI.Load() }

// Conditions returns the condition Available of every APIService, as this gateway finds it;
// nil before it is computed. It must not be changed.
func (s *Controller) Conditions() map[string]apiservice.Condition {
	if known := s.conditions.Load(); known != nil {
		return *known
	}
	return nil
}

// BackendStates returns the state of every Backend; nil before it is computed.
func (s *Controller) BackendStates() *BackendStates { return s.backendStates.Load() }

// WhyUnknown returns why the discovery of a registered group/version is not known: the
// condition of its APIService or, if that is good, the error of its document; "" before the
// first check.
func (s *Controller) WhyUnknown(group, version string) string {
	rt := s.Table().Lookup(group, version)
	switch {
	case rt == nil || rt.Local:
		return ""
	case !rt.Condition.Available() && rt.Condition.Reason != Unchecked().Reason:
		return rt.Condition.Reason + ": " + rt.Condition.Message
	}
	for _, srv := range s.liveServers() {
		if srv.Up != rt.Upstream {
			continue
		}
		for _, u := range srv.Source.Unread() {
			if u.GroupVersion.Group == group && u.GroupVersion.Version == version {
				return StableText(u.Err.Error())
			}
		}
		if v := s.DiscoveryVerdict(srv); v.Known && !v.Healthy {
			return v.Err.Error()
		}
	}
	return ""
}

// Metrics returns the metrics of servers, their checks and the requests to them.
func (s *Controller) Metrics() []prometheus.Collector {
	return append(s.traffic.Metrics(), s.checks.total, s.checks.duration, proxy.NewUpstreamMetrics(s.upstreams), newDroppedMetric(s))
}
