package upstream

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"portico/resource/rest/body"
)

// A safe request is sent to another endpoint if the answer does not begin in time.
func TestHeaderTimeout(t *testing.T) {
	t.Parallel()
	hang := make(chan struct{})
	slow := startNode(t, "tls", func(http.ResponseWriter, *http.Request) { <-hang })
	t.Cleanup(func() { close(hang) })
	p := turns()
	p.Timeouts.ResponseHeader = time.Second
	large := strings.Repeat("y", body.MaxSmall+1)
	var all sync.WaitGroup
	defer all.Wait()
	for name, c := range map[string]struct {
		method, body string
		alone, good  bool
	}{
		"GET": {"GET", "", false, true}, "GET with a body": {"GET", "x", false, true}, "GET with a large one": {"GET", large, false, false},
		"POST": {"POST", "", false, false}, "POST with a body": {"POST", large, false, false}, "GET, alone": {"GET", "", true, false},
	} {
		good := startNode(t, "tls", nil)
		list := []Endpoint{slow.endpoint(), good.endpoint()}
		if c.alone {
			list = list[:1]
		}
		u := over(t, p, list...)
		all.Go(func() {
			got := send(t, u, short, c.method, c.body)
			if c.good && got.code != 200 || !c.good && (!errors.Is(got.err, errHeaderTimeout) || len(good.seen()) != 0) {
				t.Errorf("%s: got %d %v, want an answer: %v", name, got.code, got.err, c.good)
			}
		})
	}
}

// A watch has no response header timeout.
func TestNoHeaderTimeout(t *testing.T) {
	t.Parallel()
	p := turns()
	p.Timeouts.ResponseHeader = 20 * time.Millisecond
	slow := startNode(t, "tls", func(http.ResponseWriter, *http.Request) { time.Sleep(5 * p.Timeouts.ResponseHeader) })
	if got := send(t, over(t, p, slow.endpoint()), long, "GET", ""); got.code != 200 {
		t.Errorf("%d %v", got.code, got.err)
	}
}

// The response header timeout does not bound the rest of an answer, even if the client
// still sends.
func TestHeaderTimeoutEnds(t *testing.T) {
	t.Parallel()
	p := turns()
	p.Timeouts.ResponseHeader = 50 * time.Millisecond
	early := startNode(t, "tls1", nil, handledBy(func(w http.ResponseWriter, r *http.Request) {
		answerEarly(w, r)
		time.Sleep(4 * p.Timeouts.ResponseHeader)
		fmt.Fprint(w, "done")
	}))
	u := over(t, p, early.endpoint())
	r, w := io.Pipe()
	req := newRequest(t.Context(), "POST", "/x", r)
	req.ContentLength = -1
	res, err := u.Short().RoundTrip(req)
	if err != nil {
		t.Fatal(err)
	}
	fmt.Fprint(w, "late")
	w.Close()
	if body, err := io.ReadAll(res.Body); err != nil || string(body) != "done" {
		t.Errorf("%q %v", body, err)
	}
}
