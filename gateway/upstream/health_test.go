package upstream

import (
	"errors"
	"fmt"
	"net/http"
	"slices"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"portico/apiservice/availability"
	"portico/apiservice/backend"
)

// inTime runs body with an Upstream of n endpoints that nobody connects to, in
// fake time.
func inTime(t *testing.T, p Policy, n int, body func(t *testing.T, u *Upstream)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		weights := make([]int, n)
		for i := range weights {
			weights[i] = 1
		}
		u := New(Config{Base: mustParse("https://example.com"), Endpoints: some(weights...), Policy: p})
		defer u.Close()
		body(t, u)
	})
}

// gets are the endpoints, by number, that get requests.
func gets(u *Upstream) (out []int) {
	for _, c := range u.balancer.Load().List {
		out = append(out, slices.Index(u.endpoints, c.Endpoint))
	}
	return out
}

func want(t *testing.T, u *Upstream, when string, list ...int) {
	t.Helper()
	if got := gets(u); !slices.Equal(got, list) {
		t.Errorf("%s: %v get requests, want %v", when, got, list)
	}
}

var (
	errBroken  = errors.New("connection reset")
	errRefused = fmt.Errorf("dial: %w", syscall.ECONNREFUSED)
	unhealthy  = availability.Verdict{Known: true, Err: errBroken}
	healthy    = availability.Verdict{Known: true, Healthy: true}
)

func TestEjection(t *testing.T) {
	p := NewPolicy(&backend.Spec{})
	inTime(t, p, 4, func(t *testing.T, u *Upstream) {
		e := u.endpoints
		for range 4 {
			u.failed(e[0], 500)
		}
		want(t, u, "four errors", 0, 1, 2, 3)
		u.failed(e[0], 500)
		want(t, u, "five errors", 1, 2, 3)
		for range 3 {
			u.failedLocally(e[1], errBroken)
		}
		want(t, u, "three that broke", 2, 3)
		for range 9 {
			u.failed(e[2], 503)
		}
		want(t, u, "half of them may be out", 2, 3)
		for _, s := range u.Status().Endpoints[:2] {
			if s.State != backend.EndpointEjected || s.Ejections != 1 || s.LastError == "" || s.Since.IsZero() {
				t.Errorf("%+v", s)
			}
		}
		time.Sleep(29 * time.Second)
		want(t, u, "before the time is over", 2, 3)
		time.Sleep(5 * time.Second)
		want(t, u, "after", 0, 1, 2, 3)
		for range 5 {
			u.failed(e[0], 500)
		}
		time.Sleep(59 * time.Second)
		want(t, u, "the second time is twice as long", 1, 2, 3)
		time.Sleep(5 * time.Second)
		want(t, u, "but ends", 0, 1, 2, 3)
		time.Sleep(10 * time.Minute)
		for range 5 {
			u.failed(e[0], 500)
		}
		time.Sleep(34 * time.Second)
		want(t, u, "what is long ago does not count", 0, 1, 2, 3)
	})
}

func TestEjectionGrows(t *testing.T) {
	p := NewPolicy(&backend.Spec{})
	inTime(t, p, 2, func(t *testing.T, u *Upstream) {
		for i, seconds := range []int{30, 60, 90, 120, 150, 180, 210, 240, 270, 300, 300, 300} {
			for range 5 {
				u.failed(u.endpoints[0], 500)
			}
			began := time.Now()
			for len(gets(u)) == 1 {
				time.Sleep(time.Second)
			}
			if d := time.Since(began) - time.Duration(seconds)*time.Second; d < 0 || d > 4*time.Second {
				t.Errorf("ejection %d lasts %v too long or short", i+1, d)
			}
		}
	})
}

