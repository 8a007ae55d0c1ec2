package serve

import (
	"net/http"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"portico/resource"
	"portico/resource/authn"
	"portico/resource/rest"
)

// authenticate puts the user into the Action, or answers 401. Credentials and
// identity headers end here, whether or not they were used: no handler sees
// them and no proxy forwards them.
func (s *Server) authenticate(w http.ResponseWriter, r *http.Request) bool {
	x := exchangeFrom(r.Context())
	x.lap()
	user, claimed, err := s.cfg.Authenticator.Authenticate(r)
	x.took.authentication = x.lap()
	s.metrics.Authenticated(r, user, claimed, err, x.took.authentication)
	shown := ""
	if !claimed {
		shown = s.credentialsOf(r)
	}
	authn.StripCredentials(r.Header)
	s.cfg.IdentityHeaders.Strip(r.Header)
	if !claimed {
		s.log.Debug("authentication failed", "err", err, "remote", r.RemoteAddr, "uri", r.URL.Path)
		limitStranger(x, r)
		s.auditRefusal(r, shown)
		rest.WriteStatus(w, r, apierrors.NewUnauthorized("Unauthorized"))
		return false
	}
	if user.Name == resource.Anonymous && isStranger(r) {
		limitStranger(x, r)
	}
	x.action.User = user
	return true
}

// refuseEarly answers what Config.Refuse refuses, before any work is done for it.
func (s *Server) refuseEarly(w http.ResponseWriter, r *http.Request) bool {
	if s.cfg.Refuse == nil {
		return true
	}
	err := s.cfg.Refuse(r)
	if err == nil {
		return true
	}
	if isStranger(r) {
		limitStranger(exchangeFrom(r.Context()), r)
	}
	rest.WriteStatus(w, r, err)
	return false
}

// limitStranger has an HTTP/2 connection end after the requests that are under
// way: a client that nobody knows gets to open one connection per burst, not
// hundreds of streams on it again and again.
func limitStranger(x *exchange, r *http.Request) {
	if r.ProtoMajor == 2 {
		x.closing.Store(true)
	}
}

// isStranger reports whether nothing is known about who is at the other end of
// the connection. A front proxy that speaks for an anonymous user is known, and
// its connection carries the requests of others.
func isStranger(r *http.Request) bool {
	_, known := authn.PeerUIDFrom(r.Context())
	return !known && (r.TLS == nil || len(r.TLS.PeerCertificates) == 0)
}
