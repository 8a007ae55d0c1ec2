package serve

import (
	"context"
	"errors"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"portico/resource"
)

// ErrShuttingDown is why (context.Cause) the context of a long-running request
// has ended whose client is still there.
var ErrShuttingDown = errors.New("the server is shutting down")

// track has shutdown know of the requests that are at work: it waits for the
// short ones, and ends the contexts of the long-running ones. They are at work until
// everything has been told of them (leave).
func (s *Server) track(next http.HandlerFunc) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		action := resource.ActionFrom(r.Context())
		if action.LongRunning() {
			s.trackLong(next, w, r)
			return
		}
		if exchangeFrom(r.Context()).leaving != nil {
			s.trackLeaving(next, w, r)
			return
		}
		switch {
		case s.life.short.enter():
			exchangeFrom(r.Context()).short = true
		case isProbe(action.Path):
		default:
			s.refuse(w, r) // the way of turnAway, for those that passed it just before
			return
		}
		next(w, r)
	}
}

func (s *Server) trackLong(next http.HandlerFunc, w http.ResponseWriter, r *http.Request) {
	ctx, cancel := context.WithCancelCause(r.Context())
	defer cancel(nil)
	if !s.life.long.enter(&cancel) {
		s.refuse(w, r)
		return
	}
	x := exchangeFrom(r.Context())
	x.ending = &cancel
	if x.leaving != nil {
		x.leaving.ctx = ctx
	}
	next(w, r.WithContext(ctx))
}

// leave has a request that is tracked be over.
func (s *Server) leave(x *exchange) {
	if x.lasting != nil {
		x.lasting.Release(x.holder)
	}
	switch {
	case x.short:
		s.life.short.leave()
	case x.ending != nil:
		s.life.long.leave(x.ending)
	}
}

// life is where the server is between its start and its end.
type life struct {
	// refusing: new requests are turned away.
	refusing atomic.Bool
	// short and long are the requests at work.
	short group
	long  longGroup
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

// Ending long-running requests: so many of them together, so often. Their
// clients come back at once, to other servers or to this one's next process, and
// all at once they would be its heaviest load.
const (
	endRate  = 200 // a second, at least
	endEvery = 20 * time.Millisecond
)

// longGroup is the long-running requests, which do not end unless they are told
// to.
type longGroup struct {
	group
	ending sync.Mutex
	ends   map[*context.CancelCauseFunc]struct{}
}

// enter counts one more, which end ends; false after close. Who is let in before
// close is there to be ended after it.
func (g *longGroup) enter(end *context.CancelCauseFunc) bool {
	g.ending.Lock()
	defer g.ending.Unlock()
	if !g.group.enter() {
		return false
	}
	if g.ends == nil {
		g.ends = make(map[*context.CancelCauseFunc]struct{})
	}
	g.ends[end] = struct{}{}
	return true
}

func (g *longGroup) leave(end *context.CancelCauseFunc) {
	g.ending.Lock()
	delete(g.ends, end)
	g.ending.Unlock()
	g.group.leave()
}

// end tells those to end that are in, one after the other: endRate a second, or
// as many more as it takes to be done within the time.
func (g *longGroup) end(within time.Duration) {
	per := int(endRate * endEvery / time.Second)
	if within > 0 {
		per = max(per, int(int64(g.count())*int64(endEvery)/int64(within))+1)
	}
	for g.endSome(per, within <= 0) {
		<-time.After(endEvery)
	}
}

// endSome ends n, or all, and reports whether there are more.
func (g *longGroup) endSome(n int, all bool) bool {
	g.ending.Lock()
	defer g.ending.Unlock()
	for end := range g.ends {
		if n--; n < 0 && !all {
			return true
		}
		(*end)(ErrShuttingDown)
		delete(g.ends, end)
	}
	return false
}
