package upstream

import (
	"bufio"
	"context"
	"errors"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"portico/apiservice/backend"
)

// behaves is how long an endpoint takes to answer a path; negative: for ever.
type behaves func(path string) time.Duration

// inPipes runs body with an Upstream whose endpoints are at the other end of
// pipes and behave as they are told, in fake time.
func inPipes(t *testing.T, p Policy, all []behaves, body func(t *testing.T, u *Upstream)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		list := make([]Endpoint, len(all))
		for i := range all {
			list[i] = Endpoint{URL: "unix:///" + string(rune('a'+i)), Network: "unix", Address: "/", Weight: 1}
		}
		u := New(Config{Base: mustParse("http://server"), Endpoints: list, Policy: p})
		var servers sync.WaitGroup
		for i, e := range u.endpoints {
			g, err := e.ways.get()
			if err != nil {
				t.Fatal(err)
			}
			g.direct.dial = func(context.Context) (net.Conn, net.Conn, error) {
				here, there := net.Pipe()
				servers.Go(func() { all[i].serve(there) })
				return here, here, nil
			}
		}
		body(t, u)
		u.Close()
		servers.Wait()
	})
}

func (b behaves) serve(conn net.Conn) {
	defer conn.Close()
	for in := bufio.NewReader(conn); ; {
		req, err := http.ReadRequest(in)
		if err != nil {
			return
		}
		d := b(req.URL.Path)
		if d < 0 {
			_, _ = io.Copy(io.Discard, in)
			return
		}
		time.Sleep(d)
		if _, err := io.WriteString(conn, "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"); err != nil {
			return
		}
	}
}

// ask asks for a path, for as long as the client waits; whether it was answered.
func ask(u *Upstream, method, path string, waits time.Duration) bool {
	ctx, cancel := context.WithTimeout(context.Background(), waits)
	defer cancel()
	req, _ := http.NewRequestWithContext(ctx, method, "http://server"+path, nil)
	res, err := u.send(req, short)
	if err != nil {
		return false
	}
	_, err = io.Copy(io.Discard, res.Body)
	res.Body.Close()
	return err == nil
}

// hangs never answers anything but its check.
func hangs(path string) time.Duration {
	if path == "/readyz" {
		return 0
	}
	return -1
}

func atOnce(string) time.Duration { return time.Millisecond }

func probes(u *Upstream) {
	for _, e := range u.endpoints {
		_ = u.Probe(context.Background(), e.URL, "/readyz", func(http.Header) {})
	}
}

// An endpoint that takes requests and does not answer is ejected although every
// client gives up before its time is over, and although it answers its checks.
func TestGivenUp(t *testing.T) {
	for _, balance := range []backend.Balance{backend.LeastRequest, backend.RoundRobin} {
		p := turns()
		p.Balance = balance
		inPipes(t, p, []behaves{hangs, atOnce, atOnce}, func(t *testing.T, u *Upstream) {
			began := time.Now()
			for len(gets(u)) == 3 && time.Since(began) < 5*time.Minute {
				ask(u, "GET", "/apis/g/v1/things", 10*time.Second)
				probes(u)
			}
			want(t, u, string(balance), 1, 2)
			var why *GivenUpError
			if s := u.Status().Endpoints[0]; s.State != backend.EndpointEjected || s.LastError != (&GivenUpError{3}).Error() || errors.As(u.picks.Load().err, &why) {
				t.Errorf("%+v", s)
			}
			if d := time.Since(began); d > 2*time.Minute {
				t.Errorf("it took %v", d)
			}
			probes(u)
			want(t, u, "a check that passes proves nothing", 1, 2)
			for range 100 {
				if !ask(u, "GET", "/apis/g/v1/things", 10*time.Second) {
					t.Fatal("a request goes there")
				}
			}
			time.Sleep(34 * time.Second)
			want(t, u, "the time is over", 0, 1, 2)
		})
	}
}

// Whoever gives up on what is slow everywhere takes no endpoint from others,
// whether there are any or he is alone.
func TestImpatientClientsEjectNobody(t *testing.T) {
	slowly := func(path string) time.Duration {
		if strings.HasPrefix(path, "/slow") {
			return 20 * time.Second
		}
		return time.Duration(rand.N(20)) * time.Millisecond
	}
	for name, c := range map[string]struct {
		method string
		slow   time.Duration // between two that are given up
		quick  time.Duration // between two others; 0: none
		waits  time.Duration
	}{
		"alone":       {"GET", 0, 0, 10 * time.Second},
		"with some":   {"GET", 0, 500 * time.Millisecond, 6 * time.Second},
		"with many":   {"GET", 100 * time.Millisecond, 20 * time.Millisecond, 6 * time.Second},
		"hasty":       {"GET", 0, 500 * time.Millisecond, time.Second},
		"with writes": {"POST", 0, 500 * time.Millisecond, 6 * time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			p := turns()
			p.Balance = backend.LeastRequest
			inPipes(t, p, []behaves{slowly, slowly}, func(t *testing.T, u *Upstream) {
				ctx, stop := context.WithCancel(t.Context())
				var all sync.WaitGroup
				if c.quick > 0 {
					all.Go(func() {
						for ; ctx.Err() == nil; time.Sleep(c.quick) {
							all.Go(func() { ask(u, "GET", "/quick", time.Minute) })
						}
					})
				}
				for range 60 {
					if c.slow > 0 {
						all.Go(func() { ask(u, c.method, "/slow", c.waits) })
						time.Sleep(c.slow)
					} else {
						ask(u, c.method, "/slow", c.waits)
					}
				}
				stop()
				all.Wait()
				for _, s := range u.Status().Endpoints {
					if s.Ejections != 0 {
						t.Errorf("%d ejections: %s", s.Ejections, s.LastError)
					}
				}
				time.Sleep(time.Minute) // what the servers still do
			})
		})
	}
}

