package upstream

import (
	"crypto/x509"
	"errors"
	"fmt"
	"net/http"
	"strings"

	"portico/gateway/upstream/retry"
	"portico/gateway/upstream/transport"
)

// Types of the rooms that callers of this package use.
type (
	Trust            = transport.Trust
	RequestLineError = transport.RequestLineError
	BodyError        = retry.BodyError
)

// ErrSwitched is transport.ErrSwitched.
var ErrSwitched = transport.ErrSwitched

// ParsePool is transport.ParsePool.
func ParsePool(pem []byte) (*x509.CertPool, error) { return transport.ParsePool(pem) }

// UnprocessedError is a request of which no server has taken anything: it may be sent
// again, whatever it does.
type UnprocessedError struct{ err error }

func (e *UnprocessedError) Error() string { return e.err.Error() }
func (e *UnprocessedError) Unwrap() error { return e.err }

// noEndpoint is the error of a request for which there is no endpoint: nothing was sent.
func noEndpoint(why error) error {
	return &UnprocessedError{fmt.Errorf("no endpoint of the server can be sent requests: %w", why)}
}

// ErrAllDrained is the error if all endpoints have the weight 0.
var ErrAllDrained = errors.New("all of them have the weight 0")

var (
	errNoEndpoints = errors.New("it has none")
	// errHeaderTimeout ends an attempt if the answer does not begin in time.
	errHeaderTimeout = errors.New("the server did not begin to answer in time")
	// errSilent ends requests to an endpoint that does not answer its checks.
	errSilent = errors.New("the endpoint no longer answers")
)

// AnswerError is an answer that says that the endpoint failed.
type AnswerError struct{ Code int }

func (e *AnswerError) Error() string {
	if e.Code == http.StatusLoopDetected {
		return "bad status: 508 Loop Detected: the address leads back to this gateway"
	}
	return fmt.Sprintf("bad status: %d", e.Code)
}

// OverloadError is a request that found the concurrency limit reached and the queue
// full: nothing was sent.
type OverloadError struct{}

func (*OverloadError) Error() string {
	return "too many requests to the server are in progress, please try again later"
}

// IsUnprocessed reports whether no server has taken anything of the request that failed
// with err: nothing was sent, or the server said that it did not begin with it.
func IsUnprocessed(err error) bool { return is[*UnprocessedError](err) }

// is reports whether an error, or one that it wraps, has a type.
func is[E error](err error) bool {
	_, ok := errors.AsType[E](err)
	return ok
}

// largeHeader is the size of a request's header, in bytes, that every server is
// expected to take. Some refuse a larger one by closing the connection or the stream: a
// client that sends such requests must not get endpoints ejected.
const largeHeader = 8 << 10

// hasLargeHeader reports whether an endpoint may have failed a request for its header
// alone.
func hasLargeHeader(req *http.Request) bool {
	n := len(req.Method) + len(req.URL.Path) + len(req.URL.RawQuery) + len(req.Host)
	for name, values := range req.Header {
		for _, v := range values {
			n += len(name) + len(v) + len(": \r\n")
		}
	}
	return n > largeHeader
}

// maxErrorText bounds the text of errors, in bytes: net/http quotes malformed lines, and
// errors go to logs, clients and the status of endpoints.
const maxErrorText = 1024

// bounded bounds the text of an error.
func bounded(err error) error {
	text := err.Error()
	if len(text) <= maxErrorText {
		return err
	}
	return &boundedError{err: err, text: strings.ToValidUTF8(text[:maxErrorText], "") + "..."}
}

type boundedError struct {
	err  error
	text string
}

func (e *boundedError) Error() string { return e.text }
func (e *boundedError) Unwrap() error { return e.err }
