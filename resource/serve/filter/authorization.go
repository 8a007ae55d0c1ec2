package filter

import (
	"fmt"
	"net/http"
	"strings"

	"portico/resource"
	"portico/resource/authz"
	"portico/resource/response"
)

// authorize answers 403 unless the Authorizer allows the Action, and 500 if it fails. Without
// an Authorizer it allows every request.
func (c *Chain) authorize(w http.ResponseWriter, r *http.Request) bool {
	if c.cfg.Authorizer == nil {
		return true
	}
	action := resource.ActionFrom(r.Context())
	rs := stateOf(r.Context())
	decision, reason, err := c.cfg.Authorizer.Authorize(r.Context(), action)
	rs.filterTimes.authorization = rs.lap()
	c.metrics.Authorized(decision, err, rs.filterTimes.authorization)
	auditDecision(r.Context(), decision, reason, err)
	switch {
	case decision == authz.Allow:
		return true
	case err != nil && c.cfg.Complete != nil && !c.cfg.Complete():
		// Roles and bindings are still being read.
		response.WriteStatus(w, r, resource.Unavailable(err.Error(), 1))
	case err != nil:
		c.log.Error("authorize request", "err", err, "user", action.User.Name, "verb", action.Verb, "uri", resource.RedactURI(r.RequestURI))
		text := fmt.Sprintf("Internal Server Error: %q: %v", r.RequestURI, err)
		http.Error(w, strings.NewReplacer("&", "&amp;", "<", "&lt;", ">", "&gt;").Replace(text), http.StatusInternalServerError)
	default:
		w.Header().Set("X-Content-Type-Options", "nosniff")
		response.WriteStatus(w, r, authz.Forbidden(action, reason))
	}
	return false
}
