package core

import (
	"context"

	"portico/resource"
	"portico/resource/authz"
)

// authorize sends a review for what the gateway has not authorized (authz.Ask).
func (c *Core) authorize(ctx context.Context, a *resource.Action) error {
	if c.drain.gateway == nil {
		// A nil client in an interface is not nil.
		return authz.Ask(ctx, nil, a)
	}
	return authz.Ask(ctx, c.drain.gateway, a)
}
