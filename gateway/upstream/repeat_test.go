package upstream

import (
	"bufio"
	"io"
	"net"
	"net/http"
	"sync/atomic"
	"testing"
)

// reader is an endpoint that answers requests until it is told to drop them: then it
// reads each and closes its connection.
type reader struct {
	Endpoint
	drops atomic.Bool
	seen  atomic.Int32 // of what it dropped
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
	for {
		if _, err := http.ReadRequest(in); err != nil {
			return
		}
		if r.drops.Load() {
			r.seen.Add(1)
			return
		}
		_, _ = io.WriteString(conn, "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")
	}
}

// What a server may have read is sent again as often as attempts and budget allow,
// whoever would send it again: also on a new connection to the same server, in place
// of one that was used before.
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
			if got.err == nil || seen != want || IsUntaken(got.err) {
				t.Errorf("%s: %s: it arrived %d times, want %d: %v", name, method, seen, want, got.err)
			}
			if n := len(got.trace.Attempts()); n != int(want) {
				t.Errorf("%s: %s: %d attempts are told of, want %d", name, method, n, want)
			}
			if out := u.Status().OutOfBudget; out > 1 {
				t.Errorf("%s: %s: one request was out of budget %d times", name, method, out)
			}
			u.Close()
		}
	}
}
