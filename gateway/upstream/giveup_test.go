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
	"portico/resource"
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
	req = req.WithContext(resource.WithAction(ctx, resource.ParseAction(req)))
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

// Two objects of one kind.
const (
	slowObject  = "/apis/g/v1/things/slow"
	quickObject = "/apis/g/v1/things/quick"
)

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
		if strings.HasPrefix(path, slowObject) {
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
							all.Go(func() { ask(u, "GET", quickObject, time.Minute) })
						}
					})
				}
				for range 60 {
					if c.slow > 0 {
						all.Go(func() { ask(u, c.method, slowObject, c.waits) })
						time.Sleep(c.slow)
					} else {
						ask(u, c.method, slowObject, c.waits)
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

// Whoever's time is over, the client's own, that of requests or that for the answer to
// begin: an endpoint that hangs is found by reads that others answer at once. Writes,
// and what a REST server is asked, tell nothing of it.
func TestTimeOver(t *testing.T) {
	const list = "/apis/g/v1/things"
	for name, c := range map[string]struct {
		method, path string
		limit, waits time.Duration
		plain, out   bool
	}{
		"an object":                   {"GET", quickObject, time.Minute, time.Minute, false, true},
		"a list":                      {"GET", list + "?limit=500", time.Minute, time.Minute, false, true},
		"the client's own time":       {"GET", quickObject, time.Minute, 10 * time.Second, false, true},
		"a hasty client":              {"GET", quickObject, time.Minute, 4 * time.Second, false, false},
		"an answer has a second":      {"GET", quickObject, time.Second, time.Minute, false, true},
		"an answer may take for ever": {"GET", quickObject, 0, time.Minute, false, true},
		"a write":                     {"POST", list, time.Minute, time.Minute, false, false},
		"a write has a second":        {"PUT", quickObject, time.Second, time.Minute, false, false},
		"a subresource":               {"GET", quickObject + "/scale", time.Minute, time.Minute, false, false},
		"a REST server":               {"GET", quickObject, time.Minute, time.Minute, true, false},
		"no object":                   {"GET", "/quick", time.Minute, time.Minute, false, false},
	} {
		t.Run(name, func(t *testing.T) {
			p := turns()
			p.ResponseHeader = c.limit
			inPipes(t, p, []behaves{hangs, atOnce}, func(t *testing.T, u *Upstream) {
				u.plain = c.plain
				for range 10 {
					ask(u, c.method, c.path, c.waits)
				}
				s := u.Status().Endpoints[0]
				if out := s.Ejections > 0; out != c.out || out && s.LastError != (&GivenUpError{3}).Error() {
					t.Errorf("%+v", s)
				}
			})
		})
	}
}

// Healthy endpoints are not ejected by what is slow on all of them, however it is
// asked for, and whatever else is.
func TestSlowRequestsEjectNobody(t *testing.T) {
	slowly := func(path string) time.Duration {
		if path == slowObject {
			return 5 * time.Minute
		}
		return time.Millisecond
	}
	for name, c := range map[string]struct {
		method           string
		together         int
		waits, otherwise time.Duration // otherwise: between two quick ones
	}{
		"many at a time":           {"GET", 6, time.Minute, 100 * time.Millisecond},
		"many writes at a time":    {"POST", 6, time.Minute, 100 * time.Millisecond},
		"one after the other":      {"GET", 1, time.Minute, 100 * time.Millisecond},
		"writes, one by one":       {"PUT", 1, time.Minute, 100 * time.Millisecond},
		"long polls, and few else": {"GET", 1, 8 * time.Second, 3 * time.Second},
		"nothing else":             {"GET", 6, time.Minute, time.Hour},
	} {
		t.Run(name, func(t *testing.T) {
			p := NewPolicy(&backend.Spec{})
			inPipes(t, p, []behaves{slowly, slowly}, func(t *testing.T, u *Upstream) {
				ctx, stop := context.WithTimeout(t.Context(), 10*time.Minute)
				defer stop()
				var all sync.WaitGroup
				for range c.together {
					all.Go(func() {
						for ctx.Err() == nil {
							ask(u, c.method, slowObject, c.waits)
						}
					})
				}
				all.Go(func() {
					for ctx.Err() == nil {
						ask(u, "GET", quickObject, time.Second)
						time.Sleep(c.otherwise)
					}
				})
				all.Wait()
				for _, s := range u.Status().Endpoints {
					if s.Ejections != 0 {
						t.Errorf("%d ejections: %s", s.Ejections, s.LastError)
					}
				}
				time.Sleep(10 * time.Minute) // what the servers still do
			})
		})
	}
}

// What takes about as long everywhere is no sign of a hung endpoint, though some
// answers come in time and others do not.
func TestNearlyInTime(t *testing.T) {
	list := func(string) time.Duration { return 4*time.Second + time.Duration(rand.N(4000))*time.Millisecond }
	inPipes(t, NewPolicy(&backend.Spec{}), []behaves{list, list}, func(t *testing.T, u *Upstream) {
		for range 1000 {
			ask(u, "GET", "/apis/g/v1/things", 6*time.Second)
		}
		for _, s := range u.Status().Endpoints {
			if s.Ejections != 0 {
				t.Errorf("%d ejections: %s", s.Ejections, s.LastError)
			}
		}
		time.Sleep(time.Minute)
	})
}

// Doubts are bounded in number and time, end when the endpoint answers, and count
// only as far as others have answered the same.
func TestDoubts(t *testing.T) {
	a, b := new(endpoint), new(endpoint)
	now := time.Unix(0, 0)
	var d doubts
	hung := func(what string, got []*endpoint, want ...*endpoint) {
		t.Helper()
		if len(got) != len(want) || len(want) == 1 && got[0] != want[0] {
			t.Errorf("%s: %d are hung, want %d", what, len(got), len(want))
		}
	}
	const long = 10 * time.Second
	soon := func(likes uint64, enough int) []*endpoint { return d.compare(likes, long/sooner, enough) }
	for range 3 {
		d.add(a, 1, long, now)
	}
	hung("another request", soon(2, 3))
	hung("later", d.compare(1, long/sooner+1, 3))
	hung("once", soon(1, 3))
	hung("twice", soon(1, 3))
	hung("three times", soon(1, 3), a)
	if d.open.Load() != 0 {
		t.Error("it is doubted again")
	}
	d.add(a, 1, long, now)
	for range 5 {
		hung("given up once", soon(1, 3))
	}
	d.add(a, 1, long, now)
	d.add(a, 2, long, now)
	hung("two requests", soon(1, 3))
	hung("of three in all", soon(2, 3), a)
	for range 3 {
		d.add(a, 1, long, now)
		d.add(b, 1, long, now)
	}
	d.hears(a)
	for range 2 {
		hung("not yet", soon(1, 3))
	}
	hung("the other did not answer", soon(1, 3), b)
	for range 3 {
		d.add(a, 1, long, now)
	}
	d.add(a, 1, long/2, now)
	for range 3 {
		hung("given up earlier", soon(1, 3))
	}
	for i := range maxDoubts + 5 {
		d.add(a, uint64(i), long, now)
	}
	if len(d.list) != maxDoubts || d.list[0].likes != 5 {
		t.Errorf("%d are remembered, want %d, the last", len(d.list), maxDoubts)
	}
	d.add(a, 7, long, now.Add(doubtLife+1))
	if len(d.list) != 1 || d.open.Load() != 1 || d.list[0].givenUp != 1 {
		t.Errorf("%d of long ago", len(d.list)-1)
	}
}
