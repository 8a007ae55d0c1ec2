package upstream

import (
	"fmt"
	"math"
	"net/http"
	"slices"
	"testing"

	"portico/apiservice/backend"
	"portico/resource"
)

// some returns endpoints of the given weights that nobody connects to.
func some(weights ...int) []Endpoint {
	var out []Endpoint
	for i, w := range weights {
		out = append(out, Endpoint{URL: fmt.Sprintf("https://10.0.0.%d:443", i), Network: "tcp", Address: "127.0.0.1:1", Weight: w})
	}
	return out
}

func picking(t testing.TB, b backend.Balance, weights ...int) *Upstream {
	p := NewPolicy(&backend.Spec{Balance: b})
	return over(t, p, some(weights...)...)
}

// pick chooses the endpoint for a request; nil if there is none.
func pick(u *Upstream, req *http.Request, k kind, tried []*endpoint) *endpoint {
	l := u.newRetryLoop(req, k)
	l.tried = tried
	return l.pick()
}

// hasOwnShares reports whether every endpoint has the share of its own weight.
func hasOwnShares(u *Upstream) bool {
	return !slices.ContainsFunc(u.balancer.Load().List, func(c candidate) bool { return c.Weight != c.FullWeight })
}

func by(name string) *http.Request {
	req, _ := http.NewRequest("GET", "https://example.com/", nil)
	return req.WithContext(resource.WithAction(req.Context(), &resource.Action{User: &resource.User{Name: name}}))
}

// Every way to choose gives endpoints their share of the requests.
func TestShares(t *testing.T) {
	const n = 20_000
	for _, balance := range []backend.Balance{backend.LeastRequest, backend.RoundRobin, backend.ConsistentHash} {
		for _, weights := range [][]int{{1, 1, 1}, {90, 10}, {1000, 1, 500}, {1, 0, 1}} {
			u := picking(t, balance, weights...)
			got, sum := map[string]float64{}, 0
			for i := range n {
				got[pick(u, by(fmt.Sprint("user-", i)), short, nil).URL]++
			}
			for _, w := range weights {
				sum += w
			}
			for i, e := range some(weights...) {
				want := float64(weights[i]) / float64(sum)
				if share := got[e.URL] / n; math.Abs(share-want) > 0.02 || weights[i] == 0 && share > 0 {
					t.Errorf("%s %v: %s gets %.3f, want %.3f", balance, weights, e.URL, share, want)
				}
			}
		}
	}
}

// Turns come in order, and those of different weight are spread.
func TestTurns(t *testing.T) {
	for _, c := range []struct {
		weights []int
		want    []int
	}{{[]int{1, 1, 1}, []int{0, 1, 2, 0, 1, 2}}, {[]int{3, 1}, []int{0, 0, 1, 0, 0, 0, 1, 0}}} {
		u := picking(t, backend.RoundRobin, c.weights...)
		var got []int
		for range c.want {
			e := pick(u, by("x"), short, nil)
			got = append(got, slices.IndexFunc(u.endpoints, func(o *endpoint) bool { return o == e }))
		}
		if !slices.Equal(got, c.want) {
			t.Errorf("%v: %v, want %v", c.weights, got, c.want)
		}
	}
}

// The busier of two gets no request, for its weight.
func TestLeastRequests(t *testing.T) {
	u := picking(t, backend.LeastRequest, 1, 1)
	u.endpoints[0].active.Store(5)
	for range 100 {
		if e := pick(u, by("x"), short, nil); e != u.endpoints[1] {
			t.Fatal("the busy one is chosen")
		}
	}
	u = picking(t, backend.LeastRequest, 1, 1, 1, 1, 1)
	for i := range u.endpoints[1:] {
		u.endpoints[i+1].active.Store(1)
	}
	idle := 0
	for range 1000 {
		if pick(u, by("x"), short, nil) == u.endpoints[0] {
			idle++
		}
	}
	if idle < 300 || idle > 500 { // of two out of five
		t.Errorf("the idle one was chosen %d times of 1000", idle)
	}
}

