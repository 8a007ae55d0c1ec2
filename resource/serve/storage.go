package serve

import (
	"context"
	"errors"
	"net/http"
	"time"
)

// storageTimeout bounds a health check of the storage.
const storageTimeout = 2 * time.Second

// RunWith is Run for a server that depends on other parts of the process. The parts end
// after the server, which needs them for the requests that it drains; if they end first,
// the server ends too. It returns the server's error, or else theirs; the end of ctx is no
// error.
func (s *Server) RunWith(ctx context.Context, parts func(ctx context.Context) error) error {
	if err := s.Listen(); err != nil {
		return err
	}
	partsCtx, stop := context.WithCancel(context.WithoutCancel(ctx))
	defer stop()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	done := make(chan error, 1)
	go func() {
		defer cancel()
		done <- parts(partsCtx)
	}()
	err := s.Run(ctx)
	stop()
	if partsErr := <-done; err == nil && !errors.Is(partsErr, context.Canceled) {
		err = partsErr
	}
	return err
}

// AddStorage adds the checks of a server that stores its objects in etcd, under upstream's
// names. healthy asks etcd for a response.
func (h *Health) AddStorage(healthy func(ctx context.Context) error) {
	check := func(r *http.Request) error {
		ctx, cancel := context.WithTimeout(r.Context(), storageTimeout)
		defer cancel()
		return healthy(ctx)
	}
	h.AddLive("etcd", check)
	h.AddReady("etcd-readiness", check)
}
