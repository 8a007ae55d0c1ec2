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

// Writes without the body that they announce occupy no more than one user's share: further ones get
// 429, and other users are served. With priority and fairness none reaches a server.
func TestWritesWhoseBodyNeverComes(t *testing.T) {
	t.Parallel()
	t.Run("priority and fairness", func(t *testing.T) {
		t.Parallel()
		up := e2e.Install(t, t.TempDir()) // writes of other tests would count
		inCore := bodiesNeverCome(t, up, 450)
		if inCore != 0 {
			t.Errorf("%d writes in flight in the core server", inCore)
		}
	})
	t.Run("limits", func(t *testing.T) {
		t.Parallel()
		const share = 150 // of 200 writes
		up := e2e.Install(t, t.TempDir(), "--enable-priority-and-fairness=false")
		if inCore := bodiesNeverCome(t, up, share); inCore < share/2 || inCore > 200 {
			t.Errorf("%d writes in flight in the core server, want about %d", inCore, share)
		}
	})
}

// bodiesNeverCome has one user send 1000 requests without their bodies, of which share are not refused, while
// others are served. It returns how many the core server has.
func bodiesNeverCome(t *testing.T, up *e2e.Installation, share int64) (inCore int) {
	t.Helper()
	ns := e2e.NewNamespace(t, up.Client(t))
	up.MustKubectl(t, "create", "rolebinding", "-n", ns, "writers", "--clusterrole=edit", "--user=hostile-"+ns, "--user=polite-"+ns)
	url := up.Endpoint + "/api/v1/namespaces/" + ns + "/configmaps"
	polite := e2e.HTTPClient(t, up.UserConfig(t, "polite-"+ns))
	write := func(client *http.Client, name string) error {
		resp, text, err := e2e.Ask(t.Context(), client, http.MethodPost, url, `{"metadata":{"name":"`+name+`"}}`)
		if err == nil && resp.StatusCode != http.StatusCreated {
			err = fmt.Errorf("%s %s", resp.Status, text)
		}
		return err
	}
	e2e.Eventually(t, "the rolebinding applies", func() error { return write(polite, "before") })

	const requests = 1000
	var answered, other atomic.Int64
	hostile := e2e.HTTPClient(t, up.UserConfig(t, "hostile-"+ns))
	ctx, cancel := context.WithCancel(t.Context())
	var all sync.WaitGroup
	defer all.Wait()
	defer cancel()
	for range requests {
		all.Go(func() {
			body, never := io.Pipe()
			defer never.Close()
			req, _ := http.NewRequestWithContext(ctx, "POST", url, body)
			req.ContentLength = 2_000_000
			req.Header.Set("Content-Type", "application/json")
			resp, err := hostile.Do(req)
			if err != nil {
				return
			}
			resp.Body.Close()
			if resp.StatusCode == http.StatusTooManyRequests && resp.Header.Get("Retry-After") != "" {
				answered.Add(1)
			} else {
				other.Add(1)
			}
		})
	}
	e2e.Eventually(t, "requests beyond the user's share get 429", func() error {
		if n := answered.Load(); n < requests-share {
			return fmt.Errorf("%d of %d requests got 429, %d other responses", n, requests, other.Load())
		}
		return nil
	})
	inCore = gauge(t, up.Metrics(t, "core"), `apiserver_current_inflight_requests{request_kind="mutating"}`)
	for i := range 10 {
		if err := write(polite, fmt.Sprint("polite", i)); err != nil {
			t.Errorf("another user: %v", err)
		}
		if err := write(e2e.HTTPClient(t, up.Config(t)), fmt.Sprint("admin", i)); err != nil {
			t.Errorf("the administrator: %v", err)
		}
	}
	return inCore
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