func TestEjectionSpares(t *testing.T) {
	out := func(u *Upstream, i int) {
		for range 5 {
			u.failed(u.endpoints[i], 500)
		}
	}
	t.Run("the only one", func(t *testing.T) {
		inTime(t, NewPolicy(&backend.Spec{}), 1, func(t *testing.T, u *Upstream) {
			out(u, 0)
			want(t, u, "alone", 0)
			u.SetVerdict(u.endpoints[0].URL, unhealthy)
			if u.balancer.Load().only != u.endpoints[0] {
				t.Error("it cannot be asked whether it is back")
			}
		})
	})
	t.Run("the last that is healthy", func(t *testing.T) {
		inTime(t, turns(), 3, func(t *testing.T, u *Upstream) {
			u.SetVerdict(u.endpoints[1].URL, unhealthy)
			u.SetVerdict(u.endpoints[2].URL, unhealthy)
			out(u, 0)
			want(t, u, "others fail their checks", 0)
			u.SetVerdict(u.endpoints[0].URL, unhealthy)
			want(t, u, "a failing check takes the last")
			if err := u.balancer.Load().err; err == nil || !errors.Is(err, errBroken) {
				t.Errorf("nobody says why: %v", err)
			}
		})
	})
	t.Run("more than the share", func(t *testing.T) {
		p := turns()
		for percent, most := range map[int]int{0: 0, 1: 1, 34: 3, 100: 9} {
			p.MaxEjectionPercent = percent
			inTime(t, p, 10, func(t *testing.T, u *Upstream) {
				for i := range 10 {
					out(u, i)
				}
				if n := 10 - len(gets(u)); n != most {
					t.Errorf("%d %%: %d out, want %d", percent, n, most)
				}
			})
		}
	})
	t.Run("never, by policy", func(t *testing.T) {
		p := turns()
		p.ConsecutiveErrors, p.ConsecutiveLocalErrors = 0, 0
		inTime(t, p, 3, func(t *testing.T, u *Upstream) {
			for range 100 {
				u.failed(u.endpoints[0], 500)
				u.failedLocally(u.endpoints[1], errBroken)
			}
			want(t, u, "off", 0, 1, 2)
		})
	})
}

// Where too few would be left, ejections do not count; checks do.
func TestPanic(t *testing.T) {
	p := NewPolicy(&backend.Spec{})
	p.MaxEjectionPercent = 100
	inTime(t, p, 5, func(t *testing.T, u *Upstream) {
		eject := func(i int) {
			for range 5 {
				u.failed(u.endpoints[i], 500)
			}
		}
		eject(0)
		eject(1)
		want(t, u, "three of five are enough", 2, 3, 4)
		u.SetVerdict(u.endpoints[4].URL, unhealthy)
		want(t, u, "two are not", 0, 1, 2, 3)
		u.SetVerdict(u.endpoints[4].URL, healthy)
		want(t, u, "three again", 2, 3, 4)
		p.PanicPercent = 0
		u.SetPolicy(p)
		u.SetVerdict(u.endpoints[4].URL, unhealthy)
		want(t, u, "no panic", 2, 3)
	})
}

func TestRefused(t *testing.T) {
	inTime(t, turns(), 2, func(t *testing.T, u *Upstream) {
		var told atomic.Int32
		u.changed = func() { told.Add(1) }
		u.failedLocally(u.endpoints[0], errRefused)
		want(t, u, "the next request", 1)
		if s := u.Status().Endpoints[0]; s.State != backend.EndpointUnhealthy || s.LastError != errRefused.Error() || told.Load() != 1 {
			t.Errorf("%+v, told %d times", s, told.Load())
		}
		u.failedLocally(u.endpoints[1], errRefused)
		want(t, u, "all: better than nobody", 0, 1)
		time.Sleep(refusedFor + time.Millisecond)
		want(t, u, "later", 0, 1)
		u.failedLocally(u.endpoints[0], errRefused)
		u.passed(u.endpoints[0])
		want(t, u, "it passed a check", 0, 1)
		u.failedLocally(u.endpoints[0], errRefused)
		u.SetVerdict(u.endpoints[0].URL, unhealthy)
		time.Sleep(time.Hour)
		want(t, u, "and fell", 1)
		u.SetVerdict(u.endpoints[0].URL, healthy)
		want(t, u, "and rose", 0, 1)
		if s := u.Status().Endpoints[0]; s.State != backend.EndpointHealthy {
			t.Errorf("%+v", s)
		}
	})
}

// An endpoint that fell and rose has no past.
func TestRisen(t *testing.T) {
	inTime(t, turns(), 2, func(t *testing.T, u *Upstream) {
		for range 5 {
			u.failed(u.endpoints[0], 500)
		}
		u.SetVerdict(u.endpoints[0].URL, unhealthy)
		want(t, u, "ejected and fallen", 1)
		u.SetVerdict(u.endpoints[0].URL, healthy)
		want(t, u, "risen", 0, 1)
	})
}

