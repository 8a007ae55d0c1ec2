package authentication

import (
	"errors"
	"net/http"
	"sync"

	"golang.org/x/time/rate"
)

const (
	// keyRate is how often a second the keys of an issuer are requested at most, after keyBurst requests.
	keyRate  = rate.Limit(1)
	keyBurst = 3
)

// errKeysRequested reports a token of an unknown key, at a time when the keys may not be requested again.
var errKeysRequested = errors.New("the key of the token is unknown, and the keys of the issuer were requested less than a second ago")

// forKeys marks the context of requests for the keys of an issuer and for its discovery document.
// Requests for the distributed claims of a token have another one.
type forKeys struct{}

// boundedKeys is a transport that refuses requests for keys that are too frequent. Upstream's engine
// sends one for each token that no known key verifies, and anyone can make such tokens. A token of
// a new key is accepted after the next request, whichever token that was for.
type boundedKeys struct {
	next     http.RoundTripper
	limiters sync.Map // *rate.Limiter by URL: the discovery document is read every 10 s at most
}

// RoundTrip implements http.RoundTripper.
func (b *boundedKeys) RoundTrip(r *http.Request) (*http.Response, error) {
	if r.Context().Value(forKeys{}) != nil {
		limiter, _ := b.limiters.LoadOrStore(r.URL.String(), rate.NewLimiter(keyRate, keyBurst))
		if !limiter.(*rate.Limiter).Allow() {
			return nil, errKeysRequested
		}
	}
	return b.next.RoundTrip(r)
}
