package core

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"portico/apiservice"
	"portico/backends/process"
)

// The Warning of a namespace deletion names the unavailable APIServices, except APIServices that abandon the namespace or
// name a Service that does not exist. After a failed read the APIServices are not read again for warningPause.
func TestDeletionWarnings(t *testing.T) {
	t.Parallel()
	var reads, fails atomic.Int64
	item := func(name, available, reason, abandons string) string {
		return fmt.Sprintf(`{"metadata":{"name":%q,"annotations":{%q:%q}},"status":{"conditions":[{"type":"Available","status":%q,"reason":%q}]}}`,
			name, apiservice.AbandonAnnotation, abandons, available, reason)
	}
	items := strings.Join([]string{
		item("v1.away.example.com", "False", "FailedDiscoveryCheck", "other"), item("v1.left.example.com", "False", "FailedDiscoveryCheck", "a, shop"),
		item("v1.never.example.com", "False", "ServiceNotFound", ""), item("v1.here.example.com", "True", "Passed", ""),
	}, ",")
	server := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		reads.Add(1)
		if fails.Load() != 0 {
			http.Error(w, "{}", http.StatusServiceUnavailable)
			return
		}
		w.Header().Set("Content-Type", "application/json")
		fmt.Fprintf(w, `{"kind":"APIServiceList","apiVersion":"apiregistration.k8s.io/v1","items":[%s]}`, items)
	}))
	defer server.Close()
	c := newCore(t, Config{Config: process.Config{Gateway: trusting(t, server)}})

	want := []string{"namespace shop may stay Terminating until the servers of these APIServices respond: v1.away.example.com (see its status.conditions)"}
	if got := c.namespaceWarnings(t.Context(), "shop"); !slices.Equal(got, want) {
		t.Errorf("the warnings are %q, want %q", got, want)
	}
	if got := c.namespaceWarnings(t.Context(), "elsewhere"); len(got) != 1 || !strings.Contains(got[0], "v1.away.example.com, v1.left.example.com") {
		t.Errorf("the warnings of another namespace are %q", got)
	}
	fails.Store(1)
	c.drain.warned.mu.Lock()
	c.drain.warned.until = time.Time{}
	c.drain.warned.mu.Unlock()
	before := reads.Load()
	for range 3 {
		if got := c.namespaceWarnings(t.Context(), "shop"); got != nil {
			t.Errorf("without APIServices the warnings are %q", got)
		}
	}
	if n := reads.Load() - before; n != 1 {
		t.Errorf("APIServices are read %d times after a failure, want once", n)
	}
}