// A passed check ends an ejection for connections, and no other.
func TestPassedCheck(t *testing.T) {
	p := turns()
	p.MaxEjectionPercent = 100
	inTime(t, p, 3, func(t *testing.T, u *Upstream) {
		for range 5 {
			u.failed(u.endpoints[0], 500)
			u.failedLocally(u.endpoints[1], errBroken)
		}
		want(t, u, "both are out", 2)
		u.passed(u.endpoints[0])
		u.passed(u.endpoints[1])
		want(t, u, "checks passed", 1, 2)
	})
}

// An endpoint that stays keeps what is known of it, whatever its weight; one
// that goes is forgotten.
func TestSetEndpointsKeeps(t *testing.T) {
	inTime(t, turns(), 3, func(t *testing.T, u *Upstream) {
		for range 5 {
			u.failed(u.endpoints[0], 500)
		}
		list := some(1, 0, 7)
		before := slices.Clone(u.endpoints)
		u.SetEndpoints(list)
		want(t, u, "one is ejected, one drains", 2)
		if !slices.Equal(u.endpoints, before) || u.Status().Endpoints[1].State != backend.EndpointDraining {
			t.Error("they are others")
		}
		u.SetEndpoints(list[1:])
		u.SetEndpoints(some(1, 1, 1))
		want(t, u, "it came back at once", 0, 1, 2)
		if u.endpoints[0] != before[0] || u.Status().Endpoints[0].Errors != 5 {
			t.Error("it is another one")
		}
		u.SetEndpoints(list[1:])
		time.Sleep(drainWithin + time.Second)
		u.SetEndpoints(some(1, 1, 1))
		want(t, u, "it came anew", 0, 1, 2)
		if u.endpoints[0] == before[0] || u.Status().Endpoints[0].Errors != 0 || len(u.removed) != 0 {
			t.Error("it is the old one")
		}
		moved := some(1, 1, 1)
		moved[1].Address = "127.0.0.1:2"
		u.SetEndpoints(moved)
		if u.endpoints[1] == before[1] {
			t.Error("its address changed, and its connections did not")
		}
		time.Sleep(time.Hour) // timers of what is gone
	})
}

// An endpoint that falls silent gives its safe requests to others at once; those
// that it may carry out wait for it.
func TestSilentEndpoint(t *testing.T) {
	hang, arrived := make(chan struct{}), make(chan string, 10)
	silent := startNode(t, "tls", func(_ http.ResponseWriter, r *http.Request) {
		arrived <- r.Method
		<-hang
	})
	good := startNode(t, "tls", nil)
	u := over(t, turns(), silent.endpoint(), good.endpoint())
	results := make(chan result, 3)
	for _, c := range []struct {
		method string
		kind   kind
	}{{"GET", short}, {"GET", long}, {"POST", short}} {
		u.SetEndpoints([]Endpoint{silent.endpoint()}) // whoever's turn it is
		u.SetEndpoints([]Endpoint{silent.endpoint(), good.endpoint()})
		go func() { results <- send(t, u, c.kind, c.method, "") }()
		<-arrived
	}
	u.SetVerdict(silent.endpoint().URL, availability.Verdict{Known: true, Err: &AnswerError{500}})
	select {
	case r := <-results:
		t.Fatalf("it answers its checks, if badly: %+v", r)
	case <-time.After(50 * time.Millisecond):
	}
	u.SetVerdict(silent.endpoint().URL, healthy)
	u.SetVerdict(silent.endpoint().URL, unhealthy)
	for range 2 {
		if r := <-results; r.code != 200 || len(r.trace.Attempts()) != 2 || !errors.Is(r.trace.Attempts()[0].Err, errSilent) {
			t.Errorf("%+v %+v", r, r.trace.Attempts())
		}
	}
	if seen := good.seen(); !slices.Equal(seen, []string{"GET", "GET"}) {
		t.Errorf("the good one saw %v", seen)
	}
	close(hang)
	if r := <-results; r.code != 200 || len(r.trace.Attempts()) != 1 {
		t.Errorf("%+v", r)
	}
}
