package routing

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	apireg "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"

	"portico/apiservice"
	"portico/apiservice/backend"
)

// Messages have the real address of a server, or none: the host of requests to it is the
// name of its Backend.
func TestMessagesHaveNoMadeUpAddress(t *testing.T) {
	fails := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { http.Error(w, "no", http.StatusInternalServerError) })
	first, second := httptest.NewTLSServer(fails), httptest.NewTLSServer(fails)
	defer first.Close()
	defer second.Close()
	tls := &backend.TLS{InsecureSkipVerify: true}
	named := func(name string, spec backend.Spec) *backend.Backend {
		spec.TLS = tls
		return &backend.Backend{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: spec}
	}
	both := []backend.Endpoint{{URL: first.URL}, {URL: second.URL}}
	s := onService(t, widgetsAt(func(s *apireg.APIServiceSpec) { s.Service = nil }),
		named("m1", backend.Spec{Endpoints: both[:1]}), named("m2", backend.Spec{Endpoints: both}),
		named("m3", backend.Spec{Endpoints: both[:1], REST: &backend.REST{Group: "shop.example.com", Version: "v1"}}),
		named("m4", backend.Spec{Endpoints: both, REST: &backend.REST{Group: "shop.example.com", Version: "v2"}}),
	)
	s.startChecks(t)
	for name, want := range map[string]string{
		"m1": "from " + first.URL + "/apis: bad status from /api: 500", "m2": "any endpoint of m2: bad status from /api: 500",
		"m3": "from " + first.URL + "/openapi.json: bad status from /openapi.json: 500", "m4": "any endpoint of m4: bad status from /openapi.json: 500",
	} {
		var text string
		until(t, name+": its discovery was read", func() bool {
			s.Reconcile()
			st := s.BackendStates().ByName[name]
			v := s.DiscoveryVerdict(st.Server)
			if v.Known {
				text = apiservice.FailedDiscoveryCheck(st.CheckURL, v.Err).Message
			}
			return v.Known
		})
		if !strings.Contains(text, want) || strings.Contains(text, "https://m") {
			t.Errorf("%s: %q, want one with %q", name, text, want)
		}
		if up := s.BackendStates().ByName[name].Condition.Message; strings.Contains(up, "https://m") {
			t.Errorf("%s: %q", name, up)
		}
	}
}
