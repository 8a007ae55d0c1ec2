package authn

import "context"

// Audiences are the audiences wanted of a token. A TokenReview puts them into the
// context with [WithAudiences]; without them a token must be for this API server.
type Audiences struct {
	// Wanted are the acceptable audiences; one is enough.
	Wanted []string
	// Matched is set by authenticators that know what a token is meant for:
	// those of Wanted that it is. Others leave it nil.
	Matched []string
}

type audiencesKey struct{}

// WithAudiences returns a context in which tokens are checked against
// a.Wanted. The context serves one call, which may write a.Matched.
func WithAudiences(ctx context.Context, a *Audiences) context.Context {
	return context.WithValue(ctx, audiencesKey{}, a)
}

func audiencesFrom(ctx context.Context) *Audiences {
	a, _ := ctx.Value(audiencesKey{}).(*Audiences)
	return a
}
