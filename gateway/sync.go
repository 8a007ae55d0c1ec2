package gateway

import (
	"context"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"
	apireg "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"

	"portico/apiservice"
	"portico/apiservice/availability"
	"portico/discovery"
	"portico/gateway/upstream"
	"portico/resource/loop"
)

// graceDefault is how long what a server said counts as current after the
// server went away.
const graceDefault = 60 * time.Second

// syncer translates news into snapshots: APIServices, the services they name
// and the verdicts on servers go in; the route table, the discovery documents
// and the conditions come out. One goroutine (run) does all of it; setters only
// note the news and wake it.
type syncer struct {
	log      *slog.Logger
	checker  *availability.Checker
	proxies  *proxies
	trust    upstream.Trust // certificate shown to servers
	own      []discovery.GroupVersion
	address  string // host:port that /api names
	grace    time.Duration
	backends []*server

	news loop.Nudge

	mu           sync.Mutex // guards what setters write
	apiservices  []*apireg.APIService
	haveServices bool // apiservices were followed at least once
	services     *services
	// versions are what servers of APIServices said to an earlier gateway.
	versions map[string][]discovery.GroupVersion

	servers map[string]*server // by APIService name; of run only
	// unresolved are the APIServices whose service cannot be found, and since
	// when; of run only.
	unresolved map[string]time.Time
	live       atomic.Pointer[map[string]*server] // the same, for others; immutable

	table      atomic.Pointer[table]
	documents  discovery.Current
	openAPI    atomic.Pointer[openAPIIndex]
	conditions atomic.Pointer[map[string]apiservice.Condition]
	// changed wakes who writes conditions and automanaged APIServices.
	changed []*loop.Nudge
}

// run reconciles until ctx ends.
func (s *syncer) run(ctx context.Context) error {
	refresh := time.NewTicker(time.Minute)
	defer refresh.Stop()
	for {
		next := s.reconcile(ctx)
		var timer <-chan time.Time
		if next > 0 {
			timer = time.After(next)
		}
		select {
		case <-ctx.Done():
			s.retire()
			return ctx.Err()
		case <-s.news.C():
		case <-timer:
		case <-refresh.C:
		}
	}
}

func (s *syncer) setAPIServices(list []*apireg.APIService) {
	s.mu.Lock()
	s.apiservices, s.haveServices = list, true
	s.mu.Unlock()
	s.news.Poke()
}

func (s *syncer) setServices(v *services) {
	s.mu.Lock()
	s.services = v
	s.mu.Unlock()
	s.news.Poke()
}

// listed returns the APIServices as of the last news from etcd; ok is false
// before any.
func (s *syncer) listed() (list []*apireg.APIService, ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.apiservices, s.haveServices
}

// ready reports whether the first table and documents are there.
func (s *syncer) ready() bool {
	_, ok := s.listed()
	return ok && s.table.Load() != nil && s.documents.Load() != nil
}

// reconcile computes everything anew from what is known now and swaps it in.
// It returns after what time something changes by itself (a grace period
// ends); 0 is never.
func (s *syncer) reconcile(ctx context.Context) time.Duration {
	s.mu.Lock()
	list, ok, known := s.apiservices, s.haveServices, s.services
	s.mu.Unlock()
	if !ok && list == nil { // nor restored
		s.checker.Set(s.targets(nil))
		return 0
	}

	m := newMerge(s)
	live := map[string]*server{}
	for _, a := range apiservice.Ordered(list) {
		m.add(a, s.place(a, known, live, m))
	}
	s.checker.Set(s.targets(live))
	for name, old := range s.servers {
		if live[name] != old {
			old.up.Close()
		}
	}
	s.servers, s.unresolved = live, m.unresolved
	s.live.Store(&live)
	s.publish(m)
	return m.next
}

// place decides where requests for an APIService go, and why if nowhere.
func (s *syncer) place(a *apireg.APIService, known *services, live map[string]*server, m *merge) placement {
	switch ref := a.Spec.Service; {
	case ref == nil && s.owns(a):
		return placement{local: true, condition: apiservice.Local()}
	case ref == nil:
		for _, b := range s.backends {
			if b.name == a.Annotations[apiservice.BackendAnnotation] {
				return s.judge(a, b, apiservice.Local())
			}
		}
		return placement{nowhere: true, condition: apiservice.Local()}
	default:
		addresses, failed := known.resolve(ref)
		if failed != nil {
			// The server may still be known from before: its documents stay.
			p := placement{condition: *failed, since: m.failing(a.Name)}
			if old := s.servers[a.Name]; old != nil && old.id == serverID(a) {
				live[a.Name] = old
				p.server = old
			}
			return p
		}
		srv, err := s.serverFor(a, addresses)
		if err != nil {
			return placement{condition: apiservice.FailedDiscoveryCheck(discoveryURL(a), err)}
		}
		live[a.Name] = srv
		return s.judge(a, srv, apiservice.Passed())
	}
}

// judge turns the verdict on a server into a placement. Until the first
// verdict what the APIService says stands: a gateway that starts anew neither
// cuts off a good server nor flaps the condition.
func (s *syncer) judge(a *apireg.APIService, srv *server, good apiservice.Condition) placement {
	v := s.verdict(srv)
	srv.wasGood = srv.wasGood || v.Healthy
	// A server that was not reached since this gateway began has been away for
	// as long as the APIService says.
	p := placement{server: srv, condition: good, since: v.Since, verdict: v.Known && srv.wasGood}
	if v.Known && !v.Healthy {
		p.condition = apiservice.FailedDiscoveryCheck(srv.checkURL, v.Err)
	}
	if !v.Known {
		stored, ok := apiservice.Current(a)
		if !ok {
			stored = apiservice.Condition{Status: apireg.ConditionUnknown, Reason: "Checking", Message: "the server has not been checked yet"}
		}
		p.condition = stored
	}
	return p
}

// owns reports whether the gateway serves the group/version itself.
func (s *syncer) owns(a *apireg.APIService) bool {
	return slices.ContainsFunc(s.own, func(gv discovery.GroupVersion) bool {
		return gv.Group == a.Spec.Group && gv.Version == a.Spec.Version
	})
}

// targets returns what is to be checked: every backend and registered server.
func (s *syncer) targets(live map[string]*server) []availability.Target {
	out := make([]availability.Target, 0, len(live)+len(s.backends))
	for _, srv := range s.backends {
		out = append(out, srv.checks(s)...)
	}
	for _, name := range slices.Sorted(maps.Keys(live)) {
		out = append(out, live[name].checks(s)...)
	}
	return out
}

// publish swaps in what a merge made. Documents that say the same as before
// are not replaced.
func (s *syncer) publish(m *merge) {
	s.table.Store(&table{routes: m.routes})
	docs, err := discovery.BuildAfter(s.documents.Load(), m.entries, s.address)
	if err != nil {
		s.log.Error("building discovery failed", "err", err)
	} else if old := s.documents.Load(); old == nil || !old.Equal(docs) {
		s.documents.Store(docs)
	}
	s.openAPI.Store(m.openAPI)
	s.conditions.Store(&m.conditions)
	for _, n := range s.changed {
		n.Poke()
	}
}

// retire closes what is live when the gateway stops.
func (s *syncer) retire() {
	for _, srv := range s.servers {
		srv.up.Close()
	}
	for _, srv := range s.backends {
		srv.up.Close()
	}
}

// groupVersion returns the APIService's group/version.
func groupVersion(a *apireg.APIService) schema.GroupVersion {
	return schema.GroupVersion{Group: a.Spec.Group, Version: a.Spec.Version}
}