// Watches do not keep other requests away.
func TestLeastRequestsOfAKind(t *testing.T) {
	u := picking(t, backend.LeastRequest, 1, 1)
	for range 100 {
		u.endpoints[0].begin(long)
	}
	u.endpoints[1].begin(short)
	for range 100 {
		if e := pick(u, by("x"), short, nil); e != u.endpoints[0] {
			t.Fatal("a request goes where fewer watches are")
		}
		if e := pick(u, by("x"), long, nil); e != u.endpoints[1] {
			t.Fatal("a watch goes where more of them are")
		}
	}
}

// A user stays where it is; if an endpoint goes, only its users move, and they
// come back with it.
func TestHashMovesFew(t *testing.T) {
	u := picking(t, backend.ConsistentHash, 1, 1, 2, 1, 3)
	all := u.Endpoints()
	where := func() map[int]string {
		m := map[int]string{}
		for i := range 2000 {
			m[i] = pick(u, by(fmt.Sprint("user-", i)), short, nil).URL
		}
		return m
	}
	before := where()
	u.SetEndpoints(append(slices.Clone(all[:2]), all[3:]...))
	for i, url := range where() {
		if before[i] != all[2].URL && url != before[i] {
			t.Fatalf("user %d moved from %s to %s", i, before[i], url)
		}
	}
	u.SetEndpoints(all)
	for i, url := range where() {
		if url != before[i] {
			t.Fatalf("user %d did not come back", i)
		}
	}
}

// Endpoints that were tried are not chosen again, and one that drains never is.
func TestPickTried(t *testing.T) {
	for _, balance := range []backend.Balance{backend.LeastRequest, backend.RoundRobin, backend.ConsistentHash} {
		u := picking(t, balance, 1, 2, 0, 1)
		var tried []*endpoint
		for range 3 {
			e := pick(u, by("x"), short, tried)
			if e == nil || slices.Contains(tried, e) || e.Weight == 0 {
				t.Fatalf("%s: %v after %d", balance, e, len(tried))
			}
			tried = append(tried, e)
		}
		if e := pick(u, by("x"), short, tried); e != nil {
			t.Errorf("%s: %s is chosen again", balance, e.URL)
		}
	}
	u := picking(t, backend.LeastRequest, 0)
	if u.balancer.Load().only != nil || pick(u, by("x"), short, nil) != nil {
		t.Error("an endpoint that drains is chosen because it is the only one")
	}
}

// What one of several endpoints fails is spread over the others, whose turn it is
// or not.
func TestTurnsOfRetries(t *testing.T) {
	u := picking(t, backend.RoundRobin, 1, 1, 1, 1)
	got := map[*endpoint]int{}
	broken := u.endpoints[1]
	for range 4000 {
		e := pick(u, by("x"), short, nil)
		if e == broken {
			e = pick(u, by("x"), short, []*endpoint{broken})
		}
		got[e]++
	}
	for _, e := range u.endpoints {
		if n := got[e]; e == broken && n != 0 || e != broken && (n < 1200 || n > 1466) {
			t.Errorf("%s got %d of 4000 requests", e.URL, n)
		}
	}
}

func BenchmarkPick(b *testing.B) {
	for _, balance := range []backend.Balance{backend.LeastRequest, backend.RoundRobin, backend.ConsistentHash} {
		for _, n := range []int{1, 3, 100} {
			for _, even := range []bool{true, false} {
				weights := make([]int, n)
				for i := range weights {
					if weights[i] = 1; !even {
						weights[i] = 1 + i%3
					}
				}
				b.Run(fmt.Sprintf("%s/%d/even=%v", balance, n, even), func(b *testing.B) {
					u, req := picking(b, balance, weights...), by("alice")
					b.ReportAllocs()
					for b.Loop() {
						if pick(u, req, short, nil) == nil {
							b.Fatal("none")
						}
					}
				})
			}
		}
	}
}
