package upstream

import (
	"bufio"
	"io"
	"net"
	"net/http"
	"sync/atomic"
	"testing"
)

// reader is an endpoint that answers requests. If drops is set it reads them and closes
// the connection; with once it does so with the second of each connection.
type reader struct {
	Endpoint
	drops atomic.Bool
	once  bool
	seen  atomic.Int32 // requests that it read without an answer
}

func startReader(t *testing.T) *reader {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	at := l.Addr().String()
	r := &reader{Endpoint: Endpoint{URL: "http://" + at, Network: "tcp", Address: at, Weight: 1, Base: mustParse("http://" + at)}}
	go func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			go r.talk(conn)
		}
	}()
	return r
}

func (r *reader) talk(conn net.Conn) {
	defer conn.Close()
	in := bufio.NewReader(conn)
	for answered := false; ; answered = true {
		if _, err := http.ReadRequest(in); err != nil {
			return
		}
		if r.drops.Load() || r.once && answered {
			r.seen.Add(1)
			return
		}
		_, _ = io.WriteString(conn, "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")
	}
}

// Retries of what a server may have read are bounded by attempts and budget, also those
// on a new connection to the same endpoint.
func TestRepeatsAreAttempts(t *testing.T) {
	for name, c := range map[string]struct {
		endpoints, attempts, percent, perSecond int
		want                                    int32
	}{
		"no budget":                {1, 3, 0, 0, 1},
		"no budget, two endpoints": {2, 3, 0, 0, 1},
		"by default":               {1, 3, 20, 3, 2},
		"two endpoints":            {2, 3, 20, 3, 3},
		"four attempts":            {2, 4, 20, 4, 4},
		"one attempt":              {2, 1, 20, 3, 1},
		"a budget of one":          {2, 4, 0, 1, 2},
	} {
		for _, method := range []string{"GET", "OPTIONS", "POST"} {
			p := turns()
			p.Retries.Attempts, p.Retries.BudgetPercent, p.Retries.MinPerSecond = c.attempts, c.percent, c.perSecond
			var all []*reader
			var list []Endpoint
			for range c.endpoints {
				r := startReader(t)
				all, list = append(all, r), append(list, r.Endpoint)
			}
			u := over(t, p, list...)
			for range all { // each has a connection that was used before
				if got := send(t, u, short, method, ""); got.code != 200 {
					t.Fatalf("%s: %+v", name, got)
				}
			}
			for _, r := range all {
				r.drops.Store(true)
			}
			got := send(t, u, short, method, "")
			seen := int32(0)
			for _, r := range all {
				seen += r.seen.Load()
			}
			want := c.want
			if method == "POST" {
				want = 1
			}
			if got.err == nil || seen != want || IsUnprocessed(got.err) {
				t.Errorf("%s: %s: it arrived %d times, want %d: %v", name, method, seen, want, got.err)
			}
			if n := len(got.trace.Attempts()); n != int(want) {
				t.Errorf("%s: %s: %d attempts in the trace, want %d", name, method, n, want)
			}
			if out := u.Status().OutOfBudget; out > 1 {
				t.Errorf("%s: %s: one request was out of budget %d times", name, method, out)
			}
			u.Close()
		}
	}
}

// A request on a used connection that turns out to be closed is sent again on a new one,
// and does not count against the endpoint.
func TestClosedIdleConnection(t *testing.T) {
	p := turns()
	p.Retries.MinPerSecond = 100 // the server has read what it does not answer
	for _, method := range []string{"GET", "OPTIONS"} {
		r := startReader(t)
		r.once = true
		u := over(t, p, r.Endpoint)
		for i := range 5 {
			if got := send(t, u, short, method, ""); got.code != 200 || got.err != nil {
				t.Errorf("%s, request %d: %d, %v", method, i, got.code, got.err)
			}
		}
		if s := u.Status().Endpoints[0]; s.Errors != 0 {
			t.Errorf("%s: %+v", method, s)
		}
	}
}
