package upstream

import (
	"errors"
	"io"
	"net/http"
	"sync"
	"testing"

	"portico/resource"
)

// A request for another protocol takes a slot until the protocol is switched; a watch
// takes none.
func TestLimitOfUpgrades(t *testing.T) {
	arrived, answer := make(chan struct{}), make(chan struct{})
	n := startNode(t, "unix", func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/switch" {
			conn, _, err := http.NewResponseController(w).Hijack()
			if err == nil {
				io.WriteString(conn, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: echo\r\n\r\n")
				t.Cleanup(func() { conn.Close() })
			}
			return
		}
		arrived <- struct{}{}
		<-answer
	})
	p := turns()
	p.Limits.Concurrent, p.Limits.Queue = 1, 0
	u := over(t, p, n.endpoint())
	upgrading := func(path string, act *resource.Action) (*http.Response, error) {
		req, _ := http.NewRequestWithContext(resource.WithAction(t.Context(), act), "GET", "http://server"+path, nil)
		req.Header.Set("Connection", "Upgrade")
		req.Header.Set("Upgrade", "echo")
		return u.Upgrade().RoundTrip(req)
	}
	ordinary := &resource.Action{Verb: "get", IsResource: true, Resource: "things", Name: "x"}
	watch := &resource.Action{Verb: "watch", IsResource: true, Resource: "things"}
	for range 3 {
		res, err := upgrading("/switch", ordinary)
		if err != nil {
			t.Fatalf("those before have left HTTP: %v", err)
		}
		defer res.Body.Close()
	}
	var waits sync.WaitGroup
	defer waits.Wait()
	ask := func(act *resource.Action) {
		waits.Go(func() {
			if res, err := upgrading("/wait", act); err != nil {
				t.Errorf("%s: %v", act.Verb, err)
			} else {
				res.Body.Close()
			}
		})
		<-arrived
	}
	ask(watch)
	ask(ordinary)
	ask(watch)
	var overload *OverloadError
	if _, err := upgrading("/wait", ordinary); !errors.As(err, &overload) {
		t.Errorf("one that is not answered yet takes no slot: %v", err)
	}
	close(answer)
	waits.Wait()
	if n := u.Status().Active; n != 0 {
		t.Errorf("%d slots were not released", n)
	}
}

// A request that accepts a stream of events takes a slot until it is answered with one.
func TestLimitOfStreams(t *testing.T) {
	n := startNode(t, "unix", func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", r.Header.Get("Accept"))
		w.WriteHeader(http.StatusOK)
		_ = http.NewResponseController(w).Flush()
		<-r.Context().Done()
	})
	p := turns()
	p.Limits.Concurrent, p.Limits.Queue = 1, 0
	u := over(t, p, n.endpoint())
	ask := func(accept string) (*http.Response, error) {
		act := &resource.Action{Verb: "get", IsResource: true, Resource: "things", Name: "x", Streams: true}
		req, _ := http.NewRequestWithContext(resource.WithAction(t.Context(), act), "GET", "http://server/", nil)
		req.Header.Set("Accept", accept)
		return u.Long().RoundTrip(req)
	}
	var open []*http.Response
	for _, accept := range []string{"text/event-stream", "text/event-stream;charset=utf-8", "application/json"} {
		res, err := ask(accept)
		if err != nil {
			t.Fatalf("%s: %v", accept, err)
		}
		open = append(open, res)
	}
	var overload *OverloadError
	if _, err := ask("text/event-stream"); !errors.As(err, &overload) {
		t.Errorf("a download takes no slot: %v", err)
	}
	for _, res := range open {
		res.Body.Close()
	}
	if n := u.Status().Active; n != 0 {
		t.Errorf("%d slots were not released", n)
	}
}
