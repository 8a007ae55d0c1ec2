package routing

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	apireg "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"

	"portico/apiservice"
	"portico/apiservice/availability"
	"portico/apiservice/backend"
	"portico/discovery"
	"portico/gateway/proxy"
	"portico/resource"
	"portico/resource/loop"
	"portico/resource/rest"
)

// A server is healthy while one endpoint is, unhealthy if all are, and else unknown.
func TestTogether(t *testing.T) {
	at := func(s int) time.Time { return time.Unix(int64(s), 0) }
	good := func(s int) availability.Verdict {
		return availability.Verdict{Known: true, Healthy: true, Since: at(s)}
	}
	bad := func(s int) availability.Verdict {
		return availability.Verdict{Known: true, Err: fmt.Errorf("bad since %d", s), Since: at(s)}
	}
	for name, c := range map[string]struct {
		of             []availability.Verdict
		known, healthy bool
		since          int
		err            string
	}{
		"none":             {},
		"unknown":          {of: []availability.Verdict{{}, {}}},
		"one bad":          {of: []availability.Verdict{{}, bad(1)}},
		"one good":         {of: []availability.Verdict{{}, bad(1), good(2)}, known: true, healthy: true, since: 2},
		"good for longest": {of: []availability.Verdict{good(5), good(3), good(4)}, known: true, healthy: true, since: 3},
		"all bad":          {of: []availability.Verdict{bad(3), bad(5), bad(4)}, known: true, since: 5, err: "bad since 5"},
	} {
		v := together(c.of)
		if v.Known != c.known || v.Healthy != c.healthy || c.known && !v.Since.Equal(at(c.since)) || c.err != "" && v.Err.Error() != c.err {
			t.Errorf("%s: %+v", name, v)
		}
	}
}

// replica is one of several servers behind a Service.
type replica struct {
	*httptest.Server
	requests atomic.Int32
	fail     atomic.Int32 // a status to answer everything with
}

func (r *replica) ServeHTTP(w http.ResponseWriter, req *http.Request) {
	if code := r.fail.Load(); code != 0 {
		w.WriteHeader(int(code))
		return
	}
	if req.URL.Path != "/apis/g.example.com/v1" {
		r.requests.Add(1)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(metav1.APIResourceList{
		TypeMeta: metav1.TypeMeta{Kind: "APIResourceList", APIVersion: "v1"}, GroupVersion: "g.example.com/v1",
		APIResources: []metav1.APIResource{{Name: "things", Kind: "Thing", Verbs: []string{"get"}}},
	})
}

// start serves at an address; "" is a new one.
func (r *replica) start(t *testing.T, address string) {
	t.Helper()
	r.Server = httptest.NewUnstartedServer(r)
	r.EnableHTTP2 = true
	if address != "" {
		l, err := net.Listen("tcp", address)
		if err != nil {
			t.Fatal(err)
		}
		r.Listener.Close()
		r.Listener = l
	}
	r.StartTLS()
	t.Cleanup(r.stop)
}

func (r *replica) stop() {
	r.Listener.Close()
	r.CloseClientConnections()
	r.Close()
}

// replicated routes to a Service with several addresses.
type replicated struct {
	*Controller
	replicas [3]*replica
	front    *httptest.Server
}

func startReplicated(t *testing.T) *replicated {
	t.Helper()
	k, err := apiservice.Kind()
	if err != nil {
		t.Fatal(err)
	}
	log := slog.New(slog.DiscardHandler)
	s := &Controller{log: log, proxies: proxy.NewMaker(log), grace: time.Minute, own: discovery.FromKinds([]*rest.Kind{k})}
	s.checker = availability.New(availability.Config{OnChange: func(string, availability.Verdict) { s.wake.Set() }})
	r := &replicated{Controller: s}
	key := resource.Key{Namespace: "ns", Name: "api"}
	known := &services{service: map[resource.Key]*corev1.Service{}, slices: map[resource.Key][]*discoveryv1.EndpointSlice{}}
	known.service[key] = &corev1.Service{Spec: corev1.ServiceSpec{Ports: []corev1.ServicePort{{Port: 443}}}}
	for i := range r.replicas {
		r.replicas[i] = &replica{}
		r.replicas[i].start(t, "")
		port := int32(r.replicas[i].Listener.Addr().(*net.TCPAddr).Port)
		known.slices[key] = append(known.slices[key], &discoveryv1.EndpointSlice{
			Ports:     []discoveryv1.EndpointPort{{Port: &port}},
			Endpoints: []discoveryv1.Endpoint{{Addresses: []string{"127.0.0.1"}}},
		})
	}
	s.setServices(known)
	s.SetBackends([]*backend.Backend{})
	s.SetAPIServices([]*apireg.APIService{{
		ObjectMeta: metav1.ObjectMeta{Name: "v1.g.example.com"},
		Spec: apireg.APIServiceSpec{
			Group: "g.example.com", Version: "v1", Service: &apireg.ServiceReference{Namespace: "ns", Name: "api"}, InsecureSkipTLSVerify: true,
		},
	}})
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_ = loop.Together(ctx, s.checker.Run, s.Run)
	}()
	r.front = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		act := resource.ParseAction(req)
		act.User = alice()
		(&proxy.Proxy{}).Send(w, req.WithContext(resource.WithAction(req.Context(), act)), r.route())
	}))
	t.Cleanup(func() {
		r.front.Close()
		cancel()
		<-ended
	})
	return r
}

