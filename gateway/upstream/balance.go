package upstream

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"slices"
	"sync/atomic"
)

// endpoints are the addresses of one server, host:port or a unix socket path.
// Replaced as a whole; safe for concurrent use.
type endpoints struct {
	network   string // "tcp" or "unix"
	addresses atomic.Pointer[[]string]
}

func newEndpoints(network string, addresses []string) *endpoints {
	e := &endpoints{network: network}
	e.set(addresses)
	return e
}

func (e *endpoints) set(addresses []string) { e.addresses.Store(&addresses) }

// dial connects to one of the addresses, in random order, going on to the next
// one while connecting fails: nothing was sent yet, so any request may.
func (e *endpoints) dial(ctx context.Context, dialer *net.Dialer) (net.Conn, error) {
	addresses := *e.addresses.Load()
	if len(addresses) == 0 {
		return nil, &net.OpError{Op: "dial", Net: e.network, Err: errors.New("no address is known")}
	}
	if len(addresses) > 1 {
		addresses = slices.Clone(addresses)
		rand.Shuffle(len(addresses), func(i, j int) { addresses[i], addresses[j] = addresses[j], addresses[i] })
	}
	var failures []error
	for _, address := range addresses {
		conn, err := dialer.DialContext(ctx, e.network, address)
		if err == nil {
			return conn, nil
		}
		failures = append(failures, err)
		if ctx.Err() != nil {
			break
		}
	}
	if len(failures) == 1 {
		return nil, failures[0]
	}
	return nil, fmt.Errorf("dial all addresses: %w", errors.Join(failures...))
}
