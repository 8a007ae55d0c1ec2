// Package balance chooses the endpoint of a request: the less busy of two random ones,
// each in turn, or by a hash of the user.
//
// A Balancer is an immutable snapshot of the endpoints that get requests, so that a
// choice takes no lock, except for the turns of different weights.
//
// Runs in: gateway.
package balance

import (
	"math"
	"math/bits"
	"math/rand/v2"
	"slices"
	"sort"
	"sync"
	"sync/atomic"

	"portico/apiservice/backend"
)

// Endpoint is what a Balancer chooses among.
type Endpoint interface {
	comparable
	// InProgress is how many requests are in progress, of the long-running ones or of
	// the others.
	InProgress(long bool) int64
	// HashKey identifies the endpoint, the same in every gateway (Hash).
	HashKey() uint64
}

// Candidate is an endpoint that gets requests.
type Candidate[E Endpoint] struct {
	Endpoint E
	// Weight is its share at present, FullWeight its own; they differ while shares
	// grow, when Weight is in other units for all candidates.
	Weight, FullWeight int
}

// Balancer chooses among candidates.
type Balancer[E Endpoint] struct {
	balance backend.Balance
	List    []Candidate[E]
	// sums are the weights added up; nil if they are all the same.
	sums []int
	turn turn
}

// turn is whose turn it is in RoundRobin.
type turn struct {
	count  atomic.Uint64 // of equal weights
	mu     sync.Mutex
	credit []int // of different ones: the candidate with most is next
}

// New returns a Balancer. The turns of RoundRobin go on from before, which may be nil:
// there is a new Balancer whenever an endpoint comes or goes, and the first in the list
// must not get more than the others.
func New[E Endpoint](balance backend.Balance, list []Candidate[E], before *Balancer[E]) *Balancer[E] {
	b := &Balancer[E]{balance: balance, List: list}
	if len(list) > 0 && slices.ContainsFunc(list, func(c Candidate[E]) bool { return c.Weight != list[0].Weight }) {
		b.sums = make([]int, len(list))
		sum := 0
		for i, c := range list {
			sum += c.Weight
			b.sums[i] = sum
		}
		b.turn.credit = make([]int, len(list))
	}
	if before != nil && len(before.List) > 1 {
		b.follow(before)
	}
	return b
}

// follow takes the turns over. Credits are shares of the sum of the weights, whose unit
// changes while shares grow.
func (b *Balancer[E]) follow(before *Balancer[E]) {
	b.turn.count.Store(before.turn.count.Load())
	if b.sums == nil || before.sums == nil {
		return
	}
	before.turn.mu.Lock()
	defer before.turn.mu.Unlock()
	sum, was := b.sums[len(b.sums)-1], before.sums[len(before.sums)-1]
	for i, c := range b.List {
		at := slices.IndexFunc(before.List, func(o Candidate[E]) bool { return o.Endpoint == c.Endpoint })
		if at >= 0 {
			b.turn.credit[i] = before.turn.credit[at] * sum / was
		}
	}
}

// Has reports whether an endpoint gets requests.
func (b *Balancer[E]) Has(e E) bool {
	return slices.ContainsFunc(b.List, func(c Candidate[E]) bool { return c.Endpoint == e })
}

// Pick chooses an endpoint that is not among those tried; ok is false if there is none.
// user sends the request, if it is hasUser.
func (b *Balancer[E]) Pick(user string, hasUser, long bool, tried []E) (e E, ok bool) {
	b = b.Without(tried)
	switch len(b.List) {
	case 0:
		return e, false
	case 1:
		return b.List[0].Endpoint, true
	}
	switch b.balance {
	case backend.RoundRobin:
		if len(tried) == 0 {
			return b.next(), true
		}
		// The next in turn is the same after every failure of an endpoint: it would get
		// all requests of that.
	case backend.ConsistentHash:
		if hasUser {
			return b.ByHash(user), true
		}
	}
	return b.leastRequests(long), true
}

// Without returns a Balancer of the endpoints that are not among those tried.
func (b *Balancer[E]) Without(tried []E) *Balancer[E] {
	if len(tried) == 0 {
		return b
	}
	rest := make([]Candidate[E], 0, len(b.List))
	for _, c := range b.List {
		if !slices.Contains(tried, c.Endpoint) {
			rest = append(rest, c)
		}
	}
	return New(b.balance, rest, nil)
}

// leastRequests chooses the less busy of two random endpoints. Weights count in the
// draw, so that shares are right while there is little to do, and in the comparison.
// Long-running requests are compared with each other and the others with each other: an
// endpoint that was restarted has no watches, and would get all other requests for a
// long time.
func (b *Balancer[E]) leastRequests(long bool) E {
	i, j := b.draw()
	x, y := &b.List[i], &b.List[j]
	if y.Endpoint.InProgress(long)*int64(x.Weight) < x.Endpoint.InProgress(long)*int64(y.Weight) {
		return y.Endpoint
	}
	return x.Endpoint
}

func (b *Balancer[E]) draw() (i, j int) {
	n := len(b.List)
	if b.sums == nil {
		if i, j = rand.IntN(n), rand.IntN(n-1); j >= i {
			j++
		}
		return i, j
	}
	one := func() int { return sort.SearchInts(b.sums, rand.IntN(b.sums[n-1])+1) }
	return one(), one()
}

// next takes the endpoints in turn. Those with more weight come more often, and their
// turns are spread over the round.
func (b *Balancer[E]) next() E {
	if b.sums == nil {
		return b.List[(b.turn.count.Add(1)-1)%uint64(len(b.List))].Endpoint
	}
	b.turn.mu.Lock()
	defer b.turn.mu.Unlock()
	best := 0
	for i := range b.List {
		b.turn.credit[i] += b.List[i].Weight
		if b.turn.credit[i] > b.turn.credit[best] {
			best = i
		}
	}
	b.turn.credit[best] -= b.sums[len(b.sums)-1]
	return b.List[best].Endpoint
}

// ByHash chooses the endpoint with the highest score for a user (rendezvous hashing):
// when one goes, only its users move, and every gateway agrees. The score makes the
// shares those of the weights. The list must not be empty.
func (b *Balancer[E]) ByHash(user string) E {
	h := Hash(user)
	best, top := 0, math.Inf(-1)
	for i := range b.List {
		c := &b.List[i]
		// Uniform in (0, 1).
		uniform := (float64(mix(h^bits.RotateLeft64(c.Endpoint.HashKey(), 32))>>11) + 0.5) / (1 << 53)
		if score := float64(c.FullWeight) / -math.Log(uniform); score > top {
			best, top = i, score
		}
	}
	return b.List[best].Endpoint
}

// Hash is FNV-1a with its bits mixed: the same in every gateway.
func Hash(s string) uint64 {
	h := uint64(14695981039346656037)
	for i := range len(s) {
		h = (h ^ uint64(s[i])) * 1099511628211
	}
	return mix(h)
}

// mix spreads every bit over all others.
func mix(h uint64) uint64 {
	h = (h ^ h>>30) * 0xbf58476d1ce4e5b9
	h = (h ^ h>>27) * 0x94d049bb133111eb
	return h ^ h>>31
}
