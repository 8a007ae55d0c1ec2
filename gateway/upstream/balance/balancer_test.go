package balance

import (
	"fmt"
	"math"
	"slices"
	"testing"
	"time"

	"portico/apiservice/backend"
)

// server is an endpoint with requests in progress.
type server struct {
	name        string
	short, long int64
}

func (s *server) InProgress(long bool) int64 {
	if long {
		return s.long
	}
	return s.short
}

func (s *server) HashKey() uint64 { return Hash(s.name) }

type candidates []Candidate[*server]

// weighted returns candidates of the given weights.
func weighted(weights ...int) (list candidates) {
	for i, w := range weights {
		list = append(list, Candidate[*server]{Endpoint: &server{name: fmt.Sprint("endpoint-", i)}, Weight: w})
	}
	return list
}

func balancing(b backend.Balance, list candidates, before *Balancer[*server]) *Balancer[*server] {
	return New(&backend.Policy{Balance: b}, list, before, time.Now())
}

// pick returns the number of the endpoint that is chosen, by the number in its name.
func pick(b *Balancer[*server], user string) int {
	e, ok := b.Pick(user, true, false, nil)
	if !ok {
		return -1
	}
	var i int
	fmt.Sscanf(e.name, "endpoint-%d", &i)
	return i
}

// Every policy gives endpoints the share of their weights.
func TestShares(t *testing.T) {
	t.Parallel()
	const n = 20_000
	for _, policy := range []backend.Balance{backend.LeastRequest, backend.RoundRobin, backend.ConsistentHash} {
		for _, weights := range [][]int{{1, 1, 1}, {90, 10}, {1000, 1, 500}} {
			b := balancing(policy, weighted(weights...), nil)
			got, sum := make([]float64, len(weights)), 0
			for i := range n {
				got[pick(b, fmt.Sprint("user-", i))]++
			}
			for _, w := range weights {
				sum += w
			}
			for i, w := range weights {
				if share, want := got[i]/n, float64(w)/float64(sum); math.Abs(share-want) > 0.02 {
					t.Errorf("%s %v: %d gets %.3f, want %.3f", policy, weights, i, share, want)
				}
			}
		}
	}
}

// RoundRobin takes endpoints in order, spreads those of different weights, and
// continues when the endpoints change.
func TestRoundRobin(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ weights, want []int }{{[]int{1, 1, 1}, []int{0, 1, 2, 0, 1, 2}}, {[]int{3, 1}, []int{0, 0, 1, 0, 0, 0, 1, 0}}} {
		list := weighted(c.weights...)
		b := balancing(backend.RoundRobin, list, nil)
		var got []int
		for i := range c.want {
			got = append(got, pick(b, ""))
			if i == 4 && b.sums == nil {
				b = balancing(backend.RoundRobin, slices.Clone(list), b)
			}
		}
		if !slices.Equal(got, c.want) {
			t.Errorf("%v: %v, want %v", c.weights, got, c.want)
		}
	}
}

// LeastRequest avoids the endpoint with more requests in progress; long-running ones
// are counted apart.
func TestLeastRequest(t *testing.T) {
	t.Parallel()
	list := weighted(1, 1)
	list[0].Endpoint.long, list[1].Endpoint.short = 100, 1
	b := balancing(backend.LeastRequest, list, nil)
	for range 100 {
		if e, _ := b.Pick("", false, false, nil); e != list[0].Endpoint {
			t.Fatal("a request goes to the endpoint with more requests")
		}
		if e, _ := b.Pick("", false, true, nil); e != list[1].Endpoint {
			t.Fatal("a watch goes to the endpoint with more watches")
		}
	}
	list = weighted(1, 1, 1, 1, 1)
	for _, c := range list[1:] {
		c.Endpoint.short = 1
	}
	b = balancing(backend.LeastRequest, list, nil)
	idle := 0
	for range 1000 {
		if pick(b, "") == 0 {
			idle++
		}
	}
	if idle < 300 || idle > 500 { // of two out of five
		t.Errorf("the idle one was chosen %d times of 1000", idle)
	}
}

// With ConsistentHash a user stays at an endpoint; if one is removed only its users
// move, and they return with it.
func TestConsistentHash(t *testing.T) {
	t.Parallel()
	list := weighted(1, 1, 2, 1, 3)
	users := func(list candidates) (out [2000]int) {
		b := balancing(backend.ConsistentHash, list, nil)
		for i := range out {
			out[i] = pick(b, fmt.Sprint("user-", i))
		}
		return out
	}
	before := users(list)
	for i, at := range users(slices.Delete(slices.Clone(list), 2, 3)) {
		if before[i] != 2 && at != before[i] || at == 2 {
			t.Fatalf("user %d moved from %d to %d", i, before[i], at)
		}
	}
	if users(slices.Clone(list)) != before {
		t.Error("users do not return")
	}
}

