package etcd

import (
	"context"
	"errors"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc/codes"
)

// A member that hangs (stopped, or behind a network that swallows packets) keeps
// its connection for as long as keep-alive takes to notice, and every read that
// the balancer sends there hangs with it. A read that is not answered in time is
// therefore sent once more, to the next member, and the first answer counts.
const (
	hedgeRevision = 250 * time.Millisecond
	// hedgeRead is longer: a page of a range takes etcd a while, and one that is
	// merely busy must not be asked for everything twice.
	hedgeRead = 500 * time.Millisecond
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
	return hedged(ctx, 2*members, after, get)
}

// hedged makes up to attempts of do, each when the one before has not answered
// for a while or could not reach its member, and returns the first answer. An
// answer is anything but a failure of the transport.
func hedged[T any](ctx context.Context, attempts int, after time.Duration, do func(context.Context) (T, error)) (T, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	type result struct {
		value T
		err   error
	}
	results := make(chan result, attempts)
	timer := time.NewTimer(after)
	defer timer.Stop()
	for begun, failed := 0, 0; ; {
		if begun < attempts {
			begun++
			go func() {
				value, err := do(ctx)
				results <- result{value, err}
			}()
			timer.Reset(after)
		}
		select {
		case r := <-results:
			failed++
			if r.err == nil || !unreached(r.err) || ctx.Err() != nil || failed == attempts {
				return r.value, r.err
			}
		case <-timer.C:
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
