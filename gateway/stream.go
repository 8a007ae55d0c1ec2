package gateway

import (
	"context"
	"sync"
	"time"

	"portico/discovery/aggregate"
)

const (
	// streamRetry and streamRetryMax are the pauses before a backend's stream
	// of discovery is opened again: the first, and the longest.
	streamRetry    = 20 * time.Millisecond
	streamRetryMax = 2 * time.Second
	// streamUnknown is the pause before a backend that does not stream is asked
	// again whether it does; its availability check asks for changes meanwhile.
	streamUnknown = time.Minute
)

// followBackends has every configured backend tell of changes in what it
// serves, so that they show at once. It returns when ctx ends.
func (s *syncer) followBackends(ctx context.Context) error {
	var wg sync.WaitGroup
	for _, b := range s.backends {
		wg.Go(func() { s.followBackend(ctx, b) })
	}
	wg.Wait()
	<-ctx.Done()
	return ctx.Err()
}

func (s *syncer) followBackend(ctx context.Context, b *server) {
	pause := streamRetry
	for {
		began := time.Now()
		err := b.source.Follow(ctx, func() {
			s.news.Poke()
			if b.refreshOpenAPI(ctx) {
				s.news.Poke()
			}
		})
		switch {
		case ctx.Err() != nil:
			return
		case aggregate.IsNoStream(err):
			pause = streamUnknown
		case time.Since(began) > streamRetryMax:
			pause = streamRetry
		}
		s.log.Debug("a backend's stream of discovery ended and is opened again", "backend", b.name, "pause", pause, "err", err)
		select {
		case <-ctx.Done():
			return
		case <-time.After(pause):
		}
		pause = min(pause*2, max(pause, streamRetryMax))
	}
}
