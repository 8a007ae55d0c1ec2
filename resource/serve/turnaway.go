package serve

import (
	"net/http"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"portico/resource"
	"portico/resource/rest"
	"portico/resource/serve/metrics"
)

// turnAway answers 429 to new requests once the server is shutting down and
// others have had the time to learn it (contract 11.5). Clients of the
// Kubernetes family try again, on a new connection. Health and metrics are
// answered to the end.
func (s *Server) turnAway(w http.ResponseWriter, r *http.Request) bool {
	if s.life.refusing.Load() && !isProbe(r.URL.Path) {
		s.refuse(w, r)
		return false
	}
	return true
}

func (s *Server) refuse(w http.ResponseWriter, r *http.Request) {
	s.metrics.Terminated(r, resource.ActionFrom(r.Context()), http.StatusTooManyRequests)
	w.Header().Set("Connection", "close")
	rest.WriteStatus(w, r, apierrors.NewTooManyRequests("The apiserver is shutting down, please try again later.", 5))
}

// isProbe reports whether the path tells about the server rather than about
// what it serves.
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
