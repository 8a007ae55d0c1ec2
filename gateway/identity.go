package gateway

import (
	"context"
	"net/http"

	"portico/gateway/access"
	"portico/gateway/authorization/node"
	"portico/resource"
	"portico/resource/authz"
)

// refuseLoop refuses a request that returns to this gateway (upstream.Via).
func (g *Gateway) refuseLoop(r *http.Request) error {
	return g.via.Admit(r.Header, func() bool { return g.authn.FrontProxy != nil && g.authn.FrontProxy.Vouches(r) })
}

// authorize decides about a further action than the one of the request: create by PUT.
func (g *Gateway) authorize(ctx context.Context, a *resource.Action) error {
	decision, reason, err := g.authorizer.Authorize(ctx, a)
	if err != nil && decision != authz.Allow {
		reason = err.Error()
	}
	if decision == authz.Allow {
		return nil
	}
	return authz.Forbidden(a, reason)
}

// nodeAuthorizer makes the authorizer of kubelets.
func (g *Gateway) nodeAuthorizer() authz.Engine {
	g.nodes = node.New(node.Config{
		Reader: g.core.client.Reader, Others: access.AllowsNode, Logger: g.log,
	})
	return g.nodes
}

// followNodes follows what the authorizer of kubelets needs, if there is one, until ctx ends.
func (g *Gateway) followNodes(ctx context.Context) error {
	if g.nodes == nil {
		<-ctx.Done()
		return ctx.Err()
	}
	return g.nodes.Run(ctx)
}
