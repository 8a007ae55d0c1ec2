package transport

import (
	"sync/atomic"
	"time"
)

// A server that starts may learn only later of which authority to ask for certificates;
// on a connection made before, every request would be anonymous. So connections on
// which the server did not ask for the gateway's certificate take requests for a
// limited time only. Most servers that do not ask never will, and handshakes cost both
// sides: the time doubles whenever the server did not ask again, and is short again
// after anything that the start of a server would cause, such as a connection that
// cannot be made or breaks, or a failed check.
const (
	unaskedLife    = 10 * time.Second
	maxUnaskedLife = 2 * time.Minute
)

// unaskedTime is how long connections take requests on which the server did not ask
// for a certificate. The zero value is unaskedLife.
type unaskedTime struct{ more atomic.Int64 }

func (u *unaskedTime) now() time.Duration { return unaskedLife + time.Duration(u.more.Load()) }

// extend records that the server did not ask again.
func (u *unaskedTime) extend() {
	u.more.Store(int64(min(2*u.now(), maxUnaskedLife) - unaskedLife))
}

// reset records that the server may have been started.
func (u *unaskedTime) reset() { u.more.Store(0) }

// unaskedAgain reports whether the connections are replaced only because the server
// did not ask.
func (g *generation) unaskedAgain(trust *Trust, now credentials) bool {
	return g.trust == trust && g.credentials == now && g.unasked.Load() != 0
}
