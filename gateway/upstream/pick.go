package upstream

import (
	"errors"
	"math"
	"math/bits"
	"math/rand/v2"
	"net/http"
	"slices"
	"sort"
	"sync"
	"sync/atomic"

	"portico/apiservice/backend"
	"portico/resource"
)

// candidate is an endpoint that gets requests.
type candidate struct {
	*endpoint
	// weight is its share now, full that which is its own: less is the weight of
	// one that comes back (slowstart.go), in other units for all.
	weight, full int
}

// picks is a snapshot of the endpoints that get requests. Immutable, but for
// whose turn it is.
type picks struct {
	policy *Policy
	// only is the one endpoint there is; it is tried whatever is thought of it.
	only *endpoint
	// list are those to choose from; empty: none, and err says why.
	list []candidate
	err  error
	// sums are the weights added up, nil if they are all the same.
	sums []int
	turn turn
}

// turn is whose turn it is.
type turn struct {
	count  atomic.Uint64 // of equal weights
	mu     sync.Mutex
	credit []int // of different ones: who has most is next
}

// NoEndpointError is of a request that no endpoint could be found for: nothing
// was sent.
type NoEndpointError struct{ Err error }

func (e *NoEndpointError) Error() string {
	return "no endpoint of the server can be sent requests: " + e.Err.Error()
}
func (e *NoEndpointError) Unwrap() error { return e.Err }

var (
	errNoEndpoints = errors.New("it has none")
)

// ErrAllDrained is of a server whose endpoints get no requests, as it was set.
var ErrAllDrained = errors.New("all of them have the weight 0")

func newPicks(policy *Policy, list []candidate) *picks {
	p := &picks{policy: policy, list: list}
	if len(list) > 0 && slices.ContainsFunc(list, func(c candidate) bool { return c.weight != list[0].weight }) {
		p.sums = make([]int, len(list))
		sum := 0
		for i, c := range list {
			sum += c.weight
			p.sums[i] = sum
		}
		p.turn.credit = make([]int, len(list))
	}
	return p
}

// follow has the turns go on from those of the snapshot before: there is a new
// one whenever an endpoint comes or goes, and the first ones in the list are to
// get no more than others. Credits are shares of the sum of the weights, whose unit
// is another while shares grow: as they were, they would be a thousand turns.
func (p *picks) follow(before *picks) {
	if before == nil || len(before.list) < 2 { // there were no turns
		return
	}
	p.turn.count.Store(before.turn.count.Load())
	if p.sums == nil || before.sums == nil {
		return
	}
	before.turn.mu.Lock()
	defer before.turn.mu.Unlock()
	sum, was := p.sums[len(p.sums)-1], before.sums[len(before.sums)-1]
	for i, c := range p.list {
		at := slices.IndexFunc(before.list, func(b candidate) bool { return b.endpoint == c.endpoint })
		if at >= 0 {
			p.turn.credit[i] = before.turn.credit[at] * sum / was
		}
	}
}

// pick chooses the endpoint for a request; nil if there is none. Those that were
// tried are not chosen.
func (p *picks) pick(req *http.Request, k kind, tried []*endpoint) *endpoint {
	p = p.without(tried)
	switch len(p.list) {
	case 0:
		return nil
	case 1:
		return p.list[0].endpoint
	}
	switch p.policy.Balance {
	case backend.RoundRobin:
		if len(tried) == 0 {
			return p.inTurn()
		}
		// Whose turn is next is the same after every failure of an endpoint: it
		// would get all of its requests.
	case backend.ConsistentHash:
		if name, ok := userOf(req); ok {
			return p.byHash(name)
		}
	}
	return p.leastRequests(k)
}

// without leaves out the endpoints that were tried.
func (p *picks) without(tried []*endpoint) *picks {
	if len(tried) == 0 {
		return p
	}
	rest := make([]candidate, 0, len(p.list))
	for _, c := range p.list {
		if !slices.Contains(tried, c.endpoint) {
			rest = append(rest, c)
		}
	}
	return newPicks(p.policy, rest)
}

// userOf names who sends a request.
func userOf(req *http.Request) (name string, ok bool) {
	if act := resource.ActionFrom(req.Context()); act != nil && act.User != nil {
		return act.User.Name, true
	}
	return "", false
}

// leastRequests takes the better of two random endpoints. Different weights
// count twice: in the draw, so that shares are right while there is little to
// do, and in the comparison. Watches are compared with watches and the rest with
// the rest: an endpoint that was started anew has no watches, and would get
// everything for a long time.
func (p *picks) leastRequests(k kind) *endpoint {
	a, b := p.draw()
	x, y := &p.list[a], &p.list[b]
	if y.load(k)*int64(x.weight) < x.load(k)*int64(y.weight) {
		return y.endpoint
	}
	return x.endpoint
}

// load is how many requests of a kind are under way.
func (e *endpoint) load(k kind) int64 {
	if k == short {
		return e.active.Load() - e.lasting.Load()
	}
	return e.lasting.Load()
}

// begin and end are those of a request.
func (e *endpoint) begin(k kind) {
	e.active.Add(1)
	if k != short {
		e.lasting.Add(1)
	}
}

func (e *endpoint) end(k kind) {
	e.active.Add(-1)
	if k != short {
		e.lasting.Add(-1)
	}
}

func (p *picks) draw() (a, b int) {
	n := len(p.list)
	if p.sums == nil {
		if a, b = rand.IntN(n), rand.IntN(n-1); b >= a {
			b++
		}
		return a, b
	}
	one := func() int { return sort.SearchInts(p.sums, rand.IntN(p.sums[n-1])+1) }
	return one(), one()
}

// inTurn takes the endpoints in turn. Those with more weight come more often,
// and their turns are spread over the round.
func (p *picks) inTurn() *endpoint {
	if p.sums == nil {
		return p.list[(p.turn.count.Add(1)-1)%uint64(len(p.list))].endpoint
	}
	p.turn.mu.Lock()
	defer p.turn.mu.Unlock()
	best := 0
	for i := range p.list {
		p.turn.credit[i] += p.list[i].weight
		if p.turn.credit[i] > p.turn.credit[best] {
			best = i
		}
	}
	p.turn.credit[best] -= p.sums[len(p.sums)-1]
	return p.list[best].endpoint
}

// byHash takes the endpoint that scores highest for the user: when one goes,
// only its users go elsewhere, and every gateway agrees. The score makes the
// shares those of the weights.
func (p *picks) byHash(user string) *endpoint {
	h := hashOf(user)
	best, top := 0, math.Inf(-1)
	for i := range p.list {
		c := &p.list[i]
		// In (0, 1), evenly.
		even := (float64(mix(h^bits.RotateLeft64(c.hash, 32))>>11) + 0.5) / (1 << 53)
		if score := float64(c.full) / -math.Log(even); score > top {
			best, top = i, score
		}
	}
	return p.list[best].endpoint
}

// hashOf is FNV-1a: the same in every gateway.
func hashOf(s string) uint64 {
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
