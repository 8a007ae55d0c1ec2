package authn

import (
	"context"
	"net/http"
	"os"
	"slices"

	"portico/resource"
)

type peerUIDKey struct{}

// WithPeerUID returns a connection's context that carries the uid of the
// process at its other end, as the kernel reported it. Only the owner of the
// listener calls it.
func WithPeerUID(ctx context.Context, uid int) context.Context {
	return context.WithValue(ctx, peerUIDKey{}, uid)
}

// PeerUIDFrom returns the uid of the peer of a unix socket; false if it is not known.
func PeerUIDFrom(ctx context.Context) (int, bool) {
	uid, ok := ctx.Value(peerUIDKey{}).(int)
	return uid, ok
}

// PeerUID trusts the X-Remote-* headers of processes with one of the uids that are
// connected through a unix socket; without uids, this process's effective uid. It
// takes the place of a front-proxy certificate on one machine. Requests of other peers,
// and requests that name no user, are not claimed.
func PeerUID(uids ...int) Authenticator {
	if len(uids) == 0 {
		uids = []int{os.Geteuid()}
	}
	return &peerUID{uids: slices.Clone(uids), headers: DefaultHeaderNames()}
}

type peerUID struct {
	uids    []int
	headers HeaderNames
}

func (p *peerUID) Authenticate(r *http.Request) (*resource.User, bool, error) {
	uid, known := PeerUIDFrom(r.Context())
	if !known || !slices.Contains(p.uids, uid) {
		return nil, false, nil
	}
	user := p.headers.user(r.Header)
	return user, user != nil, nil
}
