package upstream

import (
	"fmt"
	"io"
	"net/http"
	"testing"
	"time"
)

// A connection takes new requests until it reaches its age; requests in progress on it
// finish, and then it is closed.
func TestConnectionAge(t *testing.T) {
	for _, c := range []struct {
		network string
		k       kind
	}{{"tls", long}, {"tls", short}, {"unix", short}} {
		t.Run(fmt.Sprint(c), func(t *testing.T) {
			end := make(chan struct{})
			n := startNode(t, c.network, func(w http.ResponseWriter, r *http.Request) {
				if r.URL.Path == "/watch" {
					_ = http.NewResponseController(w).Flush()
					<-end
					fmt.Fprint(w, "whole")
				}
			})
			p := turns()
			p.Timeouts.MaxConnectionAge = time.Second
			u := over(t, p, n.endpoint())
			made := func() int {
				before := n.conns.Load()
				if got := send(t, u, c.k, "GET", ""); got.err != nil {
					t.Fatal(got.err)
				}
				return int(n.conns.Load() - before)
			}
			if made() != 1 || made() != 0 {
				t.Fatal("the first two requests do not share a connection")
			}
			if c := u.Status().Endpoints[0].Connections; c.Idle+c.Shared != 1 || time.Since(c.Oldest) > 20*time.Second {
				t.Errorf("%+v", c)
			}
			req, _ := http.NewRequestWithContext(t.Context(), "GET", "https://example.com/watch", nil)
			watch, err := u.send(req, c.k)
			if err != nil {
				t.Fatal(err)
			}
			if c.k == short { // by HTTP/1.1 it has the connection for itself
				made()
			}
			deadline := time.Now().Add(20 * time.Second)
			for made() == 0 {
				if time.Now().After(deadline) {
					t.Fatal("the connection is used for ever")
				}
				time.Sleep(10 * time.Millisecond)
			}
			close(end)
			if body, err := io.ReadAll(watch.Body); err != nil || string(body) != "whole" {
				t.Errorf("the request in progress: %q %v", body, err)
			}
			select {
			case <-n.ends:
			case <-time.After(20 * time.Second):
				t.Error("the connection before is still there")
			}
		})
	}
}
