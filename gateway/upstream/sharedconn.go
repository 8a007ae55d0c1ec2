package upstream

import (
	"sync/atomic"
	"time"

	"golang.org/x/net/http2"
)

// examineAgain is how often a connection that takes no request is looked at, whether
// it has any: one that is full is not useless.
const examineAgain = time.Second

// sharedConn is an HTTP/2 connection to an endpoint.
type sharedConn struct {
	*http2.ClientConn
	closed *atomic.Bool // by whomever
	begun  time.Time
	until  time.Time // it takes requests; zero: always
	used   bool      // it has taken a request; of shared, under its lock
	// examined is when it was looked at last; of shared, under its lock. examining:
	// somebody does.
	examined  time.Time
	examining atomic.Bool
}

// retire has it take no more requests, and end with the last that it has. It does not
// wait.
func (c *sharedConn) retire() {
	go func() {
		c.SetDoNotReuse()
		c.endIfIdle()
	}()
}

// endIfUseless closes a connection that takes no requests and has none.
func (c *sharedConn) endIfUseless() {
	defer c.examining.Store(false)
	if s := c.State(); s.StreamsActive+s.StreamsReserved+s.StreamsPending == 0 {
		// A request may come now, which finds another connection.
		c.SetDoNotReuse()
		c.endIfIdle()
	}
}

// endIfIdle closes a connection that is not to be used again, if it has nothing to do;
// it closes by itself with the last request that was sent. It waits while something is
// written to a server that does not read.
func (c *sharedConn) endIfIdle() {
	switch s := c.State(); {
	case s.Closed:
	case s.StreamsActive+s.StreamsReserved+s.StreamsPending == 0:
		_ = c.Close()
	case s.StreamsReserved+s.StreamsPending > 0:
		// Those have not been sent and find another connection; then nothing is left
		// to close this one.
		time.AfterFunc(examineAgain, c.endIfIdle)
	}
}
