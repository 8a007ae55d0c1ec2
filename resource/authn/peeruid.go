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

// PeerUIDFrom returns the uid of the peer; false when the kernel did not vouch
// for one.
func PeerUIDFrom(ctx context.Context) (int, bool) {
	uid, ok := ctx.Value(peerUIDKey{}).(int)
	return uid, ok
}

// PeerUID believes the X-Remote-* headers of processes that run under one of
// the uids and are connected through a unix socket; without uids, this
// process's own effective one. It is the front-proxy certificate of processes
// on one machine. A request from anybody else, or that names no user, is not
// claimed.
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
