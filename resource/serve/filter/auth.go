package filter

import (
	"fmt"
	"net/http"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"portico/resource"
	"portico/resource/authn"
	"portico/resource/authz"
	"portico/resource/response"
	"portico/resource/serve/inflight"
)

// authenticate puts the user into the Action, or answers 401. It removes credentials and
// identity headers, used or not: no handler sees them and no proxy forwards them.
func (c *Chain) authenticate(w http.ResponseWriter, r *http.Request) bool {
	rs := stateOf(r.Context())
	rs.lap()
	user, ok, err := c.cfg.Authenticator.Authenticate(r)
	rs.filterTimes.authentication = rs.lap()
	c.metrics.Authenticated(r, user, ok, err, rs.filterTimes.authentication)
	shown := ""
	if !ok {
		shown = c.credentialsOf(r)
	}
	authn.StripCredentials(r.Header)
	c.cfg.IdentityHeaders.Strip(r.Header)
	if !ok {
		c.log.Debug("authentication failed", "err", err, "remote", r.RemoteAddr, "uri", r.URL.Path)
		endConnection(rs, r)
		c.auditRefusal(r, shown)
		response.WriteStatus(w, r, apierrors.NewUnauthorized("Unauthorized"))
		return false
	}
	if user.Name == resource.Anonymous && isUnknownPeer(r) {
		endConnection(rs, r)
	}
	rs.action.User = user
	if rs.notes != nil {
		for _, text := range rs.notes.Warnings {
			rs.warnings.add(text)
		}
	}
	return true
}

// refuse checks the query, and calls Config.Refuse.
func (c *Chain) refuse(w http.ResponseWriter, r *http.Request) bool {
	err := resource.CheckQuery(r.URL)
	if err == nil && c.cfg.Refuse != nil {
		err = c.cfg.Refuse(r)
	}
	if err == nil {
		return true
	}
	if isUnknownPeer(r) {
		endConnection(stateOf(r.Context()), r)
	}
	response.WriteStatus(w, r, err)
	return false
}

// endConnection ends an HTTP/2 connection after the requests in flight on it, so that an
// unknown client gets few streams per connection. The first refusal on a connection leaves
// it open: net/http sends GOAWAY before the answer, and a client that is still sending its
// body (curl 7.88) may then lose the answer.
func endConnection(rs *requestState, r *http.Request) {
	if r.ProtoMajor != 2 {
		return
	}
	if conn := inflight.ConnectionFrom(r.Context()); conn == nil || conn.Refuse() {
		rs.closing.Store(true)
	}
}

// isUnknownPeer reports whether the connection has neither a client certificate nor the uid
// of a peer. A front proxy that sends the request of an anonymous user is known, and its
// connection carries the requests of others.
func isUnknownPeer(r *http.Request) bool {
	_, known := authn.PeerUIDFrom(r.Context())
	return !known && (r.TLS == nil || len(r.TLS.PeerCertificates) == 0)
}

// authorize answers 403 unless the Authorizer allows the Action, and 500 if it fails. Without
// an Authorizer it allows every request.
func (c *Chain) authorize(w http.ResponseWriter, r *http.Request) bool {
	action := resource.ActionFrom(r.Context())
	rs := stateOf(r.Context())
	if c.cfg.Authorizer == nil || rs.authorized {
		return true
	}
	decision, reason, err := c.cfg.Authorizer.Authorize(r.Context(), action)
	rs.filterTimes.authorization = rs.lap()
	c.metrics.Authorized(decision, err, rs.filterTimes.authorization)
	auditDecision(r.Context(), decision, reason, err)
	switch {
	case decision == authz.Allow:
		rs.authorized = true
		return true
	case apierrors.IsServiceUnavailable(err):
		response.WriteStatus(w, r, err)
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
