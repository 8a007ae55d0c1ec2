package upstream

import (
	"context"
	"errors"
	"fmt"
	"math"
	"net/http"
	"slices"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"portico/apiservice/availability"
	"portico/apiservice/backend"
	"portico/gateway/upstream/transport"
)

var (
	errBroken  = errors.New("connection reset")
	errRefused = fmt.Errorf("dial: %w", syscall.ECONNREFUSED)
	unhealthy  = availability.Verdict{Known: true, Err: errBroken}
	healthy    = availability.Verdict{Known: true, Healthy: true}
)

// some returns endpoints of the given weights that are not connected to.
func some(weights ...int) []Endpoint {
	var out []Endpoint
	for i, w := range weights {
		out = append(out, Endpoint{URL: fmt.Sprintf("https://10.0.0.%d:443", i), Network: "tcp", Address: "127.0.0.1:1", Weight: w})
	}
	return out
}

// inTime runs body in fake time, with an Upstream of n endpoints that are not connected
// to.
func inTime(t *testing.T, p Policy, n int, body func(t *testing.T, u *Upstream)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		weights := slices.Repeat([]int{1}, n)
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

// failAnswers has an endpoint answer with errors until it is ejected, if it may be.
func failAnswers(u *Upstream, i int) {
	for range 5 {
		u.answerFailed(u.endpoints[i], 500)
	}
}

// Five errors or three broken connections in a row eject an endpoint for 30 seconds and a
// little more.
func TestEjection(t *testing.T) {
	t.Parallel()
	inTime(t, NewPolicy(&backend.Spec{}), 4, func(t *testing.T, u *Upstream) {
		e := u.endpoints
		for range 4 {
			u.answerFailed(e[0], 500)
		}
		want(t, u, "four errors", 0, 1, 2, 3)
		u.answerFailed(e[0], 500)
		want(t, u, "five errors", 1, 2, 3)
		for range 3 {
			u.connectionFailed(e[1], errBroken)
		}
		want(t, u, "three that broke", 2, 3)
		failAnswers(u, 2)
		want(t, u, "at most half are ejected", 2, 3)
		for _, s := range u.Status().Endpoints[:2] {
			if s.State != backend.EndpointEjected || s.Ejections != 1 || s.LastError == "" || s.Since.IsZero() {
				t.Errorf("%+v", s)
			}
		}
		time.Sleep(29 * time.Second)
		want(t, u, "before the end", 2, 3)
		time.Sleep(5 * time.Second)
		want(t, u, "after the end", 0, 1, 2, 3)
	})
}

// An ejection leaves at least one endpoint that passes its checks, no more than the
// policy's share is ejected, and a policy without ejections ends them.
func TestEjectionSpares(t *testing.T) {
	t.Parallel()
	t.Run("the only one", func(t *testing.T) {
		inTime(t, NewPolicy(&backend.Spec{}), 1, func(t *testing.T, u *Upstream) {
			failAnswers(u, 0)
			want(t, u, "alone", 0)
			u.SetVerdict(u.endpoints[0].URL, unhealthy)
			if u.balancer.Load().only != u.endpoints[0] {
				t.Error("it gets no request after a failed check")
			}
		})
	})
	t.Run("the last that is healthy", func(t *testing.T) {
		inTime(t, turns(), 3, func(t *testing.T, u *Upstream) {
			u.SetVerdict(u.endpoints[1].URL, unhealthy)
			u.SetVerdict(u.endpoints[2].URL, unhealthy)
			failAnswers(u, 0)
			want(t, u, "others fail their checks", 0)
			u.SetVerdict(u.endpoints[0].URL, unhealthy)
			want(t, u, "a failed check excludes the last")
			if err := u.balancer.Load().err; err == nil || !errors.Is(err, errBroken) {
				t.Errorf("the error is %v", err)
			}
		})
	})
	t.Run("more than the share", func(t *testing.T) {
		p := turns()
		for percent, most := range map[int]int{0: 0, 1: 1, 34: 3, 100: 9} {
			p.Outlier.MaxEjectionPercent = percent
			inTime(t, p, 10, func(t *testing.T, u *Upstream) {
				for i := range 10 {
					failAnswers(u, i)
				}
				if n := 10 - len(gets(u)); n != most {
					t.Errorf("%d %%: %d are ejected, want %d", percent, n, most)
				}
				p.Outlier.MaxEjectionPercent = 0
				u.SetPolicy(p)
				want(t, u, "no ejections", 0, 1, 2, 3, 4, 5, 6, 7, 8, 9)
			})
		}
	})
	t.Run("by a panic threshold", func(t *testing.T) {
		p := NewPolicy(&backend.Spec{})
		p.Outlier.MaxEjectionPercent = 100
		inTime(t, p, 5, func(t *testing.T, u *Upstream) {
			u.SetVerdict(u.endpoints[4].URL, unhealthy)
			failAnswers(u, 0)
			want(t, u, "three of five are left", 1, 2, 3)
			failAnswers(u, 1)
			want(t, u, "two are left", 0, 1, 2, 3)
		})
	})
}

// An endpoint that refuses a connection gets no requests for a short time, or until it
// passes a check, unless all refuse.
func TestRefused(t *testing.T) {
	t.Parallel()
	inTime(t, turns(), 2, func(t *testing.T, u *Upstream) {
		var changes atomic.Int32
		u.changed = func() { changes.Add(1) }
		u.connectionFailed(u.endpoints[0], errRefused)
		want(t, u, "the next request", 1)
		if s := u.Status().Endpoints[0]; s.State != backend.EndpointUnhealthy || s.LastError != errRefused.Error() || changes.Load() != 1 {
			t.Errorf("%+v, %d changes", s, changes.Load())
		}
		u.connectionFailed(u.endpoints[1], errRefused)
		want(t, u, "all refuse", 0, 1)
		time.Sleep(3 * time.Second)
		u.connectionFailed(u.endpoints[0], errRefused)
		time.Sleep(1900 * time.Millisecond)
		want(t, u, "before two seconds", 1)
		time.Sleep(200 * time.Millisecond)
		want(t, u, "after two seconds", 0, 1)
		u.connectionFailed(u.endpoints[0], errRefused)
		u.checkPassed(u.endpoints[0])
		want(t, u, "it passed a check", 0, 1)
		u.connectionFailed(u.endpoints[0], errRefused)
		u.SetVerdict(u.endpoints[0].URL, unhealthy)
		time.Sleep(time.Hour)
		want(t, u, "it failed a check", 1)
		u.SetVerdict(u.endpoints[0].URL, healthy)
		want(t, u, "it recovered", 0, 1)
	})
}

// An endpoint that stays keeps its state, whatever its weight. One that is removed, or gets
// another address, is a new one when it is set again.
func TestSetEndpointsKeeps(t *testing.T) {
	t.Parallel()
	inTime(t, turns(), 3, func(t *testing.T, u *Upstream) {
		failAnswers(u, 0)
		list := some(1, 0, 7)
		before := slices.Clone(u.endpoints)
		u.SetEndpoints(list)
		want(t, u, "one is ejected, one drains", 2)
		if !slices.Equal(u.endpoints, before) || u.Status().Endpoints[1].State != backend.EndpointDraining {
			t.Error("they are new")
		}
		list[2].Address = "127.0.0.1:2"
		u.SetEndpoints(list[1:])
		u.SetEndpoints(some(1, 1, 1))
		want(t, u, "set again", 0, 1, 2)
		if u.endpoints[0] == before[0] || u.endpoints[1] != before[1] || u.endpoints[2] == before[2] || u.Status().Endpoints[0].Errors != 0 {
			t.Error("not the second alone is kept")
		}
	})
}

// A safe request to an endpoint that no longer answers its checks is sent to another at
// once; one that may be carried out waits.
func TestSilentEndpoint(t *testing.T) {
	t.Parallel()
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
		for pick(u, by("x")) == u.endpoints[0] {
			continue // until the silent one is next
		}
		go func() { results <- send(t, u, c.kind, c.method, "") }()
		<-arrived
	}
	u.SetVerdict(silent.endpoint().URL, availability.Verdict{Known: true, Err: &AnswerError{500}})
	select {
	case r := <-results:
		t.Fatalf("it answers its checks, if with errors: %+v", r)
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

// shareOf is the share of requests that an endpoint has by weight, in percent.
func shareOf(t *testing.T, u *Upstream, i int) float64 {
	t.Helper()
	_, list, err := u.Explain(by("x"))
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range list {
		if c.URL == u.endpoints[i].URL {
			return c.Share
		}
	}
	return 0
}

func wantShare(t *testing.T, u *Upstream, when string, i int, percent float64) {
	t.Helper()
	if got := shareOf(t, u, i); math.Abs(got-percent) > 0.5 {
		t.Errorf("%s: %.1f %%, want %.1f", when, got, percent)
	}
}

// The share of an endpoint that gets requests again begins with a tenth of its weight
// and has grown after ten seconds, whatever kept requests away.
func TestSlowStart(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct{ leaves, returns func(u *Upstream) }{
		"checks": {
			func(u *Upstream) { u.SetVerdict(u.endpoints[0].URL, unhealthy) },
			func(u *Upstream) { u.SetVerdict(u.endpoints[0].URL, healthy) },
		},
		"ejection": {func(u *Upstream) { failAnswers(u, 0) }, untilUsed},
		"refusal":  {func(u *Upstream) { u.connectionFailed(u.endpoints[0], errRefused) }, untilUsed},
		"weight":   {func(u *Upstream) { u.SetEndpoints(some(0, 1)) }, func(u *Upstream) { u.SetEndpoints(some(1, 1)) }},
		"new":      {func(u *Upstream) { u.SetEndpoints(some(1, 1)[1:]) }, func(u *Upstream) { u.SetEndpoints(some(1, 1)) }},
	} {
		t.Run(name, func(t *testing.T) {
			inTime(t, turns(), 2, func(t *testing.T, u *Upstream) {
				wantShare(t, u, "all began together", 0, 50)
				c.leaves(u)
				wantShare(t, u, "without it", len(u.endpoints)-1, 100)
				time.Sleep(time.Millisecond)
				c.returns(u)
				wantShare(t, u, "at first", 0, 100*0.1/1.1)
				time.Sleep(5*time.Second + 100*time.Millisecond)
				wantShare(t, u, "half-way", 0, 100*0.5/1.5)
				if s := u.Status().Endpoints; math.Abs(s[0].Grown-0.5) > 0.02 || s[1].Grown != 1 {
					t.Errorf("half-way they have %v and %v", s[0].Grown, s[1].Grown)
				}
				time.Sleep(5 * time.Second)
				wantShare(t, u, "at the end", 0, 50)
				u.mu.Lock()
				defer u.mu.Unlock()
				if u.timer != nil {
					t.Error("shares are computed again")
				}
			})
		})
	}
}

// untilUsed waits until the first endpoint gets requests.
func untilUsed(u *Upstream) {
	for !slices.Contains(gets(u), 0) {
		time.Sleep(10 * time.Millisecond)
	}
}

// Shares do not grow for the only endpoint, or for all at once.
func TestSlowStartOfAll(t *testing.T) {
	t.Parallel()
	inTime(t, turns(), 3, func(t *testing.T, u *Upstream) {
		for _, e := range u.endpoints {
			u.SetVerdict(e.URL, unhealthy)
		}
		want(t, u, "none")
		u.SetVerdict(u.endpoints[0].URL, healthy)
		wantShare(t, u, "the first", 0, 100)
		u.SetEndpoints(nil)
		u.SetEndpoints(some(1, 1))
		wantShare(t, u, "two after none", 0, 50)
		u.SetEndpoints(some(0, 0, 1, 1)[2:])
		wantShare(t, u, "two for two", 0, 50)
	})
}

// Endpoints that do not answer their checks in time get requests while no other passes, and those
// that cannot be connected to do not.
func TestSlowEndpointsAreTheLastResort(t *testing.T) {
	t.Parallel()
	slow := availability.Verdict{Known: true, Err: &availability.TimeoutError{After: time.Second, Err: context.DeadlineExceeded}}
	unconnected := availability.Verdict{Known: true, Err: &availability.TimeoutError{After: time.Second, Err: &transport.ConnectError{Err: context.DeadlineExceeded}}}
	inTime(t, turns(), 3, func(t *testing.T, u *Upstream) {
		set := func(verdicts ...availability.Verdict) {
			for i, v := range verdicts {
				u.SetVerdict(u.endpoints[i].URL, v)
			}
		}
		for name, c := range map[string]struct {
			verdicts []availability.Verdict
			list     []int
			slow     bool
		}{
			"one passes":               {[]availability.Verdict{healthy, slow, slow}, []int{0}, false},
			"none passes":              {[]availability.Verdict{unhealthy, slow, slow}, []int{1, 2}, true},
			"one cannot be reached":    {[]availability.Verdict{unconnected, unhealthy, slow}, []int{2}, true},
			"none can be connected to": {[]availability.Verdict{unconnected, unconnected, unhealthy}, nil, false},
		} {
			if set(c.verdicts...); u.Slow() != c.slow {
				t.Errorf("%s: slow is %t", name, u.Slow())
			}
			want(t, u, name, c.list...)
		}
	})
}

// A request to a server that does not answer its checks in time waits longer than they do, and not
// for ever.
func TestRequestsToSlowEndpoints(t *testing.T) {
	t.Parallel()
	inTime(t, NewPolicy(&backend.Spec{}), 1, func(t *testing.T, u *Upstream) {
		for name, c := range map[string]struct {
			verdict availability.Verdict
			kind    kind
			want    time.Duration
		}{
			"healthy":          {healthy, short, 60 * time.Second},
			"slow":             {availability.Verdict{Known: true, Err: &availability.TimeoutError{}}, short, slowWait},
			"slow, a watch":    {availability.Verdict{Known: true, Err: &availability.TimeoutError{}}, long, slowWait},
			"healthy, a watch": {healthy, long, 0},
		} {
			u.SetVerdict(u.endpoints[0].URL, c.verdict)
			req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "https://example.com/api", nil)
			if err != nil {
				t.Fatal(err)
			}
			l := u.newRetryLoop(req, c.kind)
			if got := l.headerTimeout(); got != c.want {
				t.Errorf("%s: waits %v, want %v", name, got, c.want)
			}
		}
	})
}
