package gateway

import (
	"log/slog"
	"net/url"
	"testing"

	apireg "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"

	"portico/apiservice"
	"portico/apiservice/backend"
	"portico/discovery"
	"portico/gateway/proxy"
	"portico/gateway/upstream"
	"portico/resource"
	"portico/resource/memory"
	"portico/resource/rest"
)

// onSocket is a Backend that a gateway starts with.
func onSocket(t testing.TB, name, path string) *configured {
	t.Helper()
	c, err := newConfigured(Backend{Name: name, URL: "unix://" + path}, upstream.Trust{})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// fakeBackend has a gateway start with a Backend whose server says what a source
// does, and is never connected to.
func fakeBackend(t testing.TB, s *syncer, name string, says source) {
	t.Helper()
	s.configured = append(s.configured, onSocket(t, name, "/nobody/"+name))
	s.proxies = proxy.NewMaker(slog.New(slog.DiscardHandler))
	srv := &server{name: name, target: targetOfBackend(name), source: says}
	srv.up = proxy.NewWay(upstream.Config{
		Base: &url.URL{Scheme: "http", Host: name}, Endpoints: []upstream.Endpoint{{URL: "unix:///nobody/" + name, Network: "unix", Address: "/nobody", Weight: 1}},
	}, s.proxies)
	srv.id = "http://" + name + " configured"
	if s.servers == nil {
		s.servers = map[string]*server{}
	}
	s.servers[srv.target] = srv
	s.live.Store(&s.servers)
}

// says has the server of a Backend say something else.
func (s *syncer) says(name string, what source) {
	s.servers[targetOfBackend(name)].source = what
}

func backendsInMemory(t testing.TB) *rest.Resource {
	t.Helper()
	k, err := backend.Kind()
	if err != nil {
		t.Fatal(err)
	}
	return &rest.Resource{Kind: k, Store: memory.New().Store(&k.Info)}
}

// storedBackends returns what is stored.
func storedBackends(t testing.TB, r *rest.Resource) (out []*backend.Backend) {
	t.Helper()
	list, err := r.Store.List(t.Context(), resource.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	for _, o := range list.Items {
		obj, err := r.Decode(o)
		if err != nil {
			t.Fatal(err)
		}
		out = append(out, obj.(*backend.Backend))
	}
	return out
}

// custom is the APIService of a custom resource.
func custom(gv discovery.GroupVersion, backend string) *apireg.APIService {
	return automanaged(gv, backend, apiservice.Managed, discovery.DefaultGroupPriority, discovery.CustomVersionPriority)
}

func keyNamed(name string) resource.Key { return resource.Key{Name: name} }

func alice() *resource.User {
	return &resource.User{
		Name: "alice", UID: "42", Groups: []string{"dev", "system:authenticated"},
		Extra: map[string][]string{"example.com/scope": {"a", "b"}},
	}
}
