package routing

import (
	"strings"
	"testing"

	apireg "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"

	"portico/apiservice"
	"portico/apiservice/backend"
)

// Who writes a Backend is told of the others that name the same Service, and which of
// them counts: the one that APIServices of that Service do go by.
func TestWarnOfService(t *testing.T) {
	port := int32(8443)
	same := func(*backend.Spec) {}
	b := func(name string) *backend.Backend { return servedBy(name, same) }
	for name, c := range map[string]struct {
		stored  []*backend.Backend
		written *backend.Backend
		counts  string
		says    string
	}{
		"alone":                   {nil, b("m"), "m", ""},
		"written again":           {[]*backend.Backend{b("m")}, b("m"), "m", ""},
		"after another":           {[]*backend.Backend{b("a")}, b("m"), "a", `named by Backend "a"; APIServices of that Service go by "a", not by this Backend`},
		"before another":          {[]*backend.Backend{b("z")}, b("m"), "m", `named by Backend "z"; APIServices of that Service go by this Backend`},
		"comes to it":             {[]*backend.Backend{b("a"), servedBy("m", func(s *backend.Spec) { s.Service.Name = "other" })}, b("m"), "a", `go by "a", not by this Backend`},
		"leaves it":               {[]*backend.Backend{b("a"), b("m")}, servedBy("m", func(s *backend.Spec) { s.Service.Name = "other" }), "a", ""},
		"between two":             {[]*backend.Backend{b("a"), b("z")}, b("m"), "a", `named by Backend "a", "z"; APIServices of that Service go by "a", not by this Backend`},
		"before many":             {[]*backend.Backend{b("v"), b("w"), b("x"), b("y"), b("z")}, b("m"), "m", `named by Backend "v", "w", "x", 2 more; APIServices of that Service go by this Backend`},
		"another port":            {[]*backend.Backend{servedBy("a", func(s *backend.Spec) { s.Service.Port = &port })}, b("m"), "m", ""},
		"a REST server before it": {[]*backend.Backend{servedBy("a", plain)}, b("m"), "m", ""},
		"a REST server":           {[]*backend.Backend{b("z")}, servedBy("m", plain), "z", ""},
		"one with endpoints": {[]*backend.Backend{b("a")}, servedBy("m", func(s *backend.Spec) {
			s.Service, s.Endpoints = nil, []backend.Endpoint{{URL: "https://m"}}
		}), "a", ""},
	} {
		a := widgetsAt(func(*apireg.APIServiceSpec) {})
		got := onService(t, a, c.stored...).WarnOfService(c.written)
		if got != "" && !strings.HasPrefix(got, "spec.service: port 443 of Service ns/api is also named by ") || !strings.HasSuffix(got, c.says) || c.says == "" && got != "" {
			t.Errorf("%s: %q, want %q", name, got, c.says)
		}
		after := []*backend.Backend{c.written}
		for _, other := range c.stored {
			if other.Name != c.written.Name {
				after = append(after, other)
			}
		}
		s := onService(t, a, after...)
		if st := s.backendStates.Load().byService[keyOf(a.Spec.Service)]; st == nil || st.Name != c.counts {
			t.Errorf("%s: %v counts, want %s", name, st, c.counts)
		}
	}
}

// What is said of a server that the gateway starts with does not count for where it is,
// until somebody takes it over; then it comes before all others.
func TestWarnOfServiceOfConfigured(t *testing.T) {
	s := onService(t, widgetsAt(func(*apireg.APIServiceSpec) {}), servedBy("a", func(*backend.Spec) {}))
	s.configured = []*StaticBackend{{Name: "m"}}
	own := servedBy("m", func(*backend.Spec) {})
	own.Labels = map[string]string{apiservice.AutomanagedLabel: "true"}
	if got := s.WarnOfService(own); got != "" {
		t.Errorf("of what is configured: %s", got)
	}
	own.Labels = nil
	if got := s.WarnOfService(own); !strings.HasSuffix(got, "go by this Backend") {
		t.Errorf("of what was taken over: %q", got)
	}
}

func plain(s *backend.Spec) { s.REST = &backend.REST{Group: "pets.example.com", Version: "v1"} }
