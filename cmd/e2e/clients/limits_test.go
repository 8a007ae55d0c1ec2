package clients

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"os"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"portico/cmd/e2e"
)

// gauge returns the value of a series; 0 if it is absent.
func gauge(t *testing.T, metrics, series string) int {
	t.Helper()
	m := regexp.MustCompile(`(?m)^` + regexp.QuoteMeta(series) + ` (\S+)$`).FindStringSubmatch(metrics)
	if m == nil {
		return 0
	}
	n, err := strconv.ParseFloat(m[1], 64)
	if err != nil {
		t.Fatal(err)
	}
	return int(n)
}

// Writes without the body that they announce, of one user and of fifty, keep no other user from being
// served, with and without priority and fairness, and none of them reaches a server.
func TestWritesWhoseBodyNeverComes(t *testing.T) {
	t.Parallel()
	for name, flags := range map[string][]string{"priority and fairness": nil, "limits": {"--enable-priority-and-fairness=false"}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			up := e2e.Install(t, t.TempDir(), flags...) // writes of other tests would count
			for _, users := range []int{1, 50} {
				bodiesNeverCome(t, up, users)
			}
		})
	}
}

// bodiesNeverCome has users send 1000 requests without their bodies, more than may wait, while others
// are served.
func bodiesNeverCome(t *testing.T, up *e2e.Installation, users int) {
	t.Helper()
	ns := e2e.NewNamespace(t, up.Client(t))
	up.MustKubectl(t, "create", "rolebinding", "-n", ns, "writers", "--clusterrole=edit", "--group=system:authenticated")
	url := up.Endpoint + "/api/v1/namespaces/" + ns + "/configmaps"
	polite := e2e.HTTPClient(t, up.UserConfig(t, "polite"))
	write := func(client *http.Client, name string) error {
		resp, text, err := e2e.Ask(t.Context(), client, http.MethodPost, url, `{"metadata":{"name":"`+name+`"}}`)
		if err == nil && resp.StatusCode != http.StatusCreated {
			err = fmt.Errorf("%s %s", resp.Status, text)
		}
		return err
	}
	e2e.Eventually(t, "the rolebinding applies", func() error { return write(polite, "before") })

	const requests, wait = 1000, 600
	var answered, failed atomic.Int64
	ctx, cancel := context.WithCancel(t.Context())
	var all sync.WaitGroup
	defer all.Wait()
	defer cancel()
	for n := range users {
		hostile := e2e.HTTPClient(t, up.UserConfig(t, fmt.Sprint("hostile", n)))
		for range requests / users {
			all.Go(func() {
				resp, err := postNothing(ctx, hostile, url)
				switch {
				case ctx.Err() != nil:
				case err != nil:
					failed.Add(1) // of 1000 connections at once, the server replaces some that take long to begin
				case resp.StatusCode != http.StatusTooManyRequests && resp.StatusCode != http.StatusRequestTimeout:
					t.Errorf("without its body: %s", resp.Status)
					fallthrough
				default:
					answered.Add(1)
				}
			})
		}
	}
	e2e.Eventually(t, "those beyond the limit are answered", func() error {
		if n := answered.Load(); n < requests-wait {
			return fmt.Errorf("%d of %d requests are answered", n, requests)
		}
		return nil
	})
	if n := gauge(t, up.Metrics(t, "core"), `apiserver_current_inflight_requests{request_kind="mutating"}`); n != 0 {
		t.Errorf("%d writes in flight in the core server", n)
	}
	for i := range 10 {
		if err := write(polite, fmt.Sprint("polite", i)); err != nil {
			t.Errorf("another user: %v", err)
		}
		if err := write(e2e.HTTPClient(t, up.Config(t)), fmt.Sprint("admin", i)); err != nil {
			t.Errorf("the administrator: %v", err)
		}
	}
	e2e.Eventually(t, "bodies that do not come are ended", func() error {
		if n := answered.Load(); n+failed.Load() < int64(requests/users*users) {
			return fmt.Errorf("%d of %d requests are answered", n, requests)
		}
		return nil
	})
	t.Logf("%d of %d requests ended with their connection", failed.Load(), requests)
}

// postNothing sends a POST whose body never comes.
func postNothing(ctx context.Context, client *http.Client, url string) (*http.Response, error) {
	body, never := io.Pipe()
	defer never.Close()
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, url, body)
	if err != nil {
		return nil, err
	}
	req.ContentLength = 2_000_000
	req.Header.Set("Content-Type", "application/json")
	resp, err := client.Do(req)
	if err == nil {
		resp.Body.Close()
	}
	return resp, err
}

// descriptors returns the number of open file descriptors of a process.
func descriptors(t *testing.T, pid int) int {
	t.Helper()
	open, err := os.ReadDir(fmt.Sprintf("/proc/%d/fd", pid))
	if err != nil {
		t.Fatal(err)
	}
	return len(open)
}

// Thousands of watches share few connections to the gateway and to the core server, and a user
// with more than its limit gets 429. It does not run in parallel, because it counts the
// descriptors of these processes.
func TestManyWatches(t *testing.T) {
	const watches = watchesPerUser
	up := e2e.SharedInstallation(t)
	up.MustKubectl(t, "create", "rolebinding", "-n", "default", "watcher", "--clusterrole=view", "--user=watcher")
	url := up.Endpoint + "/api/v1/namespaces/default/configmaps?watch=1"
	cfg := up.UserConfig(t, "watcher")
	client := e2e.HTTPClient(t, cfg)
	client.Timeout = 0
	ctx, cancel := context.WithCancel(t.Context())
	var opening sync.WaitGroup
	defer cancel()
	watch := func() error {
		resp, err := open(ctx, client, url)
		if err == nil {
			context.AfterFunc(ctx, func() { resp.Body.Close() })
		}
		return err
	}
	e2e.Eventually(t, "the rolebinding applies", watch)
	before := map[string]int{}
	for _, name := range []string{"gateway", "core"} {
		before[name] = descriptors(t, up.Child(t, name))
	}
	// A client that opens all of them at once dials a connection for each, and closes most
	// of these later.
	slots := make(chan struct{}, 20)
	for range watches - 1 {
		slots <- struct{}{}
		opening.Go(func() {
			if err := watch(); err != nil {
				t.Error(err)
			}
			<-slots
		})
	}
	opening.Wait()
	if err := watch(); err == nil || !strings.Contains(err.Error(), "429") {
		t.Errorf("one watch more: %v", err)
	}
	for name, n := range before {
		if more := descriptors(t, up.Child(t, name)) - n; more > watches/10 {
			t.Errorf("%d watches take %d more descriptors in %s", watches, more, name)
		} else {
			t.Logf("%d watches take %d descriptors more in %s", watches, more, name)
		}
	}
	if code, text := e2e.Get(t, e2e.HTTPClient(t, up.Config(t)), url+"&timeoutSeconds=1", ""); code != http.StatusOK {
		t.Errorf("the administrator's watch: %d %s", code, text)
	}
}
