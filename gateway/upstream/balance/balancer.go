// Package balance chooses the endpoint of a request: the one of two random endpoints
// with fewer requests in progress, each in turn, or by a hash of the user. Shares follow
// the weights; that of an endpoint that begins to get requests grows (slow start).
//
// A Balancer is an immutable snapshot of the endpoints that get requests, so that a
// choice takes no lock, except for the turns of different weights.
//
// Runs in: gateway.
package balance

import (
	"hash/fnv"
	"io"
	"math"
	"math/rand/v2"
	"slices"
	"sort"
	"sync"
	"sync/atomic"
	"time"

	"portico/apiservice/backend"
)

// Endpoint is what a Balancer chooses among.
type Endpoint interface {
	comparable
	// InProgress is how many requests are in progress: the long-running ones, or the
	// others.
	InProgress(long bool) int64
	// HashKey identifies the endpoint, the same in every gateway (Hash).
	HashKey() uint64
}

// Candidate is an endpoint that passes its checks.
type Candidate[E Endpoint] struct {
	Endpoint E
	Weight   int
	// Refused: it has just refused a connection. Ejected: it is ejected.
	Refused, Ejected bool
	// Since is when it began to get requests, while others did; zero: its share does
	// not grow.
	Since time.Time
	// Share is its present part of the sum of shares. It is the Weight, unless a share
	// grows. New sets it.
	Share int
}

// Preferred leaves out the candidates that refused connections, unless all did, and
// those that are ejected, unless less than panicPercent of all endpoints would be left.
// all includes those that fail their checks.
func Preferred[E Endpoint](list []Candidate[E], all, panicPercent int) []Candidate[E] {
	listening := slices.DeleteFunc(slices.Clone(list), func(c Candidate[E]) bool { return c.Refused })
	if len(listening) == 0 {
		return list
	}
	good := slices.DeleteFunc(slices.Clone(listening), func(c Candidate[E]) bool { return c.Ejected })
	if len(good) == 0 || len(good)*100 < panicPercent*all {
		return listening
	}
	return good
}

// Balancer chooses among candidates.
type Balancer[E Endpoint] struct {
	// List is the candidates that get requests.
	List []Candidate[E]
	// Next is when shares change; zero: they do not.
	Next time.Time

	balance backend.Balance
	sums    []int // of the shares; nil if they are all the same
	// count is the number of turns of RoundRobin with equal shares. Snapshots share it,
	// so that the first in the list does not get more requests with every change.
	count *atomic.Uint64
	// credit is for turns with different shares: the candidate with most is next.
	mu     sync.Mutex
	credit []int
}

// New returns a Balancer of candidates, which replaces before; nil: it is the first.
func New[E Endpoint](p *backend.Policy, list []Candidate[E], before *Balancer[E], now time.Time) *Balancer[E] {
	next := grow(p, list, now)
	b := build(p.Balance, list)
	if b.Next = next; before != nil {
		b.count = before.count
	}
	return b
}

func build[E Endpoint](balance backend.Balance, list []Candidate[E]) *Balancer[E] {
	b := &Balancer[E]{balance: balance, List: list, count: new(atomic.Uint64)}
	if slices.ContainsFunc(list, func(c Candidate[E]) bool { return c.Share != list[0].Share }) {
		b.sums, b.credit = make([]int, len(list)), make([]int, len(list))
		sum := 0
		for i, c := range list {
			sum += c.Share
			b.sums[i] = sum
		}
	}
	return b
}

// Has reports whether an endpoint gets requests.
func (b *Balancer[E]) Has(e E) bool {
	return slices.ContainsFunc(b.List, func(c Candidate[E]) bool { return c.Endpoint == e })
}

// Pick chooses an endpoint that is not among those tried; ok is false if there is none.
// user is the user of the request, if hasUser.
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
		// The next in turn would be the same after every failure of an endpoint, and get
		// all of its requests.
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
	return build(b.balance, rest)
}

// leastRequests chooses, of two random endpoints, that with fewer requests in progress.
// Shares count in the draw, so that they are right under little load, and in the
// comparison. Long-running requests are counted apart from the others: an endpoint that
// was restarted has no watches, and would get all other requests for a long time.
func (b *Balancer[E]) leastRequests(long bool) E {
	i, j := b.draw()
	x, y := &b.List[i], &b.List[j]
	if y.Endpoint.InProgress(long)*int64(x.Share) < x.Endpoint.InProgress(long)*int64(y.Share) {
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

// next returns the endpoints in turn. Those with a larger share come more often, spread
// over the round (smooth weighted round-robin, as in nginx).
func (b *Balancer[E]) next() E {
	if b.sums == nil {
		return b.List[(b.count.Add(1)-1)%uint64(len(b.List))].Endpoint
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	best := 0
	for i := range b.List {
		b.credit[i] += b.List[i].Share
		if b.credit[i] > b.credit[best] {
			best = i
		}
	}
	b.credit[best] -= b.sums[len(b.sums)-1]
	return b.List[best].Endpoint
}

// ByHash chooses the endpoint with the highest score for a user (weighted rendezvous
// hashing): when one is removed, only its users move, and every gateway chooses the
// same. The list must not be empty.
func (b *Balancer[E]) ByHash(user string) E {
	h := Hash(user)
	best, top := 0, math.Inf(-1)
	for i := range b.List {
		c := &b.List[i]
		// Uniform in (0, 1), and the same in every gateway.
		uniform := (float64(rand.NewPCG(h, c.Endpoint.HashKey()).Uint64()>>11) + 0.5) / (1 << 53)
		if score := float64(c.Weight) / -math.Log(uniform); score > top {
			best, top = i, score
		}
	}
	return b.List[best].Endpoint
}

// Hash returns the FNV-1a hash of a text.
func Hash(s string) uint64 {
	h := fnv.New64a()
	_, _ = io.WriteString(h, s)
	return h.Sum64()
}
