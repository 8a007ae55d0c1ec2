package filter

import (
	"context"
	"net/http"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"portico/resource"
	"portico/resource/response"
	"portico/resource/serve/metrics"
)

// rejectDuringShutdown answers 429 to new requests once the server is shutting down and
// load balancers have had time to notice. Kubernetes clients retry on a new connection.
// Health and metrics are answered until the end.
func (c *Chain) rejectDuringShutdown(w http.ResponseWriter, r *http.Request) bool {
	if c.lifecycle.Rejecting() && !isProbe(r.URL.Path) {
		c.reject(w, r)
		return false
	}
	return true
}

func (c *Chain) reject(w http.ResponseWriter, r *http.Request) {
	c.metrics.Terminated(r, resource.ActionFrom(r.Context()), http.StatusTooManyRequests)
	w.Header().Set("Connection", "close")
	response.WriteStatus(w, r, apierrors.NewTooManyRequests("The apiserver is shutting down, please try again later.", 5))
}

// isProbe reports whether the path is about the server itself.
func isProbe(path string) bool {
	return path == "/metrics" || path == metrics.PathSLIs || isHealth(path)
}

func isHealth(path string) bool {
	for _, endpoint := range [...]string{"/healthz", "/livez", "/readyz"} {
		if rest, found := strings.CutPrefix(path, endpoint); found && (rest == "" || rest[0] == '/') {
			return true
		}
	}
	return false
}

// track adds the request to the lifecycle until untrack: shutdown waits for short requests
// and ends the contexts of long-running ones.
func (c *Chain) track(next http.HandlerFunc) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		rs := stateOf(r.Context())
		switch {
		case rs.action.LongRunning():
			c.trackLong(next, w, r)
			return
		case rs.upgrade != nil:
			c.trackUpgrade(next, w, r)
			return
		}
		switch {
		case c.lifecycle.AddShort():
			rs.short = true
		case isProbe(rs.action.Path):
		default:
			c.reject(w, r) // shutdown began after rejectDuringShutdown
			return
		}
		next(w, r)
	}
}

func (c *Chain) trackLong(next http.HandlerFunc, w http.ResponseWriter, r *http.Request) {
	ctx, cancel := context.WithCancelCause(r.Context())
	defer cancel(nil)
	if !c.lifecycle.AddLong(&cancel) {
		c.reject(w, r)
		return
	}
	rs := stateOf(r.Context())
	rs.endLong = &cancel
	if rs.upgrade != nil {
		rs.upgrade.ctx = ctx
	}
	next(w, r.WithContext(ctx))
}

// untrack removes the request from the lifecycle after everything has observed its end.
func (c *Chain) untrack(rs *requestState) {
	if rs.longSlot != nil {
		rs.longSlot.Release(rs.slotUser)
	}
	switch {
	case rs.short:
		c.lifecycle.RemoveShort()
	case rs.endLong != nil:
		c.lifecycle.RemoveLong(rs.endLong)
	}
}
