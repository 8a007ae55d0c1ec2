package upstream

import (
	"sync/atomic"
	"time"
)

// A server that starts may learn only later whose certificates to ask for; on a
// connection made before, every request would be anonymous for as long as the
// connection lasts. So connections on which the server did not ask for the
// gateway's are used for a time only. But most servers that do not ask never will,
// and to make all connections anew costs them handshakes, and requests that come
// just then their time. So the time doubles whenever the server did not ask again,
// and is short again after anything that a server which starts would cause: a
// connection that cannot be made, or breaks, or was ended while it was idle, or a
// failed check.
const (
	unaskedLife    = 10 * time.Second
	maxUnaskedLife = 2 * time.Minute
)

// unaskedTime is how long connections to an endpoint are used on which it did not
// ask. The zero value is unaskedLife. Safe for concurrent use.
type unaskedTime struct{ more atomic.Int64 }

func (u *unaskedTime) now() time.Duration { return unaskedLife + time.Duration(u.more.Load()) }

// again takes down that the server did not ask again.
func (u *unaskedTime) again() {
	u.more.Store(int64(min(2*u.now(), maxUnaskedLife) - unaskedLife))
}

// begin is the time of a server that may have started a moment ago.
func (u *unaskedTime) begin() { u.more.Store(0) }

// unaskedAgain reports whether the connections may not be used any more for no
// other reason than that the server did not ask.
func (g *generation) unaskedAgain(trust *Trust, now credentials) bool {
	return g.trust == trust && g.credentials == now && g.unasked.Load() != 0
}

// broke tells that a connection broke that was not closed here.
func (w *ways) broke() {
	w.unasked.begin()
	w.broken()
}
