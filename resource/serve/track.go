package serve

import (
	"context"
	"errors"
	"net/http"
	"sync"
	"sync/atomic"

	"portico/resource"
)

// ErrShuttingDown is why (context.Cause) the context of a long-running request
// has ended whose client is still there.
var ErrShuttingDown = errors.New("the server is shutting down")

// track has shutdown know of the requests that are at work: it waits for the
// short ones, and ends the contexts of the long-running ones.
func (s *Server) track(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		action := resource.ActionFrom(r.Context())
		long := action.LongRunning()
		group := &s.life.short
		if long {
			group = &s.life.long
		}
		switch {
		case group.enter():
			defer group.leave()
		case isProbe(action.Path):
		default:
			s.refuse(w, r) // the way of turnAway, for those that passed it just before
			return
		}
		if long {
			ctx, cancel := context.WithCancelCause(r.Context())
			defer cancel(nil)
			defer context.AfterFunc(s.life.longContext, func() { cancel(ErrShuttingDown) })()
			r = r.WithContext(ctx)
		}
		next.ServeHTTP(w, r)
	})
}

// life is where the server is between its start and its end.
type life struct {
	// refusing: new requests are turned away.
	refusing atomic.Bool
	// short and long are the requests at work.
	short, long group
	// longContext ends when long-running requests must.
	longContext context.Context
	endLong     context.CancelFunc
}

// group counts requests until it is closed. Unlike a sync.WaitGroup it can be
// entered while somebody waits.
type group struct {
	mu     sync.Mutex
	n      int
	closed bool
	empty  chan struct{} // made by close
}

// enter counts one more; false after close.
func (g *group) enter() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.closed {
		return false
	}
	g.n++
	return true
}

func (g *group) leave() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.n--
	if g.closed && g.n == 0 {
		close(g.empty)
	}
}

// close lets nobody in any more and returns a channel that is closed when the
// last one has left. To be called once.
func (g *group) close() <-chan struct{} {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.closed, g.empty = true, make(chan struct{})
	if g.n == 0 {
		close(g.empty)
	}
	return g.empty
}

// count returns how many are in.
func (g *group) count() int {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.n
}
