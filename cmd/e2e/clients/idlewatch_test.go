package clients

import (
	"context"
	"fmt"
	"net/http"
	"sync"
	"testing"

	"k8s.io/client-go/rest"

	"portico/cmd/e2e"
)

// The goroutines of an idle proxied watch take at most 20 KB of stack in the gateway: that of
// the request, which is halved only while less than a quarter of it is in use, and that of its
// stream on the HTTP/2 connection to the server. It does not run in parallel, because
// it measures the gateway.
func TestIdleWatchesKeepSmallStacks(t *testing.T) {
	const watches, most = 400, 20 << 10
	up := e2e.SharedInstallation(t)
	client, err := rest.HTTPClientFor(up.Config(t))
	if err != nil {
		t.Fatal(err)
	}
	before := stacks(t, up)
	ctx, end := context.WithCancel(t.Context())
	var opening sync.WaitGroup
	defer opening.Wait()
	defer end()
	for range watches {
		opening.Go(func() {
			res, err := open(ctx, client, up.Endpoint+"/api/v1/namespaces/default/configmaps?watch=true&allowWatchBookmarks=true&resourceVersion=0")
			if err != nil {
				t.Error(err)
				return
			}
			context.AfterFunc(ctx, func() { res.Body.Close() })
		})
	}
	opening.Wait()
	if t.Failed() {
		t.FailNow()
	}
	if each := (stacks(t, up) - before) / watches; each > most || each < 4<<10 {
		t.Errorf("a watch takes %d bytes of stack, want 4 to %d KB", each, most>>10)
	} else {
		t.Logf("a watch takes %d bytes of stack", each)
	}
}

// open sends a GET and returns the response when its header has arrived.
func open(ctx context.Context, client *http.Client, url string) (*http.Response, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return nil, err
	}
	res, err := client.Do(req)
	if err == nil && res.StatusCode != http.StatusOK {
		res.Body.Close()
		return nil, fmt.Errorf("%s: %s", url, res.Status)
	}
	return res, err
}

// stacks returns the bytes of all stacks of the gateway, after four collections of garbage,
// each of which may halve a stack.
func stacks(t *testing.T, up *e2e.Installation) int {
	t.Helper()
	for range 4 {
		up.Do(t, http.MethodGet, "/debug/pprof/heap?gc=1", "")
	}
	_, metrics := up.Do(t, http.MethodGet, "/metrics", "")
	return gauge(t, metrics, "go_memstats_stack_inuse_bytes")
}
