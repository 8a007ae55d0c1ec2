package clients

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"portico/cmd/e2e"
)

// fair is an installation with priority and fairness, in which eve and bob share one level of few
// seats.
type fair struct {
	*e2e.Installation
	eve, bob *http.Client
	object   string // the URL of an object
}

func installFair(t *testing.T) *fair {
	t.Helper()
	up := e2e.Install(t, t.TempDir(), "--enable-priority-and-fairness", "--max-requests-inflight=8", "--max-mutating-requests-inflight=4")
	up.MustKubectl(t, "create", "clusterrolebinding", "fair", "--clusterrole=cluster-admin", "--user=eve", "--user=bob")
	up.MustKubectl(t, "create", "configmap", "a")
	up.Post(t, "/apis/flowcontrol.apiserver.k8s.io/v1/prioritylevelconfigurations", `{"metadata":{"name":"fair"},"spec":{"type":"Limited","limited":{
		"nominalConcurrencyShares":40,"borrowingLimitPercent":0,"limitResponse":{"type":"Queue","queuing":{"queues":64,"handSize":6,"queueLengthLimit":50}}}}}`)
	up.Post(t, "/apis/flowcontrol.apiserver.k8s.io/v1/flowschemas", `{"metadata":{"name":"fair"},"spec":{"matchingPrecedence":10,
		"priorityLevelConfiguration":{"name":"fair"},"distinguisherMethod":{"type":"ByUser"},"rules":[{
		"subjects":[{"kind":"User","user":{"name":"eve"}},{"kind":"User","user":{"name":"bob"}}],
		"resourceRules":[{"verbs":["*"],"apiGroups":["*"],"resources":["*"],"namespaces":["*"],"clusterScope":true}]}]}}`)
	f := &fair{Installation: up, object: up.Endpoint + "/api/v1/namespaces/default/configmaps/a"}
	f.eve, f.bob = e2e.HTTPClient(t, up.UserConfig(t, "eve")), e2e.HTTPClient(t, up.UserConfig(t, "bob"))
	_, level := up.Do(t, http.MethodGet, "/apis/flowcontrol.apiserver.k8s.io/v1/prioritylevelconfigurations/fair", "")
	uid := regexp.MustCompile(`"uid":"([^"]+)"`).FindStringSubmatch(level)
	e2e.Eventually(t, "the level applies to bob", func() error {
		resp, text, err := e2e.Ask(t.Context(), f.bob, http.MethodGet, f.object, "")
		if err == nil && (resp.StatusCode != http.StatusOK || resp.Header.Get("X-Kubernetes-Pf-Prioritylevel-Uid") != uid[1]) {
			err = fmt.Errorf("%s %v %s", resp.Status, resp.Header, text)
		}
		return err
	})
	return f
}

// seats returns a gauge of the level.
func (f *fair) seats(t *testing.T, name string) int {
	t.Helper()
	_, text := f.Do(t, http.MethodGet, "/metrics", "")
	labels := `{flow_schema="fair",priority_level="fair"}`
	if strings.HasSuffix(name, "limit_seats") {
		labels = `{priority_level="fair"}`
	}
	return gauge(t, text, "apiserver_flowcontrol_"+name+labels)
}

// served has bob read the object n times and returns the median time. No answer but 200 is right.
func (f *fair) served(t *testing.T, n int) time.Duration {
	t.Helper()
	var took []time.Duration
	for range n {
		begin := time.Now()
		resp, text, err := e2e.Ask(t.Context(), f.bob, http.MethodGet, f.object, "")
		if err != nil || resp.StatusCode != http.StatusOK {
			t.Fatalf("bob: %v %s", err, text)
		}
		took = append(took, time.Since(begin))
	}
	slices.Sort(took)
	return took[n/2]
}

// busy has 500 clients of eve read the object until the function that it returns is called. A
// client waits after 429, as Retry-After says.
func (f *fair) busy(t *testing.T) (stop func() (served, refused int64)) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	var all sync.WaitGroup
	var ok, refused atomic.Int64
	for range 500 {
		all.Go(func() {
			for ctx.Err() == nil {
				resp, _, err := e2e.Ask(ctx, f.eve, http.MethodGet, f.object, "")
				switch {
				case err != nil:
				case resp.StatusCode == http.StatusTooManyRequests:
					refused.Add(1)
					select {
					case <-ctx.Done():
					case <-time.After(time.Second):
					}
				case resp.StatusCode == http.StatusOK:
					ok.Add(1)
				}
			}
		})
	}
	return func() (int64, int64) { cancel(); all.Wait(); return ok.Load(), refused.Load() }
}

// 500 clients of one user do not keep another one of the same level from being served.
func TestFairnessBesideManyClients(t *testing.T) {
	t.Parallel()
	f := installFair(t)
	quiet := f.served(t, 100)
	stop := f.busy(t)
	defer stop()
	e2e.Eventually(t, "requests of eve wait", func() error {
		if f.seats(t, "current_inqueue_requests") == 0 {
			return errors.New("none waits")
		}
		return nil
	})
	busy := f.served(t, 100)
	served, refused := stop()
	if served == 0 {
		t.Error("eve is not served")
	}
	t.Logf("median of bob: %v, and %v beside 500 clients of eve with %d requests served and %d refused", quiet, busy, served, refused)
}

