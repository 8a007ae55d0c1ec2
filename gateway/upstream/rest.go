package upstream

import (
	"context"
	"errors"
	"net"
	"net/http"
	"net/http/httptrace"
	"sync/atomic"
)

// What is no ordinary request of bounded size, and what leaves HTTP, goes by
// http.Transport, over connections that direct makes for it.

// needKey is where the context of a dial by http.Transport has the *need for it.
type needKey struct{}

// need is a request's for a connection. There is a new one each time that
// http.Transport looks for a connection: it sends a request again if one that was
// kept turns out to be dead. begin and met are for the goroutine of the request.
type need struct {
	now atomic.Pointer[context.Context]
	end context.CancelFunc // of now; nil: it never began
}

func (n *need) begin(ctx context.Context) {
	n.met()
	var now context.Context
	now, n.end = context.WithCancel(ctx)
	n.now.Store(&now)
}

// met ends the present one: the request has a connection, or wants none any more.
func (n *need) met() {
	if n.end != nil {
		n.end()
	}
}

// connect makes a connection for http.Transport. It is one that direct makes, and
// waited for in the same line: so that there are no more handshakes at a time than
// for short requests, and none begins for a request that has a connection by then.
func (g *generation) connect(ctx context.Context, _, _ string) (net.Conn, error) {
	if n, ok := ctx.Value(needKey{}).(*need); ok {
		ctx = *n.now.Load()
	}
	c, _, err := g.direct.wait(ctx, true)
	if err != nil {
		return nil, err
	}
	giveUpAfter(c.raw, 0) // who uploads may have to wait for the server to make room
	return &watchedConn{Conn: c.Conn, broken: g.direct.broken}, nil
}

// errBroke is of a connection that was used before; why it broke, http.Transport
// does not tell.
var errBroke = errors.New("the connection broke before an answer came")

// byTransport sends a request by HTTP/1.1 and http.Transport, and finds out
// whether anything of it was written: the connection knows. http.Transport sends
// what is safe again on its own if a connection that was used before breaks: once it
// was written, the attempt is asked whether that may be.
func (g *generation) byTransport(t *http.Transport, req *http.Request, a *attempt) (_ *http.Response, _ progress, err error) {
	req, settle := informed(req)
	defer func() { settle(err) }()
	var conn *watchedConn
	var before int64
	p := unsent
	note := func() {
		if conn != nil && conn.written.Load() != before {
			p = sent
		}
	}
	n, client := new(need), req.Context()
	defer n.met()
	ctx, cancel := context.WithCancelCause(client)
	ctx = httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{
		GetConn: func(string) { n.begin(client) },
		GotConn: func(got httptrace.GotConnInfo) {
			n.met()
			note() // on the connection before this one
			if conn, _ = got.Conn.(*watchedConn); conn != nil {
				before = conn.written.Load()
			}
			if p == sent && !a.repeats(errBroke) {
				cancel(errBroke)
				_ = got.Conn.Close() // nothing is written before that is noticed
			}
		},
	})
	req = req.WithContext(context.WithValue(ctx, needKey{}, n))
	req.Header = withoutRepetition(req.Header)
	res, err := t.RoundTrip(req)
	switch {
	case err == nil && res.StatusCode == http.StatusSwitchingProtocols && t != g.once:
		_ = res.Body.Close()
		return nil, answering, ErrSwitched
	case err == nil:
		return res, answering, nil
	}
	note()
	return nil, p, err
}

// repeating are headers for which net/http sends a request of any method again
// on its own. Spelled otherwise they say the same to a server and nothing to
// net/http.
var repeating = [...][2]string{{"Idempotency-Key", "idempotency-key"}, {"X-Idempotency-Key", "x-idempotency-key"}}

func withoutRepetition(h http.Header) http.Header {
	for _, name := range repeating {
		if v, ok := h[name[0]]; ok {
			h = h.Clone()
			delete(h, name[0])
			h[name[1]] = v
		}
	}
	return h
}
