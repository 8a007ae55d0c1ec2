package gateway

import (
	"context"
	"net/http"

	"portico/resource"
	"portico/resource/authz"
)

// refuseLoop refuses a request that returns to this gateway (upstream.Via).
func (g *Gateway) refuseLoop(r *http.Request) error {
	return g.via.Admit(r.Header, func() bool { return g.authn.FrontProxy != nil && g.authn.FrontProxy.Vouches(r) })
}

// authorize decides about a further action than the one of the request: create by PUT.
func (g *Gateway) authorize(ctx context.Context, a *resource.Action) error {
	decision, reason, err := g.access.Authorize(ctx, a)
	if err != nil && decision != authz.Allow {
		reason = err.Error()
	}
	if decision == authz.Allow {
		return nil
	}
	return authz.Forbidden(a, reason)
}
