package etcd

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc/codes"
)

// A member that hangs (stopped, or behind a network that drops packets) keeps its
// connection until keep-alive fails, and every read that the balancer sends there hangs,
// too. A read that is not answered in time is therefore sent to the next member as well,
// and the first answer counts.
//
// If all members are slow that only doubles their load. So hedged reads are bounded to a
// share of all (hedgeShare), of which hedgeBurst may come at once. One that is answered
// first does not count: with a member that hangs it has the only answer.
const (
	hedgeRevision = 250 * time.Millisecond
	// hedgeRead is longer: a page of a range takes longer, and a busy member must not get
	// every request twice.
	hedgeRead = 500 * time.Millisecond

	hedgeShare = 0.1
	hedgeBurst = 10
)

// hedgedGet is a Get that does not depend on one member, where there are
// several. All its attempts begin after the call.
func (c *Client) hedgedGet(ctx context.Context, after time.Duration, key string, opts ...clientv3.OpOption) (*clientv3.GetResponse, error) {
	get := func(ctx context.Context) (*clientv3.GetResponse, error) { return c.etcd.Get(ctx, key, opts...) }
	members := len(c.etcd.Endpoints())
	if members == 1 {
		return get(ctx)
	}
	// Others move the balancer on too: two attempts for each member make it
	// unlikely that all of them go to the same one.
	c.hedges.earn()
	return hedged(ctx, 2*members, after, c.hedges, get)
}

// hedgeBudget says whether reads may be sent once more. Safe for concurrent use.
type hedgeBudget struct {
	sent prometheus.Counter

	mu   sync.Mutex
	left float64 // reads that may be sent once more now
}

func newHedgeBudget(sent prometheus.Counter) *hedgeBudget {
	return &hedgeBudget{sent: sent, left: hedgeBurst}
}

// earn notes a read.
func (b *hedgeBudget) earn() { b.add(hedgeShare) }

// won notes that a read sent once more was answered first.
func (b *hedgeBudget) won() { b.add(1) }

func (b *hedgeBudget) add(n float64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.left = min(b.left+n, hedgeBurst)
}

// spend reports whether a read may be sent once more now.
func (b *hedgeBudget) spend() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.left < 1 {
		return false
	}
	b.left--
	b.sent.Inc()
	return true
}

// hedged makes up to attempts of do, each when the one before has not answered
// for a while, and the budget allows it, or could not reach its member. It
// returns the first answer, which is anything but a failure of the transport.
func hedged[T any](ctx context.Context, attempts int, after time.Duration, budget *hedgeBudget, do func(context.Context) (T, error)) (T, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	type result struct {
		value T
		err   error
		extra bool // sent while another had not answered
	}
	results := make(chan result, attempts)
	timer := time.NewTimer(after)
	defer timer.Stop()
	begun, failed, may := 0, 0, true
	for {
		if may && begun < attempts {
			extra := begun > failed
			begun++
			go func() {
				value, err := do(ctx)
				results <- result{value, err, extra}
			}()
		}
		timer.Reset(after)
		select {
		case r := <-results:
			failed++
			answered := r.err == nil || !unreached(r.err)
			if answered && r.extra {
				budget.won()
			}
			if answered || ctx.Err() != nil || failed == attempts {
				return r.value, r.err
			}
			may = true
		case <-timer.C:
			may = begun < attempts && budget.spend()
		}
	}
}

// unreached reports whether the error is the transport's: another member may
// still answer.
func unreached(err error) bool {
	code := errorCode(err)
	return code == codes.Unavailable || code == codes.DeadlineExceeded || code == codes.Canceled ||
		errors.Is(err, context.DeadlineExceeded) || errors.Is(err, context.Canceled)
}
