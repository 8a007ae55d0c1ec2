package serve

import (
	"context"
	"errors"
	"net/http"
	"time"
)

// storageTimeout bounds asking the storage for a sign of life (contract 13).
const storageTimeout = 2 * time.Second

// RunWith is Run for a server that needs other parts to work. They outlive it,
// for requests that it drains still need them, and are ended after it; where
// they end by themselves, so does the server. It returns the server's error or
// else theirs; that ctx ended is none.
func (s *Server) RunWith(ctx context.Context, parts func(ctx context.Context) error) error {
	if err := s.Listen(); err != nil {
		return err
	}
	outlive, stop := context.WithCancel(context.WithoutCancel(ctx))
	defer stop()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	done := make(chan error, 1)
	go func() {
		defer cancel()
		done <- parts(outlive)
	}()
	err := s.Run(ctx)
	stop()
	if partsErr := <-done; err == nil && !errors.Is(partsErr, context.Canceled) {
		err = partsErr
	}
	return err
}

// AddStorage adds the checks of a server that keeps its objects in etcd, under
// upstream's names. healthy asks for a sign of life.
func (h *Health) AddStorage(healthy func(ctx context.Context) error) {
	check := func(r *http.Request) error {
		ctx, cancel := context.WithTimeout(r.Context(), storageTimeout)
		defer cancel()
		return healthy(ctx)
	}
	h.AddLive("etcd", check)
	h.AddReady("etcd-readiness", check)
}
