package clients

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"regexp"
	"strconv"
	"sync"
	"testing"

	"portico/cmd/e2e"

	"k8s.io/client-go/rest"
)

// The goroutines of an idle proxied watch take at most 20 KB of stack in the gateway: the
// request's, whose stack is halved only while less than a quarter of it is in use, and that
// of its stream on the HTTP/2 connection to the server.
func TestIdleWatchesKeepSmallStacks(t *testing.T) {
	t.Parallel()
	const watches, most = 400, 20 << 10
	up := e2e.Install(t, t.TempDir(), "--profiling")
	client, err := rest.HTTPClientFor(up.Config(t))
	if err != nil {
		t.Fatal(err)
	}
	host := up.Config(t).Host
	before := stacks(t, client, host)
	ctx, end := context.WithCancel(t.Context())
	var opening sync.WaitGroup
	defer opening.Wait()
	defer end()
	for range watches {
		opening.Go(func() {
			res, err := open(ctx, client, host+"/api/v1/namespaces/default/configmaps?watch=true&allowWatchBookmarks=true&resourceVersion=0")
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
	if each := (stacks(t, client, host) - before) / watches; each > most || each < 4<<10 {
		t.Errorf("a watch takes %d bytes of stack, want 4 to %d KB", each, most>>10)
	} else {
		t.Logf("a watch takes %d bytes of stack", each)
	}
}

// open asks and returns the answer once its header is there.
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

var stackBytes = regexp.MustCompile(`(?m)^go_memstats_stack_inuse_bytes (\S+)$`)

// stacks is how many bytes the gateway's goroutines have, after as many collections
// of garbage as stacks may have to be halved.
func stacks(t *testing.T, client *http.Client, host string) int {
	t.Helper()
	read := func(path string) []byte {
		res, err := open(t.Context(), client, host+path)
		if err != nil {
			t.Fatal(err)
		}
		defer res.Body.Close()
		data, err := io.ReadAll(res.Body)
		if err != nil {
			t.Fatal(err)
		}
		return data
	}
	for range 4 {
		read("/debug/pprof/heap?gc=1")
	}
	found := stackBytes.FindSubmatch(read("/metrics"))
	if found == nil {
		t.Fatal("no go_memstats_stack_inuse_bytes in /metrics")
	}
	n, err := strconv.ParseFloat(string(found[1]), 64)
	if err != nil {
		t.Fatal(err)
	}
	return int(n)
}
