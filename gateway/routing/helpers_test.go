package routing

import (
	"context"
	"log/slog"
	"net/url"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	apireg "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"

	"portico/apiservice"
	"portico/discovery"
	"portico/gateway/proxy"
	"portico/gateway/upstream"
)

// onSocket returns a static Backend.
func onSocket(t testing.TB, name, path string) *StaticBackend {
	t.Helper()
	c, err := NewStaticBackend(Backend{Name: name, URL: "unix://" + path}, upstream.Trust{})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// fakeBackend adds a static Backend with a server that has the source and no connections.
func fakeBackend(t testing.TB, s *Controller, name string, source Source) {
	t.Helper()
	s.static = append(s.static, onSocket(t, name, "/absent/"+name))
	s.proxies = proxy.NewMaker(slog.New(slog.DiscardHandler))
	srv := &Server{Name: name, target: targetOfBackend(name), Source: source, whole: true}
	srv.Up = proxy.NewUpstream(upstream.Config{
		Base: &url.URL{Scheme: "http", Host: name}, Endpoints: []upstream.Endpoint{{URL: "unix:///absent/" + name, Network: "unix", Address: "/absent", Weight: 1}},
	}, s.proxies)
	srv.id, srv.trust = "https://"+name, "configured"
	if s.servers == nil {
		s.servers = map[string]*Server{}
	}
	s.servers[srv.target] = srv
	s.live.Store(&s.servers)
}

// setSource replaces the source of the server of a Backend.
func (s *Controller) setSource(name string, source Source) {
	s.servers[targetOfBackend(name)].Source = source
}

// startChecks runs the checks until stop is called or the test ends.
func (s *Controller) startChecks(t *testing.T) (stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() { defer close(ended); _ = s.checker.Run(ctx) }()
	stop = func() { cancel(); <-ended }
	t.Cleanup(stop)
	return stop
}

// until waits for a condition.
func until(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for end := time.Now().Add(20 * time.Second); !ok(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("never: %s", what)
		}
	}
}

// custom is the APIService of a custom resource.
func custom(gv discovery.GroupVersion, backend string) *apireg.APIService {
	return &apireg.APIService{
		ObjectMeta: metav1.ObjectMeta{
			Name:        apiservice.Name(gv.Group, gv.Version),
			Labels:      map[string]string{apiservice.AutomanagedLabel: apiservice.Managed},
			Annotations: map[string]string{apiservice.BackendAnnotation: backend},
		},
		Spec: apireg.APIServiceSpec{
			Group: gv.Group, Version: gv.Version, GroupPriorityMinimum: discovery.DefaultGroupPriority, VersionPriority: discovery.CustomVersionPriority,
		},
	}
}

func widgets() []discovery.GroupVersion {
	return []discovery.GroupVersion{{Group: "widgets.example.com", Version: "v1"}, {Group: "gateway.networking.k8s.io", Version: "v1"}}
}

const one, two = "https://one", "https://two"
