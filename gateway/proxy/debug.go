package proxy

import (
	"fmt"
	"net/http"
	"strings"
	"time"

	"portico/apiservice/backend"
	"portico/apiservice/explain"
	"portico/resource"
	"portico/resource/authz"
	"portico/resource/serve/filter"
)

// Headers that show where a request went. A client that sends headerDebug, with any
// value, and may get explain.Path, finds the other two on the answer, also on answers
// that the gateway makes itself. Otherwise no permission is checked. Those of servers
// and clients are removed.
const (
	headerDebug   = "X-Portico-Debug"
	headerBackend = "X-Portico-Backend"
	headerTiming  = "Server-Timing"
)

// DebugHeaders adds the debug headers to answers that the gateway makes itself:
// discovery, its own groups, and errors of requests that are not sent on. For others
// Send adds them. The permission is checked once for each request, here.
func (p *Proxy) DebugHeaders(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header[headerDebug] != nil {
			if act := resource.ActionFrom(r.Context()); p.mayDebug(r, act) {
				filter.Attach(r.Context(), p.ownRequest(r, act))
			} else {
				delete(r.Header, headerDebug) // it is not checked again
			}
		}
		next.ServeHTTP(w, r)
	})
}

// mayDebug reports whether the user may see where requests go.
func (p *Proxy) mayDebug(r *http.Request, act *resource.Action) bool {
	ask := &resource.Action{User: act.User, Verb: "get", Path: explain.Path}
	decision, _, err := p.cfg.Authorizer.Authorize(r.Context(), ask)
	return err == nil && decision == authz.Allow
}

// ownRequest returns the proxiedRequest of a request that the gateway answers itself.
func (p *Proxy) ownRequest(r *http.Request, act *resource.Action) *proxiedRequest {
	h := &proxiedRequest{proxy: p, route: &Route{Backend: backend.Reserved}, request: r, act: act, shown: true, began: time.Now()}
	if !act.IsResource {
		return h
	}
	if rt := p.lookup(act.Group, act.Version); rt != nil {
		h.route.Name = rt.Name
	}
	return h
}

// show adds the debug headers.
func (h *proxiedRequest) show(header http.Header) {
	attempts := h.Attempts()
	var server strings.Builder
	server.WriteString(h.route.Backend)
	if h.route.Name != "" {
		fmt.Fprintf(&server, "; apiservice=%q", h.route.Name)
	}
	if n := len(attempts); n > 0 {
		fmt.Fprintf(&server, "; endpoint=%q; attempts=%d", attempts[n-1].Endpoint, n)
	}
	header[headerBackend] = []string{server.String()}
	timing := fmt.Sprintf("gateway;dur=%.3f", milliseconds(h.own()))
	if len(attempts) > 0 {
		timing += fmt.Sprintf(", upstream;dur=%.3f", milliseconds(h.away()-h.Queued()))
	}
	if queued := h.Queued(); queued > 0 {
		timing += fmt.Sprintf(", queue;dur=%.3f", milliseconds(queued))
	}
	header[headerTiming] = []string{timing}
}

func milliseconds(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }
