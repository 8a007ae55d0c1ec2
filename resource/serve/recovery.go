package serve

import (
	"net/http"
	"runtime/debug"

	"portico/resource"
)

// recover turns a panic into a 500, or into the end of the connection (of the
// stream, in HTTP/2) when the response has begun. http.ErrAbortHandler is the
// handler's way to ask for the latter and passes through.
func (s *Server) recover(next http.HandlerFunc) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		defer func() {
			cause := recover()
			if cause == nil {
				return
			}
			x := exchangeFrom(r.Context())
			if cause == http.ErrAbortHandler {
				s.metrics.Aborted(r, x.action)
				panic(cause)
			}
			s.log.Error("handler panicked", "cause", cause, "method", r.Method, "uri", resource.RedactURI(r.RequestURI),
				"auditID", x.auditID[0], "stack", string(debug.Stack()))
			if x.code != 0 {
				panic(http.ErrAbortHandler)
			}
			x.warnings.collect(false)
			http.Error(w, "This request caused apiserver to panic. Look in the logs for details.", http.StatusInternalServerError)
		}()
		next(w, r)
	}
}
