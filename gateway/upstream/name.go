package upstream

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"net/netip"
	"slices"
	"sync"
	"time"
)

// A host's name may have several addresses, of both families, and some of them may
// not answer. They are tried one after the other, each a moment after the one
// before it or as soon as that has failed, the families by turns, and the first
// connection is taken (RFC 8305). Of that we keep apart in one point: which is the
// first is a matter of chance and not of the family, for connections to be spread
// over what stands behind the name.

const (
	// maxAddresses bounds how many addresses of a name are tried for one connection.
	maxAddresses = 8
	// headStart is how long an address is tried alone before the next one is tried as
	// well; less, if the time to connect would not do for all.
	headStart = 250 * time.Millisecond
	// avoidedFor is how long an address that failed, or was slower than one that was
	// tried later, comes after all others, and maxAvoided how many such are kept.
	avoidedFor = time.Minute
	maxAvoided = 64
)

// names is what is known of the addresses of an endpoint's name. The zero value
// knows nothing. Safe for concurrent use.
type names struct {
	mu sync.Mutex
	// last are the addresses that were found last, for when nobody can be asked.
	last    []string
	avoided map[string]time.Time // until when
}

// connectByName connects to one of the addresses of a name, which are looked up
// every time: so later connections follow them, and are spread over them.
func (w *ways) connectByName(ctx context.Context, host, port string) (net.Conn, error) {
	lookup := w.lookup
	if lookup == nil {
		lookup = net.DefaultResolver.LookupHost
	}
	found, err := w.names.find(ctx, host, lookup)
	if err != nil {
		return nil, &ConnectError{fmt.Errorf("look up %s: %w", host, err)}
	}
	list := w.names.order(found)
	if len(list) == 0 {
		return nil, &ConnectError{fmt.Errorf("look up %s: it has no address", host)}
	}
	conn, lost, err := race(ctx, list, func(ctx context.Context, address string) (net.Conn, error) {
		return w.dial(ctx, net.JoinHostPort(address, port))
	})
	if err == nil {
		w.names.avoid(lost, time.Now())
	}
	return conn, err
}

// find looks a name up. If that fails, and not because there is no such name, what
// was found before still holds: a resolver that is away need not be an outage. Half
// of the time there is must then be left to connect.
func (n *names) find(ctx context.Context, host string, lookup func(context.Context, string) ([]string, error)) ([]string, error) {
	n.mu.Lock()
	last := n.last
	n.mu.Unlock()
	if deadline, ok := ctx.Deadline(); ok && len(last) > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithDeadlineCause(ctx, time.Now().Add(time.Until(deadline)/2), errSlow)
		defer cancel()
	}
	found, err := lookup(ctx, host)
	var no *net.DNSError
	if err != nil && len(last) > 0 && !(errors.As(err, &no) && no.IsNotFound) {
		return last, nil
	}
	if err != nil {
		found = nil
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	n.last = found
	return found, err
}

// order returns the addresses in the order in which they are tried.
func (n *names) order(found []string) []string {
	list := slices.Clone(found)
	rand.Shuffle(len(list), func(i, j int) { list[i], list[j] = list[j], list[i] })
	list = byTurns(list)
	n.mu.Lock()
	defer n.mu.Unlock()
	now := time.Now()
	bad := func(address string) bool { return now.Before(n.avoided[address]) }
	sorted := make([]string, 0, len(list))
	for _, last := range []bool{false, true} {
		for _, address := range list {
			if bad(address) == last {
				sorted = append(sorted, address)
			}
		}
	}
	return sorted[:min(len(sorted), maxAddresses)]
}

// byTurns has the families take turns; whose the first address is begins.
func byTurns(list []string) []string {
	if len(list) == 0 {
		return nil
	}
	var same, other []string
	for _, address := range list {
		if isIPv6(address) == isIPv6(list[0]) {
			same = append(same, address)
		} else {
			other = append(other, address)
		}
	}
	out := make([]string, 0, len(list))
	for i := range max(len(same), len(other)) {
		out = append(out, same[min(i, len(same)):min(i+1, len(same))]...)
		out = append(out, other[min(i, len(other)):min(i+1, len(other))]...)
	}
	return out
}

func isIPv6(address string) bool {
	ip, err := netip.ParseAddr(address)
	return err == nil && ip.Is6() && !ip.Is4In6()
}

// avoid has addresses come last for a while.
func (n *names) avoid(list []string, now time.Time) {
	if len(list) == 0 {
		return
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	for address, until := range n.avoided {
		if now.After(until) {
			delete(n.avoided, address)
		}
	}
	if n.avoided == nil {
		n.avoided = map[string]time.Time{}
	}
	for _, address := range list {
		if len(n.avoided) < maxAvoided {
			n.avoided[address] = now.Add(avoidedFor)
		}
	}
}

// tried is what came of one address.
type tried struct {
	which int
	conn  net.Conn
	err   error
}

// race connects to the first of some addresses, at least one, that answers; lost
// are those that were tried before it. If none does, the first error is told.
func race(ctx context.Context, list []string, dial func(context.Context, string) (net.Conn, error)) (conn net.Conn, lost []string, err error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	results := make(chan tried, len(list))
	begun, running := 0, 0
	next := time.NewTimer(0)
	defer next.Stop()
	for {
		select {
		case <-next.C:
			which := begun
			begun, running = begun+1, running+1
			go func() {
				conn, err := dial(ctx, list[which])
				results <- tried{which, conn, err}
			}()
			if begun < len(list) {
				next.Reset(lead(ctx, len(list)-begun))
			}
			continue
		case r := <-results:
			running--
			if r.err == nil {
				go closeLate(results, running)
				return r.conn, list[:r.which], nil
			}
			if err == nil || decisive(err) {
				err = r.err // that nobody listens is said only if it is so of all
			}
		}
		switch {
		case begun < len(list) && ctx.Err() == nil:
			next.Reset(0)
		case running == 0:
			return nil, nil, err
		}
	}
}

// lead is how long the address that is tried is alone, if so many come after it.
func lead(ctx context.Context, after int) time.Duration {
	if deadline, ok := ctx.Deadline(); ok {
		return min(headStart, time.Until(deadline)/time.Duration(after+1))
	}
	return headStart
}

// closeLate closes the connections of those that lost.
func closeLate(results <-chan tried, n int) {
	for range n {
		if r := <-results; r.conn != nil {
			_ = r.conn.Close()
		}
	}
}