// slowServer registers a server that answers no request for objects until release is called, and
// counts those that it has.
func (f *fair) slowServer(t *testing.T) (has *atomic.Int64, release func()) {
	t.Helper()
	has, released := new(atomic.Int64), make(chan struct{})
	server := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		switch {
		case r.URL.Path == "/apis":
			const version = `{"groupVersion":"slow.example.com/v1","version":"v1"}`
			io.WriteString(w, `{"kind":"APIGroupList","apiVersion":"v1","groups":[{"name":"slow.example.com","versions":[`+version+`],"preferredVersion":`+version+`}]}`)
		case r.URL.Path == "/apis/slow.example.com/v1":
			io.WriteString(w, `{"kind":"APIResourceList","apiVersion":"v1","groupVersion":"slow.example.com/v1","resources":[]}`)
		case strings.HasPrefix(r.URL.Path, "/apis/slow.example.com/v1/"):
			has.Add(1)
			select {
			case <-released:
			case <-r.Context().Done():
			}
			io.WriteString(w, `{}`)
		default:
			http.NotFound(w, r)
		}
	}))
	t.Cleanup(server.Close)
	release = sync.OnceFunc(func() { close(released) })
	t.Cleanup(release)
	f.Post(t, "/apis/gateway.portico.dev/v1alpha1/backends", `{"apiVersion":"gateway.portico.dev/v1alpha1","kind":"Backend","metadata":{"name":"slow"},
		"spec":{"endpoints":[{"url":"`+server.URL+`"}],"tls":{"insecureSkipVerify":true,"clientCertificate":"None"}}}`)
	f.Post(t, "/apis/apiregistration.k8s.io/v1/apiservices", `{"metadata":{"name":"v1.slow.example.com","annotations":{"gateway.portico.dev/backend":"slow"}},
		"spec":{"group":"slow.example.com","version":"v1","groupPriorityMinimum":1000,"versionPriority":15}}`)
	f.Shows(t, "/apis/slow.example.com/v1", "APIResourceList")
	return has, release
}

// Requests to a slow registered server hold no seats, those to a server that is killed give theirs
// back, and a request that waits for a seat at shutdown is answered.
func TestSeatsAreGivenBack(t *testing.T) {
	t.Parallel()
	f := installFair(t)
	has, release := f.slowServer(t)
	const slow = 30 // more than all seats
	var all sync.WaitGroup
	for range slow {
		all.Go(func() {
			if resp, text, err := e2e.Ask(t.Context(), f.eve, http.MethodGet, f.Endpoint+"/apis/slow.example.com/v1/things", ""); err != nil || resp.StatusCode != http.StatusOK {
				t.Errorf("the slow server: %v %s", err, text)
			}
		})
	}
	e2e.Eventually(t, "the slow server has all requests", func() error {
		if n := has.Load(); n != slow {
			return fmt.Errorf("it has %d", n)
		}
		return nil
	})
	f.served(t, 5)
	release()
	all.Wait()

	stop := f.busy(t)
	f.Kill9(t, "core")
	stop()
	e2e.Eventually(t, "all seats are free", func() error {
		if held, waiting := f.seats(t, "current_executing_seats"), f.seats(t, "current_inqueue_requests"); held != 0 || waiting != 0 {
			return fmt.Errorf("%d are held, and %d requests wait", held, waiting)
		}
		return nil
	})
	f.Shows(t, "/api/v1/namespaces/default/configmaps/a", `"name":"a"`)
	f.served(t, 5)
	f.drain(t)
}

// drain stops the installation while requests without their bodies hold all seats of the level and
// one waits.
func (f *fair) drain(t *testing.T) {
	t.Helper()
	limit := f.seats(t, "current_limit_seats")
	var all sync.WaitGroup
	answer := func(client *http.Client, method, url string, body io.Reader, want int) {
		all.Go(func() {
			req, err := http.NewRequestWithContext(t.Context(), method, url, body)
			if err != nil {
				t.Error(err)
				return
			}
			resp, err := client.Do(req)
			if err != nil {
				t.Errorf("%s at shutdown: %v", method, err)
				return
			}
			resp.Body.Close()
			if resp.StatusCode != want {
				t.Errorf("%s at shutdown: %s", method, resp.Status)
			}
		})
	}
	var bodies []*io.PipeWriter
	for range limit {
		body, w := io.Pipe()
		bodies = append(bodies, w)
		answer(f.eve, http.MethodPost, strings.TrimSuffix(f.object, "/a"), body, http.StatusCreated)
	}
	reached := func(name string, want int) {
		e2e.Eventually(t, fmt.Sprintf("%s is %d", name, want), func() error {
			if n := f.seats(t, name); n != want {
				return fmt.Errorf("it is %d", n)
			}
			return nil
		})
	}
	reached("current_executing_seats", limit)
	answer(f.bob, http.MethodGet, f.object, nil, http.StatusOK)
	reached("current_inqueue_requests", 1)
	all.Go(func() {
		if err := f.Stop(); err != nil {
			t.Error(err)
		}
	})
	e2e.Eventually(t, "the gateway stops", func() error {
		text, err := os.ReadFile(filepath.Join(f.Dir, "logs", "gateway.log"))
		if err == nil && !strings.Contains(string(text), "shutting down") {
			err = errors.New("it does not")
		}
		return err
	})
	for i, w := range bodies {
		fmt.Fprintf(w, `{"metadata":{"name":"drained%d"}}`, i)
		w.Close()
	}
	all.Wait()
}
