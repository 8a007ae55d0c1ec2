package proxy

import (
	"bufio"
	"errors"
	"fmt"
	"net"
	"net/http"
	"strings"
	"time"

	"golang.org/x/net/http/httpguts"

	"portico/gateway/upstream"
)

// upgradeError is an answer to a request for another protocol that neither switches nor
// is an error.
type upgradeError struct{ code int }

func (e *upgradeError) Error() string {
	return fmt.Sprintf("invalid upgrade response: status code %d", e.code)
}

// upgrades reports whether the client asks for another protocol, other than HTTP or TLS:
// requests inside these would reach the server over the gateway's connection, with any
// identity that they claim. A request for these is answered in HTTP as it is
// (RFC 9110, 7.8).
func upgrades(h http.Header) bool {
	if !httpguts.HeaderValuesContainsToken(h["Connection"], "Upgrade") {
		return false
	}
	protocols := strings.Split(strings.Join(h["Upgrade"], ","), ",")
	for _, protocol := range protocols {
		name, _, _ := strings.Cut(strings.ToLower(strings.TrimSpace(protocol)), "/")
		switch name {
		case "", "http", "h2", "h2c", "h3", "tls":
			return false
		}
	}
	return true
}

// checkNotUpgraded checks the answer to a request that does not ask for another protocol.
func checkNotUpgraded(res *http.Response) error {
	if res.StatusCode == http.StatusSwitchingProtocols {
		return upstream.ErrSwitched
	}
	return modifyResponse(res)
}

// checkUpgraded checks the answer to a request that asks for another protocol.
func checkUpgraded(res *http.Response) error {
	if err := modifyResponse(res); err != nil {
		return err
	}
	if res.StatusCode < http.StatusBadRequest && res.StatusCode != http.StatusSwitchingProtocols {
		return &upgradeError{res.StatusCode}
	}
	if res.StatusCode == http.StatusSwitchingProtocols && !strings.EqualFold(res.Header.Get("Upgrade"), res.Request.Header.Get("Upgrade")) {
		// ReverseProxy would refuse it as well, and leave the connection open.
		return &upgradeError{res.StatusCode}
	}
	if res.StatusCode == http.StatusSwitchingProtocols {
		// As the answer to a POST it would get a Content-Length, which it must not have
		// (RFC 9110, 8.6).
		asked := *res.Request
		asked.Method, res.Request = http.MethodGet, &asked
	} else if res.Body != http.NoBody {
		res.Body = &pieces{ReadCloser: res.Body, answer: res}
	}
	return nil
}

// upgradeHandler handles requests that may leave HTTP. The client's connection is closed
// upstream.HalfOpen after the server's has ended.
type upgradeHandler struct{ http.Handler }

func (l upgradeHandler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	l.Handler.ServeHTTP(upgradeWriter{w}, r)
}

// upgradeWriter is the writer of such a request.
type upgradeWriter struct{ http.ResponseWriter }

// Unwrap lets http.ResponseController reach the server's own writer.
func (w upgradeWriter) Unwrap() http.ResponseWriter { return w.ResponseWriter }

func (w upgradeWriter) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	conn, rw, err := http.NewResponseController(w.ResponseWriter).Hijack()
	if err != nil {
		return nil, nil, err
	}
	return clientEnd{conn, rw.Reader}, rw, nil
}

// clientEnd is the connection to the client.
type clientEnd struct {
	net.Conn
	// early has bytes of the other protocol that a client sent with its request,
	// without waiting for the answer.
	early *bufio.Reader
}

// Read reads early first. It is for one goroutine.
func (c clientEnd) Read(p []byte) (int, error) {
	if n := c.early.Buffered(); n > 0 {
		return c.early.Read(p[:min(n, len(p))])
	}
	return c.Conn.Read(p)
}

// CloseWrite ends one direction, where the connection supports that, and the other after
// upstream.HalfOpen.
func (c clientEnd) CloseWrite() error {
	time.AfterFunc(upstream.HalfOpen, func() { _ = c.Close() })
	if half, ok := c.Conn.(interface{ CloseWrite() error }); ok {
		return half.CloseWrite()
	}
	return errors.ErrUnsupported
}
