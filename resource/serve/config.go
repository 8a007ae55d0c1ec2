package serve

import (
	"crypto/x509"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"time"

	"portico/resource/authn"
	"portico/resource/serve/filter"
)

// Defaults of Config and ListenAddress.
const (
	DefaultShutdownTimeout      = 60 * time.Second
	DefaultMaxConcurrentStreams = 100
	// DefaultMaxHeaderBytes holds a bearer token with hundreds of groups, or Impersonate-Group a
	// thousand times.
	DefaultMaxHeaderBytes = 64 << 10
)

// Config of a Server.
type Config struct {
	// Name is the process's name in its log.
	Name string
	// Listen are the addresses to listen on; at least one.
	Listen []ListenAddress
	// Probe is an address, host:port, at which health and metrics are served over plain HTTP
	// to clients without credentials, from Listen until the end of the shutdown; "": none.
	Probe string
	// Chain serves the requests. Required.
	Chain *filter.Chain
	// Answers reports whether requests can be answered. Until then, for at most holdTimeout,
	// connections wait, except those for probes. Default: at once.
	Answers func() bool
	// Health reports that the server is shutting down; the Chain's handler serves it.
	// Default NewHealth().
	Health *Health
	// Certificates are files of certificates. Their expiry is logged, shown by the verbose form
	// of /readyz and exported as a metric, as that of the certificates of Listen.
	Certificates []authn.CertificateFile
	// Logger, nil: slog.Default().
	Logger *slog.Logger

	// ShutdownDelay is how long the server continues after it is no longer ready, for
	// load balancers to notice. Default 0.
	ShutdownDelay time.Duration
	// ShutdownTimeout is how long shutdown waits for requests that are not
	// long-running. Default DefaultShutdownTimeout.
	ShutdownTimeout time.Duration
}

// ListenAddress is an address to listen on.
type ListenAddress struct {
	// Address is host:port, unix:// and the path of a socket, or systemd: and the name of
	// sockets of either kind that systemd passes. A unix socket that is not in use is
	// replaced; its mode is 0600.
	Address string
	// TLS has the server's certificate, which is required for TCP. Unix sockets have no TLS.
	TLS TLS
	// ClientCAs are the authorities that the server names to clients for their
	// certificates; nil: none. Every client is asked for a certificate and none is
	// required; the Authenticator verifies it.
	ClientCAs func() *x509.CertPool
	// MaxConcurrentStreams bounds the concurrent requests on an HTTP/2 connection.
	// Default DefaultMaxConcurrentStreams. A server behind the gateway needs more: each of
	// its connections carries the watches of many clients.
	MaxConcurrentStreams uint32
	// DisableHTTP2 leaves HTTP/1.1 as the only protocol of a network address.
	DisableHTTP2 bool
	// MaxHeaderBytes bounds the header of a request on a network address: an unauthenticated client
	// can make the server hold that much for readHeaderTimeout. A longer header is a 431, or ends
	// an HTTP/2 connection. Default DefaultMaxHeaderBytes.
	MaxHeaderBytes int
	// SharePort lets other processes of this user listen on the same host:port, SO_REUSEPORT. It has no effect on
	// other addresses.
	SharePort bool
	// PeerUID closes connections of unix sockets from processes that do not run under
	// this process's effective uid.
	PeerUID bool
}

const (
	unixPrefix    = "unix://"
	systemdPrefix = "systemd:"
)

// ErrNoCertificate refuses a network address without TLS.
var ErrNoCertificate = errors.New("a network address needs a certificate (--tls-cert-file and --tls-private-key-file)")

// socketPath returns the path of a unix socket; false for another address.
func (a *ListenAddress) socketPath() (path string, ok bool) {
	return strings.CutPrefix(a.Address, unixPrefix)
}

// inherited returns the name of sockets that systemd passes; false for another address.
func (a *ListenAddress) inherited() (name string, ok bool) {
	return strings.CutPrefix(a.Address, systemdPrefix)
}

func (a *ListenAddress) validate() error {
	_, isSocket := a.socketPath()
	name, isInherited := a.inherited()
	switch {
	case isInherited && name == "":
		return errors.New("the name of the socket is missing, as in systemd:portico.socket")
	case isInherited && (a.TLS.CertFile == "") == (a.TLS.KeyFile == ""):
		return nil // its kind is not known yet
	case a.Address == "":
		return errors.New("the address is empty")
	case (a.TLS.CertFile == "") != (a.TLS.KeyFile == ""):
		return errors.New("certificate and key must be given together")
	case !isSocket && a.TLS.CertFile == "":
		return ErrNoCertificate
	}
	return nil
}

// CheckAddresses returns what New refuses in addresses, and in the files of their certificates.
func CheckAddresses(listen []ListenAddress, probe string) error {
	for _, address := range listen {
		if err := address.validate(); err != nil {
			return fmt.Errorf("listen on %q: %w", address.Address, err)
		}
		if address.TLS.CertFile == "" {
			continue
		}
		if _, err := address.TLS.open(); err != nil {
			return fmt.Errorf("listen on %q: %w", address.Address, err)
		}
	}
	return validProbe(probe)
}

// complete fills in the defaults.
func (c *Config) complete() {
	if c.Logger == nil {
		c.Logger = slog.Default()
	}
	if c.Health == nil {
		c.Health = NewHealth()
	}
	if c.ShutdownTimeout == 0 {
		c.ShutdownTimeout = DefaultShutdownTimeout
	}
}
