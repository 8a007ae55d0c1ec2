package gateway

import (
	"bufio"
	"context"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"

	"k8s.io/apimachinery/pkg/watch"

	"portico/discovery"
	"portico/resource"
)

// The gateway tells its own clients of changes, as its backends tell it.
func TestGatewayTellsOfChanges(t *testing.T) {
	c := newChanging(t)
	c.shows(t, "a.example.com")
	c.start(t)
	b := startBehind(t, c)
	b.settles(t, "a.example.com")
	documents := discovery.NewHandler(b.sync.Discovery())
	front := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		documents.ServeHTTP(w, r.WithContext(resource.WithAction(r.Context(), resource.ParseAction(r))))
	}))
	defer front.Close()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, "GET", front.URL+"/apis?watch=true", nil)
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Accept", "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList")
	res, err := http.DefaultTransport.RoundTrip(req)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	var mu sync.Mutex
	told := map[string]bool{}
	go func() {
		for lines := bufio.NewScanner(res.Body); lines.Scan(); {
			var e discovery.StreamEvent
			if json.Unmarshal(lines.Bytes(), &e) == nil && e.Type != watch.Bookmark {
				mu.Lock()
				told[string(e.Type)+" "+e.Object.Name] = true
				mu.Unlock()
			}
		}
	}()
	has := func(what string) func() bool {
		return func() bool {
			mu.Lock()
			defer mu.Unlock()
			return told[what]
		}
	}
	within(t, promptly, "the first state", has("ADDED a.example.com"))
	c.shows(t, "a.example.com", "b.example.com")
	within(t, promptly, "a group comes", has("ADDED b.example.com"))
	c.shows(t, "b.example.com")
	within(t, promptly, "a group goes", has("DELETED a.example.com"))
	if has("MODIFIED b.example.com")() {
		t.Error("a group that did not change was told again")
	}
}
