package transport

import "errors"

// ConnectError is a connection that could not be made: nothing was sent.
type ConnectError struct{ Err error }

func (e *ConnectError) Error() string { return e.Err.Error() }
func (e *ConnectError) Unwrap() error { return e.Err }

// StaleError is a connection that had carried requests before and broke without a
// byte of an answer. The server may have closed it while it was idle, so that the
// error says little about the endpoint.
type StaleError struct{ Err error }

func (e *StaleError) Error() string { return e.Err.Error() }
func (e *StaleError) Unwrap() error { return e.Err }

// RequestLineError is a client's fault: the method or query of its request has a
// character that must not appear in a request line (RFC 9112, 3), so that a server
// could read it as another request. Nothing was sent.
type RequestLineError struct{ text string }

func (e *RequestLineError) Error() string { return e.text }

// ErrSwitched is a server that switches to another protocol although the request did
// not ask for one: what it sends then could be taken for answers to other requests.
var ErrSwitched = errors.New("the server switched protocols without being asked")

var (
	// errSlow is the cause of contexts that end when the time to connect is over.
	errSlow = errors.New("the time to connect is over")
	// errNoHTTP2 is a server that does not speak HTTP/2.
	errNoHTTP2 = errors.New("the server does not speak HTTP/2")
	// errRetired is a pool after its connections have been replaced.
	errRetired = errors.New("the connections are no longer used")
	// errNoStreams is a server that accepts an HTTP/2 connection but no request on it.
	errNoStreams = &ConnectError{errors.New("the server accepted an HTTP/2 connection and permits no requests on it")}
)
