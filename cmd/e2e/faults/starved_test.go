package faults

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"portico/cmd/e2e"
)

// starvedRounds is how many requests of each kind TestStarvedProcesses sends; PORTICO_TEST_STARVED sets it.
func starvedRounds(t *testing.T) (rounds int) {
	t.Helper()
	if _, err := fmt.Sscan(os.Getenv("PORTICO_TEST_STARVED"), &rounds); err != nil {
		return 20
	}
	return rounds
}

// While the gateway, the core server and the CRD server get a tenth of their time each, requests are
// slow, and none is refused: an endpoint at work is not taken out.
func TestStarvedProcesses(t *testing.T) {
	t.Parallel()
	up := e2e.Install(t, t.TempDir())
	e2e.Define(t, e2e.DynamicClient(t, up.Config(t)), "starved.example.com")
	const widgets = "/apis/starved.example.com/v1/namespaces/default/widgets"
	up.Shows(t, widgets, `"items":[]`)
	client := e2e.HTTPClient(t, up.Config(t))
	for _, name := range []string{"gateway", "core", "crd"} {
		starve(t, up.Child(t, name))
	}
	began := time.Now()
	for i := range starvedRounds(t) {
		for _, r := range []struct{ method, path, body string }{
			{http.MethodPost, "/api/v1/namespaces/default/configmaps", fmt.Sprintf(`{"metadata":{"name":"starved-%d"}}`, i)},
			{http.MethodGet, fmt.Sprintf("/api/v1/namespaces/default/configmaps/starved-%d", i), ""},
			{http.MethodPost, widgets, fmt.Sprintf(`{"apiVersion":"starved.example.com/v1","kind":"Widget","metadata":{"name":"starved-%d"},"spec":{"size":1}}`, i)},
			{http.MethodGet, widgets, ""},
			{http.MethodGet, "/apis", ""},
		} {
			resp, answer, err := e2e.Ask(t.Context(), client, r.method, up.Endpoint+r.path, r.body)
			if err != nil || resp.StatusCode >= 300 {
				t.Fatalf("%s %s after %v: %v %.500s", r.method, r.path, time.Since(began), err, answer)
			}
		}
	}
	t.Logf("%d requests took %v", 5*starvedRounds(t), time.Since(began))
}

// starve lets a process run a tenth of the time until the test ends.
func starve(t *testing.T, pid int) {
	t.Helper()
	const run, stop = 10 * time.Millisecond, 90 * time.Millisecond
	ended, done := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(done)
		defer syscall.Kill(pid, syscall.SIGCONT)
		for {
			_ = syscall.Kill(pid, syscall.SIGSTOP) // fails if it has ended
			time.Sleep(stop)
			_ = syscall.Kill(pid, syscall.SIGCONT)
			select {
			case <-ended:
				return
			case <-time.After(run):
			}
		}
	}()
	t.Cleanup(func() { close(ended); <-done })
}

// A server that answers everything, checks too, later than its checks wait is unhealthy and gets
// requests all the same. One that answers checks with an error, or cannot be connected to, gets none.
func TestSlowServerGetsRequests(t *testing.T) {
	t.Parallel()
	const group = "slow.example.com"
	up := e2e.SharedInstallation(t)
	var delay, failing atomic.Int64
	answers := things(group)
	server := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		select {
		case <-time.After(time.Duration(delay.Load())):
		case <-r.Context().Done():
		}
		if failing.Load() != 0 {
			http.Error(w, "{}", http.StatusInternalServerError)
			return
		}
		answers(w, r)
	}))
	defer server.Close()
	const backend, list = "/apis/gateway.portico.dev/v1alpha1/backends/slow", "/apis/" + group + "/v1/things"
	up.Post(t, "/apis/gateway.portico.dev/v1alpha1/backends", fmt.Sprintf(`{"apiVersion":"gateway.portico.dev/v1alpha1","kind":"Backend","metadata":{"name":"slow"},"spec":{
		"endpoints":[{"url":%q}],"tls":{"insecureSkipVerify":true},"autoRegister":{"groups":["*"]},"healthCheck":{"interval":"1s","timeout":"400ms"}}}`, server.URL))
	defer up.Do(t, http.MethodDelete, backend, "")
	up.Shows(t, list, "ThingList")

	delay.Store(int64(1500 * time.Millisecond))
	up.Shows(t, backend, "timed out after 400ms")
	for range 3 {
		if code, answer := up.Do(t, http.MethodGet, list, ""); code != http.StatusOK {
			t.Errorf("from the slow server: %d %s", code, answer)
		}
	}
	refused := func(when, because string) {
		t.Helper()
		e2e.Eventually(t, "requests are refused "+when, func() error {
			if code, answer := up.Do(t, http.MethodGet, list, ""); code != http.StatusServiceUnavailable || !strings.Contains(answer, because) {
				return fmt.Errorf("%d %s", code, answer)
			}
			return nil
		})
	}
	delay.Store(0)
	failing.Store(1)
	refused("while its checks fail", "FailedDiscoveryCheck")
	failing.Store(0)
	up.Shows(t, list, "ThingList")
	server.Close()
	refused("without a server", "connection refused")
}
