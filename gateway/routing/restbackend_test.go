package routing

import (
	"net/http/httptest"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apireg "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"

	"portico/apiservice/backend"
	"portico/resource"
	"portico/resource/loop"
)

// A REST Backend with the address of a static Backend gets no server.
func TestRESTOfStaticBackend(t *testing.T) {
	t.Parallel()
	rest := func(name string, r *backend.REST, url string) *backend.Backend {
		return named(name, backend.Spec{Endpoints: []backend.Endpoint{{URL: url}}, REST: r})
	}
	evil := &backend.REST{Group: "evil.example.com", Version: "v1", PathPrefix: "/api/v1"}
	s := newController(t)
	for name, url := range map[string]string{"core": "unix:///run/core.sock", "crd": "https://crd.internal:443", "near": "https://127.0.0.1:7443", "far": "https://10.0.0.1:443"} {
		s.static = append(s.static, &StaticBackend{Name: name, spec: backend.Spec{Endpoints: []backend.Endpoint{{URL: url}}}})
	}
	far := service("far", corev1.ServiceSpec{Type: corev1.ServiceTypeExternalName, ExternalName: "10.0.0.1", Ports: []corev1.ServicePort{{Port: 443}}})
	s.SetServices(followed(t, far), loop.Snapshot{})
	s.SetAPIServices([]*apireg.APIService{userAPIService("evil.example.com", "v1", "socket")})
	s.store(
		rest("socket", evil, "unix:///run/core.sock"), rest("host", evil, "https://CRD.internal"), rest("plain", evil, "http://crd.internal:443"),
		rest("other", evil, "http://crd.internal"), rest("known", nil, "unix:///run/core.sock"), rest("dot", evil, "https://crd.internal."),
		rest("localhost", evil, "http://LocalHost:7443"), rest("v6", evil, "https://[::1]:07443"), rest("mapped", evil, "https://[::ffff:127.0.0.1]:7443"),
		rest("else", evil, "https://127.0.0.2:7443"),
		named("service", backend.Spec{Service: &backend.Service{Namespace: "ns", Name: "far"}, REST: evil}),
	)
	for name, refused := range map[string]bool{"socket": true, "host": true, "plain": true, "other": false, "known": false, "core": false, "crd": false,
		"dot": true, "localhost": true, "v6": true, "mapped": true, "else": false, "service": true} {
		st := s.BackendStates().ByName[name]
		if (st.Server == nil) != refused || (st.Condition.Reason == "RESTNotAllowed") != refused {
			t.Errorf("%s: %+v", name, st.Condition)
		}
	}
	if rt := s.routeOf("evil.example.com"); rt == nil || rt.Upstream != nil || rt.Unavailable() == nil {
		t.Errorf("the route is %+v", rt)
	}
}

// A change of allowAnyBody takes effect with the same server.
func TestRESTAllowAnyBody(t *testing.T) {
	t.Parallel()
	s := newController(t)
	s.SetAPIServices([]*apireg.APIService{userAPIService("shop.example.com", "v1", "shop")})
	var server *Server
	for _, allowed := range []bool{false, true, false} {
		s.store(named("shop", backend.Spec{
			Endpoints: []backend.Endpoint{{URL: "http://127.0.0.1:1"}},
			REST:      &backend.REST{Group: "shop.example.com", Version: "v1", PathPrefix: "/api", AllowAnyBody: allowed},
		}))
		r := httptest.NewRequest("POST", "/apis/shop.example.com/v1/pets", strings.NewReader("a=1"))
		r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
		r = r.WithContext(resource.WithAction(r.Context(), resource.ParseAction(r)))
		if err := s.routeOf("shop.example.com").Refuse(r); (err == nil) != allowed {
			t.Errorf("allowed %v: %v", allowed, err)
		}
		if now := s.BackendStates().ByName["shop"].Server; server != nil && now != server {
			t.Error("the server is made anew")
		} else {
			server = now
		}
	}
}
