package routing

import (
	"context"
	"time"

	"portico/discovery/sources"
)

const (
	// streamRetry and streamRetryMax are the pauses before a backend's stream
	// of discovery is opened again: the first, and the longest. A backend that
	// is started again waits for it.
	streamRetry    = 20 * time.Millisecond
	streamRetryMax = 250 * time.Millisecond
	// A stream that lasted for streamLasts was a good one: the next is opened as
	// after the first failure. The pauses between those that end sooner, each of
	// which has all routes looked at again, get as long as streamShortMax; and so do
	// those after a refusal (401, say), which may last for ever.
	streamLasts    = 5 * time.Second
	streamShortMax = 5 * time.Second
	// streamUnknown is the pause before a backend that does not stream is asked
	// again whether it does; its availability check asks for changes meanwhile. So it
	// does after a stream that passed its bound: that pause doubles each time, up to
	// streamTooLongMax.
	streamUnknown    = time.Minute
	streamTooLongMax = time.Hour
	// openAPIDelay is how long after a change in a backend's discovery its
	// OpenAPI index is read, so that the two do not compete for the processors
	// while somebody waits for the route. openAPIPause is the shortest time
	// between two readings.
	openAPIDelay = 20 * time.Millisecond
	openAPIPause = 50 * time.Millisecond
)

// follow has a server tell of changes in what it serves, so that they show at
// once, until it is retired or ctx ends. One of which only a part is wanted is
// asked; its OpenAPI index is read beside that all the same.
func (s *Controller) follow(ctx context.Context, srv *Server) {
	ctx, srv.unfollow = context.WithCancel(ctx)
	srv.followed.Store(true)
	if srv.tells {
		s.followers.Go(func() { s.followBackend(ctx, srv) })
	}
	s.followers.Go(func() { s.followOpenAPI(ctx, srv) })
}

// followBackend keeps a backend's stream open until ctx ends.
func (s *Controller) followBackend(ctx context.Context, b *Server) {
	var wait time.Duration
	for {
		told, began := false, time.Now()
		err := b.Source.Follow(ctx, func() {
			told = true
			s.sourceChanged(b)
		})
		if ctx.Err() != nil {
			return
		}
		wait = afterStream(wait, told, time.Since(began), err)
		s.log.Debug("a backend's stream of discovery ended and is opened again", "backend", b.Name, "pause", wait, "err", err)
		if !b.waitToFollow(ctx, wait) {
			return
		}
	}
}

// afterStream is the pause after a stream that ended, and told something or not; last
// is the one before.
func afterStream(last time.Duration, told bool, lasted time.Duration, err error) time.Duration {
	longer := max(2*last, streamRetry)
	after, refused := sources.Refused(err)
	switch {
	case sources.IsNoStream(err):
		return streamUnknown
	case sources.IsTooLong(err):
		return min(max(2*last, streamUnknown), streamTooLongMax)
	case refused:
		return max(min(longer, streamShortMax), min(after, streamUnknown))
	case told && lasted >= streamLasts || last >= streamUnknown:
		return streamRetry
	case told:
		return min(longer, streamShortMax)
	}
	return min(longer, streamRetryMax)
}

// waitToFollow waits, but no longer than until the server passes a check, unless it is
// one that does not stream or has asked for more time. It returns false if ctx ended.
func (srv *Server) waitToFollow(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	answered := srv.answered.C()
	if d > streamShortMax {
		answered = nil
	}
	select {
	case <-ctx.Done():
		return false
	case <-answered:
	case <-timer.C:
	}
	return true
}

// sourceChanged is called when a backend says something new of what it serves.
// Routes and registrations need not wait for each other.
func (s *Controller) sourceChanged(b *Server) {
	if s.changed != nil {
		s.changed()
	}
	s.wake.Set()
	b.openAPISignal.Set()
}

// followOpenAPI reads a backend's OpenAPI index when there may be a new one,
// beside everything else: routes do not wait for it.
func (s *Controller) followOpenAPI(ctx context.Context, b *Server) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-b.openAPISignal.C():
		}
		if !sleep(ctx, openAPIDelay) {
			return
		}
		if b.refreshOpenAPI(ctx) {
			s.wake.Set()
		}
		if !sleep(ctx, openAPIPause) {
			return
		}
	}
}

// sleep returns false if ctx ended meanwhile.
func sleep(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-timer.C:
		return true
	}
}
