package authn

import (
	"context"
	"encoding/base64"
	"errors"
	"net/http"
	"slices"
	"strings"
	"unicode/utf8"

	"portico/resource"
)

// TokenAuthenticator returns the user of a bearer token. Implementations are safe for
// concurrent use.
type TokenAuthenticator interface {
	// AuthenticateToken answers as Authenticator does: false without an error
	// is a token of another kind.
	AuthenticateToken(ctx context.Context, token string) (user *resource.User, claimed bool, err error)
}

// errInvalidToken reports a token that no authenticator claims.
var errInvalidToken = errors.New("invalid bearer token")

// Bearer calls the token authenticators in order with the token of a request:
// Authorization: Bearer, or the WebSocket protocol that browsers use because they
// cannot set headers. A token that none claims is an error.
func Bearer(tokens ...TokenAuthenticator) Authenticator { return bearer(tokens) }

type bearer []TokenAuthenticator

func (b bearer) Authenticate(r *http.Request) (*resource.User, bool, error) {
	token, err := tokenOf(r)
	if token == "" || err != nil {
		return nil, false, err
	}
	var errs []error
	for _, one := range b {
		user, claimed, err := one.AuthenticateToken(r.Context(), token)
		if claimed {
			return user, true, nil
		}
		if err != nil {
			errs = append(errs, err)
		}
	}
	if len(errs) == 0 {
		return nil, false, errInvalidToken
	}
	return nil, false, errors.Join(errs...)
}

// tokenOf returns the request's bearer token, "" without one.
func tokenOf(r *http.Request) (string, error) {
	scheme, token, _ := strings.Cut(strings.TrimSpace(r.Header.Get("Authorization")), " ")
	if token = strings.TrimSpace(token); token != "" && strings.EqualFold(scheme, "Bearer") {
		return token, nil
	}
	return protocolToken(r)
}

// The header of offered WebSocket protocols and the prefix of the one that has a token
// (docs/wire.md 7.1, 3b).
const (
	headerProtocol      = "Sec-Websocket-Protocol"
	tokenProtocolPrefix = "base64url.bearer.authorization.k8s.io."
)

// protocolToken returns the token among the WebSocket protocols that a request offers. The
// request must offer another protocol too: the server echoes the chosen one, which must not
// be the token.
func protocolToken(r *http.Request) (string, error) {
	if r.Header[headerProtocol] == nil || !isWebSocket(r) {
		return "", nil
	}
	tokens, others := splitProtocols(r.Header)
	switch {
	case len(tokens) == 0:
		return "", nil
	case len(tokens) > 1:
		return "", errors.New("more than one WebSocket protocol carries a bearer token")
	case len(others) == 0:
		return "", errors.New("the WebSocket protocol with a bearer token needs another one beside it")
	}
	token, err := base64.RawURLEncoding.DecodeString(strings.TrimPrefix(tokens[0], tokenProtocolPrefix))
	if err != nil || !utf8.Valid(token) {
		return "", errors.New("the WebSocket protocol with a bearer token is not base64url text")
	}
	return string(token), nil
}

func splitProtocols(h http.Header) (tokens, others []string) {
	for _, line := range h[headerProtocol] {
		for protocol := range strings.SplitSeq(line, ",") {
			protocol = strings.TrimSpace(protocol)
			switch {
			case strings.HasPrefix(protocol, tokenProtocolPrefix):
				tokens = append(tokens, protocol)
			case protocol != "":
				others = append(others, protocol)
			}
		}
	}
	return tokens, others
}

// stripProtocolToken removes tokens from the offered WebSocket protocols.
func stripProtocolToken(h http.Header) {
	if h[headerProtocol] == nil {
		return
	}
	tokens, others := splitProtocols(h)
	switch {
	case len(tokens) == 0:
	case len(others) == 0:
		delete(h, headerProtocol)
	default:
		h[headerProtocol] = []string{strings.Join(others, ", ")}
	}
}

func isWebSocket(r *http.Request) bool {
	return strings.EqualFold(r.Header.Get("Upgrade"), "websocket") && slices.ContainsFunc(r.Header["Connection"], func(line string) bool {
		return strings.Contains(strings.ToLower(line), "upgrade")
	})
}

// Audiences are the wanted audiences of a token. A TokenReview puts them into the context
// with [WithAudiences]; without them a token must be for this API server.
type Audiences struct {
	// Wanted are the acceptable audiences; one is enough.
	Wanted []string
	// Matched is set by authenticators that know the audiences of a token: those of Wanted
	// that it has. Others leave it nil.
	Matched []string
}

type audiencesKey struct{}

// WithAudiences returns a context in which tokens are checked against a.Wanted. It is for
// one call, which may write a.Matched.
func WithAudiences(ctx context.Context, a *Audiences) context.Context {
	return context.WithValue(ctx, audiencesKey{}, a)
}

// AudiencesFrom returns the argument of [WithAudiences]; nil without one.
func AudiencesFrom(ctx context.Context) *Audiences {
	a, _ := ctx.Value(audiencesKey{}).(*Audiences)
	return a
}
