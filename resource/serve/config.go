package serve

import (
	"crypto/x509"
	"errors"
	"log/slog"
	"net/http"
	"strings"
	"time"

	"portico/resource"
	"portico/resource/audit"
	"portico/resource/authn"
	"portico/resource/authz"
	"portico/resource/fairshare"
	"portico/resource/serve/metrics"
	"portico/resource/tracing"
)

// Defaults of Config (contract 0.2, 11.5).
const (
	DefaultRequestTimeout       = 60 * time.Second
	DefaultShutdownTimeout      = 60 * time.Second
	DefaultLongShutdownTimeout  = 5 * time.Second
	DefaultMaxInFlight          = 400
	DefaultMaxMutatingInFlight  = 200
	DefaultMaxConcurrentStreams = 100
)

// Config is what a server needs.
type Config struct {
	// Name is the process's name in its log.
	Name string
	// Listen are the addresses to listen on; at least one.
	Listen []ListenAddress
	// Handler gets the requests that passed the filters. Required.
	Handler http.Handler
	// Authenticator finds out who makes a request. Required.
	Authenticator authn.Authenticator
	// Refuse is asked about every request before authentication; its error is the
	// answer, and a Status. It may change the request's header. nil: none is refused.
	Refuse func(r *http.Request) error
	// IdentityHeaders are stripped from requests besides X-Remote-*: those that
	// Authenticator reads from a front proxy of another kind.
	IdentityHeaders authn.HeaderNames
	// Authorizer is asked about every request; nil: what is authenticated is
	// allowed.
	Authorizer authz.Authorizer
	// Impersonation wraps what comes after authentication; nil: nothing does.
	Impersonation func(next http.Handler) http.Handler
	// Complete reports whether all paths are installed; until then an unknown
	// one is a 503. nil: they are.
	Complete func() bool
	// LongRunning reports whether a request has no deadline that by its Action
	// would have one. It is asked before anybody is authenticated. nil: none.
	LongRunning func(r *http.Request, a *resource.Action) bool
	// Health learns that the server is shutting down; it is the one that the
	// handler serves. nil: nobody is told.
	Health *Health
	// Metrics counts the requests; it is the one that the handler serves. nil:
	// nobody sees the numbers.
	Metrics *metrics.Metrics
	// AccessLog records every request that has ended; nil: none does. It runs with the
	// server and ends after the last request.
	AccessLog RequestLog
	// Audit audits requests; nil: nobody does.
	Audit *audit.Auditor
	// Tracer has requests leave spans; nil: what clients say of traces is passed
	// on, and nothing else happens.
	Tracer *tracing.Tracer
	// TrustsTrace reports whether it counts what the user says about sampling;
	// nil: it does, for who is behind a server that has judged it.
	TrustsTrace func(user *resource.User) bool
	// Certificates are the files whose end is warned of, in the log and in the
	// verbose form of /readyz, and shown as a metric, beside the serving
	// certificates of Listen.
	Certificates []authn.CertificateFile
	// Logger, nil: slog.Default().
	Logger *slog.Logger

	// RequestTimeout is the longest that a request may take which is not
	// long-running; 0: DefaultRequestTimeout.
	RequestTimeout time.Duration
	// Ahead is how much earlier than asked for the time of a request is up, but no
	// more than a tenth of it: for a server behind another that goes by the same
	// time, and would cut off the answer. 0: the time is as asked for.
	Ahead time.Duration
	// MaxInFlight and MaxMutatingInFlight bound the reads and writes at work, of which
	// one user gets three quarters at most; 0: the defaults; below 0: no bound.
	MaxInFlight, MaxMutatingInFlight int
	// MaxLongRunning and MaxLongRunningPerUser bound the long-running requests, in all
	// and of one user, which gets three quarters of all at most; 0: no bound. Streams of
	// discovery are bounded apart from them.
	MaxLongRunning, MaxLongRunningPerUser int
	// Connections is the limit that users share of the connections of network clients;
	// nil: NewConnectionLimit.
	Connections *fairshare.Limit
	// ManyUsers: connections carry the requests of many users, and those on which users
	// are authenticated are not limited.
	ManyUsers bool
	// ShutdownDelay is how long the server goes on as if nothing had happened,
	// but not ready, for load balancers to notice; 0: not at all.
	ShutdownDelay time.Duration
	// ShutdownTimeout is how long shutdown waits for requests at work that are
	// not long-running; 0: DefaultShutdownTimeout.
	ShutdownTimeout time.Duration
	// LongShutdownTimeout is within what time long-running requests are ended
	// after that, 200 a second or faster, so that their clients do not all come
	// back at once; 0: DefaultLongShutdownTimeout; below 0: all at once.
	LongShutdownTimeout time.Duration
	// GoawayChance is the chance, between 0 and 0.02, that a request has its HTTP/2
	// connection ended after what is under way on it, so that the client connects
	// anew and a load balancer gets to choose again; 0: never.
	GoawayChance float64
}

// ListenAddress is one address to listen on.
type ListenAddress struct {
	// Address is host:port, or unix:// and the path of a socket. An existing
	// socket is replaced if nobody listens on it; its mode is 0600.
	Address string
	// CertFile and KeyFile are the server's certificate, read again when they
	// change. Required for host:port; a unix socket without them is plain.
	CertFile, KeyFile string
	// ClientCAs are named to clients as the authorities to show certificates of;
	// nil: none is named. Every client is asked for a certificate and none is
	// needed; judging it is the Authenticator's.
	ClientCAs func() *x509.CertPool
	// MaxConcurrentStreams bounds the requests at a time on one HTTP/2
	// connection; 0: DefaultMaxConcurrentStreams. A server behind the gateway,
	// whose connections carry the watches of many clients, needs 1000.
	MaxConcurrentStreams uint32
	// PeerUID, for a unix socket, has connections of processes dropped that do
	// not run under this process's effective uid.
	PeerUID bool
}

const unixPrefix = "unix://"

// socket returns the path of a unix socket; false for another address.
func (a *ListenAddress) socket() (path string, ok bool) {
	return strings.CutPrefix(a.Address, unixPrefix)
}

func (a *ListenAddress) validate() error {
	_, isSocket := a.socket()
	switch {
	case a.Address == "":
		return errors.New("the address is empty")
	case (a.CertFile == "") != (a.KeyFile == ""):
		return errors.New("certificate and key are only good together")
	case !isSocket && a.CertFile == "":
		return errors.New("a network address needs a certificate")
	case !isSocket && a.PeerUID:
		return errors.New("the uid of a peer is known on unix sockets only")
	}
	return nil
}

// withDefaults returns the configuration with nothing left open.
func (c Config) withDefaults() Config {
	if c.Logger == nil {
		c.Logger = slog.Default()
	}
	if c.Metrics == nil {
		c.Metrics = metrics.New()
	}
	if c.Health == nil {
		c.Health = NewHealth()
	}
	if c.RequestTimeout == 0 {
		c.RequestTimeout = DefaultRequestTimeout
	}
	if c.ShutdownTimeout == 0 {
		c.ShutdownTimeout = DefaultShutdownTimeout
	}
	if c.LongShutdownTimeout == 0 {
		c.LongShutdownTimeout = DefaultLongShutdownTimeout
	}
	if c.Connections == nil {
		c.Connections = NewConnectionLimit()
	}
	if c.MaxInFlight == 0 {
		c.MaxInFlight = DefaultMaxInFlight
	}
	if c.MaxMutatingInFlight == 0 {
		c.MaxMutatingInFlight = DefaultMaxMutatingInFlight
	}
	return c
}
