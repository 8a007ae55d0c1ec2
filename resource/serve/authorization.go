package serve

import (
	"fmt"
	"net/http"
	"strings"

	"portico/resource"
	"portico/resource/authz"
	"portico/resource/rest"
)

// authorize answers 403 unless the authorizer allows the Action, and 500 when
// it could not tell. Without an authorizer every authenticated request passes.
func (s *Server) authorize(w http.ResponseWriter, r *http.Request) bool {
	if s.cfg.Authorizer == nil {
		return true
	}
	action := resource.ActionFrom(r.Context())
	x := exchangeFrom(r.Context())
	decision, reason, err := s.cfg.Authorizer.Authorize(r.Context(), action)
	x.took.authorization = x.lap()
	s.metrics.Authorized(decision, err, x.took.authorization)
	auditDecision(r.Context(), decision, reason, err)
	switch {
	case decision == authz.Allow:
		return true
	case err != nil && s.cfg.Complete != nil && !s.cfg.Complete():
		// What decides is still being read.
		rest.WriteStatus(w, r, resource.Unavailable(err.Error(), 1))
	case err != nil:
		s.log.Error("authorize request", "err", err, "user", action.User.Name, "verb", action.Verb, "uri", resource.RedactURI(r.RequestURI))
		text := fmt.Sprintf("Internal Server Error: %q: %v", r.RequestURI, err)
		http.Error(w, strings.NewReplacer("&", "&amp;", "<", "&lt;", ">", "&gt;").Replace(text), http.StatusInternalServerError)
	default:
		w.Header().Set("X-Content-Type-Options", "nosniff")
		rest.WriteStatus(w, r, authz.Forbidden(action, reason))
	}
	return false
}