// Endpoints that were tried are not chosen again, and the retries of one are spread
// over the others.
func TestPickAfterTried(t *testing.T) {
	t.Parallel()
	for _, policy := range []backend.Balance{backend.LeastRequest, backend.RoundRobin, backend.ConsistentHash} {
		b := balancing(policy, weighted(1, 2, 1), nil)
		var tried []*server
		for range 3 {
			e, ok := b.Pick("x", true, false, tried)
			if !ok || slices.Contains(tried, e) {
				t.Fatalf("%s: %v after %d", policy, e, len(tried))
			}
			tried = append(tried, e)
		}
		if e, ok := b.Pick("x", true, false, tried); ok {
			t.Errorf("%s: %s is chosen again", policy, e.name)
		}
	}
	list := weighted(1, 1, 1, 1)
	b, got := balancing(backend.RoundRobin, list, nil), map[string]int{}
	for range 1000 {
		e, _ := b.Pick("", false, false, []*server{list[1].Endpoint})
		got[e.name]++
	}
	for name, n := range got {
		if n < 270 || n > 400 {
			t.Errorf("%s gets %d of 1000 retries", name, n)
		}
	}
}

// Candidates that refused a connection or are ejected are left out, unless all refused
// or the ejections leave less than the panic threshold.
func TestPreferred(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		refused, ejected []int
		panicPercent     int
		want             []int
	}{
		"all are good":                {nil, nil, 50, []int{0, 1, 2, 3}},
		"refused":                     {[]int{0}, nil, 50, []int{1, 2, 3}},
		"all refused":                 {[]int{0, 1, 2, 3}, nil, 50, []int{0, 1, 2, 3}},
		"half is left":                {nil, []int{0}, 60, []int{1, 2, 3}},
		"less is left":                {nil, []int{0, 1}, 60, []int{0, 1, 2, 3}},
		"less is left of the refused": {[]int{3}, []int{0, 1}, 60, []int{0, 1, 2}},
		"no threshold":                {nil, []int{0, 1, 2}, 0, []int{3}},
		"no threshold, all":           {nil, []int{0, 1, 2, 3}, 0, []int{0, 1, 2, 3}},
	} {
		list := weighted(1, 1, 1, 1)
		for _, i := range c.refused {
			list[i].Refused = true
		}
		for _, i := range c.ejected {
			list[i].Ejected = true
		}
		var got []int
		for _, p := range Preferred(list, 5, c.panicPercent) { // a fifth fails its checks
			got = append(got, slices.IndexFunc(list, func(o Candidate[*server]) bool { return o.Endpoint == p.Endpoint }))
		}
		if !slices.Equal(got, c.want) {
			t.Errorf("%s: %v, want %v", name, got, c.want)
		}
	}
}

// The share of an endpoint grows from the least part to its weight within the window,
// by the power of the aggression.
func TestSlowStart(t *testing.T) {
	t.Parallel()
	began := time.Now()
	linear := backend.SlowStartPolicy{Window: 10 * time.Second, MinWeightPercent: 10, AggressionPercent: 100}
	for name, c := range map[string]struct {
		policy backend.Policy
		passed time.Duration
		share  float64 // of an endpoint of the weight 3 beside one of the weight 1
		next   time.Duration
	}{
		"at first":       {backend.Policy{SlowStart: linear}, 0, 0.3 / 1.3, 500 * time.Millisecond},
		"half-way":       {backend.Policy{SlowStart: linear}, 5 * time.Second, 1.5 / 2.5, 500 * time.Millisecond},
		"grown":          {backend.Policy{SlowStart: linear}, 10 * time.Second, 3.0 / 4, 0},
		"short steps":    {backend.Policy{SlowStart: backend.SlowStartPolicy{Window: 200 * time.Millisecond, MinWeightPercent: 10, AggressionPercent: 100}}, 0, 0.3 / 1.3, growStep},
		"the root":       {backend.Policy{SlowStart: backend.SlowStartPolicy{Window: 10 * time.Second, MinWeightPercent: 1, AggressionPercent: 200}}, 2500 * time.Millisecond, 1.5 / 2.5, 500 * time.Millisecond},
		"no window":      {backend.Policy{SlowStart: backend.SlowStartPolicy{Window: 0, MinWeightPercent: 10, AggressionPercent: 100}}, 0, 3.0 / 4, 0},
		"no aggression":  {backend.Policy{SlowStart: backend.SlowStartPolicy{Window: 10 * time.Second, MinWeightPercent: 10, AggressionPercent: 0}}, 0, 3.0 / 4, 0},
		"by users' hash": {backend.Policy{Balance: backend.ConsistentHash, SlowStart: linear}, 0, 3.0 / 4, 0},
	} {
		list := weighted(3, 1)
		list[0].Since = began
		now := began.Add(c.passed)
		b := New(&c.policy, list, nil, now)
		sum := b.List[0].Share + b.List[1].Share
		if got := float64(b.List[0].Share) / float64(sum); math.Abs(got-c.share) > 0.002 {
			t.Errorf("%s: the share is %.3f, want %.3f", name, got, c.share)
		}
		if b.Next.IsZero() != (c.next == 0) || c.next != 0 && b.Next.Sub(now) != c.next {
			t.Errorf("%s: it changes next %v after now, want %v", name, b.Next.Sub(now), c.next)
		}
	}
	alone := weighted(1)
	alone[0].Since = began
	if b := New(&backend.Policy{SlowStart: linear}, alone, nil, began); !b.Next.IsZero() || b.List[0].Share != 1 {
		t.Error("the share of the only endpoint grows")
	}
}
