package serve

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"syscall"
	"testing"
	"time"

	"portico/resource"
	"portico/resource/audit"
)

// BenchmarkAudit measures the audit of a request, with what is written in the background: at
// level Metadata with one event, at level None, and without a policy.
func BenchmarkAudit(b *testing.B) {
	const rules = "- {level: %s, omitStages: [RequestReceived]}\n"
	for _, tc := range []struct{ name, level, mode string }{
		{"off", "", ""}, {"none", "None", audit.ModeBatch}, {"metadata/batch", "Metadata", audit.ModeBatch}, {"metadata/blocking", "Metadata", audit.ModeBlocking},
	} {
		b.Run(tc.name, func(b *testing.B) {
			change := func(*testConfig) {}
			if tc.level != "" {
				change, _ = auditing(b, fmt.Sprintf(rules, tc.level), func(o *audit.Options) { o.Log.Delivery.Mode = tc.mode })
			}
			s := newTestServer(b, ok, change, func(c *testConfig) { c.Authenticator = authenticate(benchUser) })
			ctx, cancel := context.WithCancel(context.Background())
			ended := make(chan struct{})
			go func() { defer close(ended); s.chain.Run(ctx) }()
			b.ReportAllocs()
			before := processorTime(b)
			defer func() {
				cancel()
				<-ended // everything is written
				b.ReportMetric(float64(processorTime(b)-before)/float64(b.N), "cpu-ns/op")
			}()
			for b.Loop() {
				r := httptest.NewRequest("GET", "/api/v1/namespaces/default/configmaps/a", nil)
				r.Header = http.Header{"Accept": {"application/json"}, "User-Agent": {"kubectl/v1.37.0 (linux/amd64) kubernetes/abcdef0"}}
				s.chain.ServeHTTP(&discard{header: make(http.Header)}, r)
			}
		})
	}
}

// benchUser authenticates every request as a service account.
func benchUser(*http.Request) (*resource.User, bool, error) {
	return &resource.User{
		Name: "system:serviceaccount:default:bench", UID: "59a7c3d5-8d8b-4f0e-a0ee-2a2f8d6a1b00",
		Groups: []string{"system:serviceaccounts", "system:serviceaccounts:default", "system:authenticated"},
		Extra:  map[string][]string{"authentication.kubernetes.io/credential-id": {"JTI=59a7c3d5-8d8b-4f0e-a0ee-2a2f8d6a1b00"}},
	}, true, nil
}

// discard is a response that is not kept.
type discard struct{ header http.Header }

func (n *discard) Header() http.Header         { return n.header }
func (n *discard) Write(b []byte) (int, error) { return len(b), nil }
func (n *discard) WriteHeader(int)             {}

func processorTime(b *testing.B) time.Duration {
	b.Helper()
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		b.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
