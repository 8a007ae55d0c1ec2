package authentication

import (
	"context"
	"errors"

	"k8s.io/apiserver/pkg/authentication/authenticator"
	"k8s.io/apiserver/pkg/authentication/user"

	"portico/resource"
	"portico/resource/authn"
)

// Metrics are the prefixes of upstream's metrics of authentication. Requests of service-account
// tokens are in authn's metrics, which have two names of upstream's cache.
func Metrics() []string {
	return []string{
		"apiserver_authentication_config_controller_", "apiserver_authentication_jwt_authenticator_",
		"authentication_token_cache_active_fetch_count", "authentication_token_cache_request_duration_seconds",
	}
}

// converted is a user of upstream's with its form in Portico, which requests share.
type converted struct {
	user.Info
	user *resource.User
}

// converting is a token authenticator with converted users. It stands behind a cache, so that a
// user is converted once.
type converting struct{ authenticator.Token }

// AuthenticateToken implements authenticator.Token.
func (c converting) AuthenticateToken(ctx context.Context, token string) (*authenticator.Response, bool, error) {
	res, ok, err := c.Token.AuthenticateToken(ctx, token)
	if err != nil || !ok {
		return nil, false, err
	}
	info := res.User
	if info.GetName() == "" {
		return nil, false, errors.New("the user of the token has no name")
	}
	u := authn.WithAuthenticated(&resource.User{Name: info.GetName(), UID: info.GetUID(), Groups: info.GetGroups(), Extra: info.GetExtra()})
	return &authenticator.Response{User: converted{info, u}, Audiences: res.Audiences}, true, nil
}

// tokens is a cached token authenticator of upstream's as one of Portico's.
type tokens struct {
	upstream  authenticator.Token
	audiences []string // of this API server
}

// AuthenticateToken implements authn.TokenAuthenticator.
func (t tokens) AuthenticateToken(ctx context.Context, token string) (*resource.User, bool, error) {
	wanted, asked := t.audiences, authn.AudiencesFrom(ctx)
	if asked != nil && len(asked.Wanted) > 0 {
		wanted = asked.Wanted
	}
	if len(wanted) > 0 {
		ctx = authenticator.WithAudiences(ctx, wanted)
	}
	res, ok, err := t.upstream.AuthenticateToken(ctx, token)
	if err != nil || !ok {
		return nil, false, err
	}
	if asked != nil {
		asked.Matched = res.Audiences
	}
	return res.User.(converted).user, true, nil
}