// Who gives a request as much time as an answer may take to begin, which is what
// the gateway does unless somebody says otherwise, has it count when that is over,
// whatever the verb, and whatever others answer. A shorter time does not count, nor
// one of which a client took a part to send the body.
func TestWholeTimeOver(t *testing.T) {
	for name, c := range map[string]struct {
		method string
		limit  time.Duration
		waits  time.Duration
		out    bool
	}{
		"a write":                     {"POST", time.Minute, time.Minute, true},
		"a read":                      {"GET", time.Minute, time.Minute, true},
		"a moment went elsewhere":     {"POST", time.Minute, 58 * time.Second, true},
		"the client's own time":       {"POST", time.Minute, 50 * time.Second, false},
		"an answer may take longer":   {"POST", 2 * time.Minute, time.Minute, false},
		"an answer may take for ever": {"POST", 0, time.Minute, false},
	} {
		t.Run(name, func(t *testing.T) {
			p := turns()
			p.ResponseHeader, p.ConsecutiveLocalErrors = c.limit, 3
			inPipes(t, p, []behaves{hangs, atOnce}, func(t *testing.T, u *Upstream) {
				for range 5 {
					ask(u, c.method, "/one", c.waits) // in turn
					ask(u, c.method, "/another", c.waits)
				}
				s := u.Status().Endpoints[0]
				if out := s.Ejections > 0; out != c.out || out && s.LastError != errHeader.Error() {
					t.Errorf("%+v", s)
				}
			})
		})
	}
}

// An endpoint that answers others is not ejected for what takes all of its time.
func TestWholeTimeOverWhereOthersAreAnswered(t *testing.T) {
	inPipes(t, turns(), []behaves{hangsAt("/slow"), hangsAt("/slow")}, func(t *testing.T, u *Upstream) {
		for range 20 {
			ask(u, "POST", "/slow", time.Minute)
			for range 2 {
				ask(u, "GET", "/quick", time.Minute)
			}
		}
		for _, s := range u.Status().Endpoints {
			if s.Ejections != 0 {
				t.Errorf("%+v", s)
			}
		}
	})
}

func hangsAt(path string) behaves {
	return func(asked string) time.Duration {
		if asked == path {
			return -1
		}
		return time.Millisecond
	}
}

// Doubts are bounded in number and time, end when the endpoint answers, and count
// only as far as others have answered the same.
func TestDoubts(t *testing.T) {
	a, b, c := new(endpoint), new(endpoint), new(endpoint)
	now := time.Unix(0, 0)
	var d doubts
	hung := func(what string, got []*endpoint, want ...*endpoint) {
		t.Helper()
		if len(got) != len(want) || len(want) == 1 && got[0] != want[0] {
			t.Errorf("%s: %d are hung, want %d", what, len(got), len(want))
		}
	}
	for range 3 {
		d.add(a, 1, now)
	}
	hung("another request", d.answered(b, 2, true, 3))
	hung("late, or badly", d.answered(b, 1, false, 3))
	hung("once", d.answered(b, 1, true, 3))
	hung("twice", d.answered(c, 1, true, 3))
	hung("none are enough", d.answered(c, 1, true, 0))
	hung("three times", d.answered(b, 1, true, 3), a)
	if d.open.Load() != 0 {
		t.Error("it is doubted again")
	}
	d.add(a, 1, now)
	for range 5 {
		hung("given up once", d.answered(b, 1, true, 3))
	}
	d.add(a, 1, now)
	d.add(a, 2, now)
	hung("two requests", d.answered(b, 1, true, 3))
	hung("of three in all", d.answered(b, 2, true, 3), a)
	for range 3 {
		d.add(a, 1, now)
		d.add(b, 1, now)
	}
	hung("it answered", d.answered(a, 9, false, 3))
	for range 2 {
		hung("not yet", d.answered(c, 1, true, 3))
	}
	hung("the other did not", d.answered(c, 1, true, 3), b)
	for i := range maxDoubts + 5 {
		d.add(a, uint64(i), now)
	}
	if len(d.list) != maxDoubts || d.list[0].likes != 5 {
		t.Errorf("%d are remembered, want %d, the last", len(d.list), maxDoubts)
	}
	d.add(a, 7, now.Add(doubtLife+1))
	if len(d.list) != 1 || d.open.Load() != 1 || d.list[0].givenUp != 1 {
		t.Errorf("%d of long ago", len(d.list)-1)
	}
}
