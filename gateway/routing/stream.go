package routing

import (
	"context"
	"time"

	"portico/discovery/sources"
)

const (
	// streamRetry and streamRetryMax are the shortest and the longest pause before the
	// stream of a server's discovery is opened again. The pause doubles while streams end
	// within streamGood: every new stream causes a reconcile. A passed check ends the pause.
	streamRetry    = 20 * time.Millisecond
	streamRetryMax = 5 * time.Second
	streamGood     = 5 * time.Second
	// streamUnknown is the pause for a server that does not stream (its checks find
	// changes), and the first pause after a stream that exceeded its limits, which doubles up
	// to streamTooLongMax.
	streamUnknown    = time.Minute
	streamTooLongMax = time.Hour
	// openAPIDelay is the time from a change of a server's discovery to reading its OpenAPI
	// index: routes come first, and changes in a burst are read once.
	openAPIDelay = 50 * time.Millisecond
)

// follow reads changes of the discovery of a server, if all of it is read, and of its OpenAPI
// index until the server is closed or ctx ends.
func (s *Controller) follow(ctx context.Context, srv *Server) {
	ctx, srv.unfollow = context.WithCancel(ctx)
	if srv.whole {
		s.followers.Go(func() { s.followDiscovery(ctx, srv) })
	}
	s.followers.Go(func() { s.followOpenAPI(ctx, srv) })
}

// followDiscovery keeps the stream of a server's discovery open until ctx ends.
func (s *Controller) followDiscovery(ctx context.Context, srv *Server) {
	var pause time.Duration
	for {
		began := time.Now()
		err := srv.Source.Follow(ctx, func() {
			srv.followed.Store(true)
			s.sourceChanged(srv)
		})
		if ctx.Err() != nil {
			return
		}
		if !srv.followed.Swap(true) {
			s.wake.Set()
		}
		pause = afterStream(pause, time.Since(began), err)
		s.log.Debug("the discovery stream of a server ended", "backend", srv.Name, "pause", pause, "err", err)
		if !srv.waitToFollow(ctx, pause) {
			return
		}
	}
}

// afterStream returns the pause after a stream; last is the previous pause.
func afterStream(last, lasted time.Duration, err error) time.Duration {
	retryAfter, refused := sources.Refused(err)
	switch {
	case sources.IsNoStream(err):
		return streamUnknown
	case sources.IsTooLong(err):
		return min(max(2*last, streamUnknown), streamTooLongMax)
	case !refused && lasted >= streamGood:
		return streamRetry
	}
	return max(min(max(2*last, streamRetry), streamRetryMax), min(retryAfter, streamUnknown))
}

// waitToFollow waits for a pause, or until the server passes a check, unless the pause is
// longer than streamRetryMax. It returns false if ctx ended.
func (srv *Server) waitToFollow(ctx context.Context, pause time.Duration) bool {
	timer := time.NewTimer(pause)
	defer timer.Stop()
	answered := srv.answered.C()
	if pause > streamRetryMax {
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

// sourceChanged is called when the discovery of a server changes.
func (s *Controller) sourceChanged(srv *Server) {
	s.changed()
	s.wake.Set()
	srv.openAPIChanged.Set()
}

// followOpenAPI reads the OpenAPI index of a server when it may have changed. Routes do not
// wait for it. A failure keeps the index, and does not make the server unhealthy.
func (s *Controller) followOpenAPI(ctx context.Context, srv *Server) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-srv.openAPIChanged.C():
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(openAPIDelay):
		}
		bounded, cancel := context.WithTimeout(ctx, openAPITimeout)
		state := srv.Source.Announced()
		changed, err := srv.Source.RefreshOpenAPI(bounded) // Broken has the error
		cancel()
		if err == nil {
			before := srv.indexed.Swap(&state)
			changed = changed || before == nil || *before != state
		}
		if changed {
			s.wake.Set()
		}
	}
}
