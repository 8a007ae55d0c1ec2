package routing

import (
	"context"
	"log/slog"
	"net/url"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	apireg "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"

	"portico/apiservice"
	"portico/apiservice/backend"
	"portico/discovery"
	"portico/gateway/proxy"
	"portico/gateway/upstream"
	"portico/resource"
	"portico/resource/loop"
	"portico/resource/rest"
)

const (
	one, two = "https://one", "https://two"
	// widgetsGroup is the group of most tests.
	widgetsGroup = "widgets.example.com"
)

// newController returns a Controller that nothing runs, without inputs.
func newController(t testing.TB) *Controller {
	t.Helper()
	s := New(Config{Logger: slog.New(slog.DiscardHandler)})
	t.Cleanup(s.closeAll)
	return s
}

// onService returns a Controller with the Service ns/api, an APIService and Backends.
func onService(t *testing.T, a *apireg.APIService, backends ...*backend.Backend) *Controller {
	t.Helper()
	s := newController(t)
	s.SetServices(followed(t,
		service("api", corev1.ServiceSpec{Type: corev1.ServiceTypeExternalName, ExternalName: "api.example.com"})), loop.Snapshot{})
	s.SetAPIServices([]*apireg.APIService{a})
	s.store(backends...)
	return s
}

// store sets the stored Backends and reconciles.
func (s *Controller) store(backends ...*backend.Backend) (next time.Duration) {
	s.SetBackends(backends)
	return s.Reconcile()
}

// routeOf returns the route of v1 of a group.
func (s *Controller) routeOf(group string) *proxy.Route { return s.Table().Lookup(group, "v1") }

// widgetsAt is a user's APIService that names the Service ns/api.
func widgetsAt(change ...func(*apireg.APIServiceSpec)) *apireg.APIService {
	a := userAPIService(widgetsGroup, "v1", "")
	a.Annotations, a.Spec.Service = nil, &apireg.ServiceReference{Namespace: "ns", Name: "api"}
	for _, f := range change {
		f(&a.Spec)
	}
	return a
}

// userAPIService is a user's APIService of a Backend.
func userAPIService(group, version, backend string) *apireg.APIService {
	return &apireg.APIService{
		ObjectMeta: metav1.ObjectMeta{Name: apiservice.Name(group, version), Annotations: map[string]string{apiservice.BackendAnnotation: backend}},
		Spec: apireg.APIServiceSpec{
			Group: group, Version: version, GroupPriorityMinimum: discovery.DefaultGroupPriority, VersionPriority: discovery.CustomVersionPriority,
		},
	}
}

// custom is the automanaged APIService of v1 of a group.
func custom(group, backend string) *apireg.APIService {
	a := userAPIService(group, "v1", backend)
	a.Labels = map[string]string{apiservice.AutomanagedLabel: apiservice.Managed}
	return a
}

// named is a Backend.
func named(name string, spec backend.Spec) *backend.Backend {
	return &backend.Backend{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: spec}
}

// backendAt is the Backend "b" with endpoints; any certificate is accepted.
func backendAt(urls ...string) *backend.Backend {
	b := named("b", backend.Spec{TLS: &backend.TLS{InsecureSkipVerify: true, ClientCertificate: backend.NoneShown}})
	for _, u := range urls {
		b.Spec.Endpoints = append(b.Spec.Endpoints, backend.Endpoint{URL: u})
	}
	return b
}

// servedBy is a Backend that names the Service ns/api.
func servedBy(name string, change ...func(*backend.Spec)) *backend.Backend {
	b := named(name, backend.Spec{Service: &backend.Service{Namespace: "ns", Name: "api"}, Balance: backend.RoundRobin})
	for _, f := range change {
		f(&b.Spec)
	}
	return b
}

// fakeBackend adds a static Backend for a server with the source and no connections.
func fakeBackend(t testing.TB, s *Controller, name string, source Source) {
	t.Helper()
	c, err := NewStaticBackend(Backend{Name: name, URLs: []string{"unix:///absent/" + name}}, upstream.Trust{})
	if err != nil {
		t.Fatal(err)
	}
	s.static = append(s.static, c)
	srv := &Server{Name: name, target: targetOfBackend(name), id: "https://" + name, trust: "configured", Source: source, whole: true}
	srv.Up = proxy.NewUpstream(upstream.Config{
		Base: &url.URL{Scheme: "http", Host: name}, Endpoints: []upstream.Endpoint{{URL: "unix:///absent/" + name, Network: "unix", Address: "/absent", Weight: 1}},
	}, s.proxies)
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

// customGroup is a group with one custom resource.
func customGroup(group string) []discovery.GroupVersion {
	return discovery.FromKinds([]*rest.Kind{{
		Info:         resource.Info{Group: group, Versions: []string{"v1"}, Resource: "widgets", Kind: "Widget", Namespaced: true},
		Subresources: []rest.Subresource{{Name: "status"}},
	}})
}

// widgets are two group/versions without resources.
func widgets() []discovery.GroupVersion {
	return []discovery.GroupVersion{{Group: widgetsGroup, Version: "v1"}, {Group: "gateway.networking.k8s.io", Version: "v1"}}
}