func (r *replicated) route() *proxy.Route { return r.table.Load().Lookup("g.example.com", "v1") }

func (r *replicated) available() bool {
	return r.table.Load() != nil && r.route() != nil && r.route().Unavailable() == nil
}

// states are those of the endpoints, by replica.
func (r *replicated) states() (out [3]backend.EndpointState) {
	for _, e := range r.route().Upstream.Status().Endpoints {
		for i, replica := range r.replicas {
			if strings.HasSuffix(e.URL, replica.Listener.Addr().String()) {
				out[i] = e.State
			}
		}
	}
	return out
}

// all sends requests of all verbs, none of which may fail.
func (r *replicated) all(t *testing.T, when string) {
	t.Helper()
	for i := range 60 {
		method := []string{"GET", "POST", "PUT", "DELETE"}[i%4]
		req, _ := http.NewRequestWithContext(t.Context(), method, r.front.URL+"/apis/g.example.com/v1/things/x", strings.NewReader("{}"))
		res, err := r.front.Client().Do(req)
		if err != nil {
			t.Fatal(err)
		}
		res.Body.Close()
		if res.StatusCode != 200 {
			t.Errorf("%s: %s: %d", when, method, res.StatusCode)
		}
	}
}

// The discovery of a server whose endpoints are checked by themselves is read as often as
// they are checked, within a bound.
func TestDiscoveryInterval(t *testing.T) {
	for every, want := range map[time.Duration]time.Duration{
		0: 5 * time.Second, 100 * time.Millisecond: minDiscoveryInterval, 2 * time.Second: 2 * time.Second, time.Minute: time.Minute,
	} {
		b := &backend.Backend{ObjectMeta: metav1.ObjectMeta{Name: "b"}, Spec: backend.Spec{
			Endpoints: []backend.Endpoint{{URL: one}}, HealthCheck: &backend.HealthCheck{Path: "/readyz"},
		}}
		if every > 0 {
			b.Spec.HealthCheck.Interval = &metav1.Duration{Duration: every}
		}
		s := onService(t, widgetsAt(func(*apireg.APIServiceSpec) {}), b)
		checks := s.servers["backend/b"].checks(s)
		if len(checks) != 2 || checks[0].ID != s.servers["backend/b"].discoveryTarget() || checks[0].Schedule.Interval != want {
			t.Errorf("interval %v: %d checks, discovery each %v, want %v", every, len(checks), checks[0].Schedule.Interval, want)
		}
	}
}

// Requests for a Service with several addresses go to all that answer, and the group is
// available while one does.
func TestReplicas(t *testing.T) {
	r := startReplicated(t)
	healthy, gone := backend.EndpointHealthy, backend.EndpointUnhealthy
	until(t, "all are healthy", func() bool {
		return r.available() && r.states() == [3]backend.EndpointState{healthy, healthy, healthy}
	})
	until(t, "discovery is read", func() bool {
		_, ok := (*r.live.Load())[targetOfAPIService("v1.g.example.com")].Source.GroupVersions()
		return ok
	})
	r.all(t, "all are there")
	for i, replica := range r.replicas {
		if replica.requests.Load() < 5 {
			t.Errorf("replica %d got %d requests of 60", i, replica.requests.Load())
		}
	}
	r.replicas[0].stop()
	r.all(t, "one went away")
	until(t, "it is out", func() bool { return r.states() == [3]backend.EndpointState{gone, healthy, healthy} })
	r.replicas[1].fail.Store(500)
	srv := (*r.live.Load())[targetOfAPIService("v1.g.example.com")]
	for _, e := range srv.Up.Endpoints() {
		r.suspect(srv, e.URL)
	}
	until(t, "one fails its checks", func() bool { return r.states() == [3]backend.EndpointState{gone, gone, healthy} })
	r.all(t, "one is left")
	if !r.available() {
		t.Error("one endpoint works, and the group is away")
	}
	r.replicas[2].stop()
	until(t, "nobody answers", func() bool { return !r.available() })
	if c := r.route().Condition; c.Reason != "FailedDiscoveryCheck" || !strings.Contains(c.Message, "https://api.ns.svc:443/apis/g.example.com/v1") {
		t.Errorf("%+v", c)
	}
	if v := r.documents.Load(); v == nil || r.route() == nil {
		t.Error("the group is gone from discovery")
	}
	r.replicas[0].start(t, r.replicas[0].Listener.Addr().String())
	until(t, "one is back", r.available)
	r.all(t, "one is back")
}
