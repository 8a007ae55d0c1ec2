package sources

import (
	"context"
	"fmt"
	"net/http"
	"time"

	"portico/discovery"
)

// acknowledgeTimeout bounds an acknowledgement.
const acknowledgeTimeout = 5 * time.Second

// Announced returns the last state that the stream has announced; GroupVersions is as new, or newer. Serial is 0
// before the first one, and for a server that asks for no acknowledgement.
func (s *Source) Announced() discovery.State {
	if a := s.announced.Load(); a != nil {
		return *a
	}
	return discovery.State{}
}

// announce sets the state of a BOOKMARK, and reports whether it is new.
func (s *Source) announce(state *discovery.State) (isNew bool) {
	if state == nil || s.Announced() == *state {
		return false
	}
	s.announced.Store(state)
	return true
}

// Acknowledge tells the server that the gateway shows a state of its discovery and of its index of OpenAPI documents,
// and routes requests by it. It does not wait. Without a stream, nothing is sent.
func (s *Source) Acknowledge(state discovery.State) {
	if state.Serial == 0 {
		return
	}
	if old := s.shown.Swap(&state); old == nil || *old != state {
		s.newlyShown.Set()
	}
}

// acknowledge sends acknowledgements until ctx, the context of a stream, ends. It ends the stream if one is not accepted:
// the request may have reached another process of the server.
func (s *Source) acknowledge(ctx context.Context, end context.CancelCauseFunc) {
	var sent discovery.State
	for {
		if state := s.shown.Load(); state != nil && *state != sent && state.Process == s.Announced().Process {
			if err := s.sendAcknowledgement(ctx, *state); err != nil {
				end(err)
				return
			}
			sent = *state
		}
		select {
		case <-ctx.Done():
			return
		case <-s.newlyShown.C():
		}
	}
}

func (s *Source) sendAcknowledgement(ctx context.Context, state discovery.State) error {
	ctx, cancel := context.WithTimeout(ctx, acknowledgeTimeout)
	defer cancel()
	req, err := s.newRequest(ctx, http.MethodPost, pathGroups+"?"+discovery.Acknowledge(s.follower, state), acceptLegacy)
	if err != nil {
		return err
	}
	res, err := s.cfg.Transport.RoundTrip(req)
	if err != nil {
		return fmt.Errorf("acknowledge discovery: %w", err)
	}
	if err := res.Body.Close(); err != nil {
		return fmt.Errorf("acknowledge discovery: %w", err)
	}
	switch res.StatusCode {
	case http.StatusNoContent:
		return nil
	case http.StatusGone:
		return errUnknown
	}
	return &statusError{s.cfg.Shown + pathGroups, res.StatusCode, retryAfter(res.Header)}
}
