package filter

import (
	"net/http"
	"runtime/debug"

	"portico/resource"
)

// recover turns a panic into a 500, or ends the connection (over HTTP/2 the stream) if the
// response has begun. http.ErrAbortHandler, by which handlers ask for that, passes through.
func (c *Chain) recover(next http.HandlerFunc) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		defer func() {
			cause := recover()
			if cause == nil {
				return
			}
			rs := stateOf(r.Context())
			if cause == http.ErrAbortHandler {
				c.metrics.Aborted(r, rs.action)
				panic(cause)
			}
			c.log.Error("handler panicked", "cause", cause, "method", r.Method, "uri", resource.RedactURI(r.RequestURI),
				"auditID", rs.auditID[0], "stack", string(debug.Stack()))
			if rs.code != 0 {
				panic(http.ErrAbortHandler)
			}
			rs.warnings.collect(false)
			http.Error(w, "This request caused apiserver to panic. Look in the logs for details.", http.StatusInternalServerError)
		}()
		next(w, r)
	}
}
