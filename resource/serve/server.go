package serve

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"log"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"portico/resource/authn"
	"portico/resource/serve/inflight"
	"portico/resource/serve/socket"
)

const (
	// longShutdownTimeout is the time within which long-running requests end at shutdown,
	// spread over it so that their clients do not reconnect all at once.
	longShutdownTimeout = 5 * time.Second
	// closeTimeout is how long connections have to close by themselves after their
	// requests have ended or were given up.
	closeTimeout = 2 * time.Second
	// abandonTimeout is how long requests that were given up have to end after their
	// connections are closed, so that logs have them.
	abandonTimeout = time.Second
)

// Server serves a Chain on its addresses.
type Server struct {
	cfg      Config
	log      *slog.Logger
	expiries *authn.Expiries

	mu        sync.Mutex // guards listeners
	listeners []*listener
}

// listener is a bound address and its HTTP server.
type listener struct {
	net.Listener
	server *http.Server
}

// New checks the configuration; it binds no address.
func New(cfg Config) (*Server, error) {
	switch {
	case cfg.Chain == nil:
		return nil, errors.New("make server: no chain")
	case len(cfg.Listen) == 0:
		return nil, errors.New("make server: no address to listen on")
	}
	for _, address := range cfg.Listen {
		if err := address.validate(); err != nil {
			return nil, fmt.Errorf("make server: listen on %q: %w", address.Address, err)
		}
	}
	if err := validProbe(cfg.Probe); err != nil {
		return nil, err
	}
	cfg.complete()
	s := &Server{cfg: cfg, log: cfg.Logger}
	if cfg.Name != "" {
		s.log = s.log.With("server", cfg.Name)
	}
	return s, nil
}

// watchExpiries exports the expiry of certificates.
func (s *Server) watchExpiries() (err error) {
	files := s.cfg.Certificates
	for _, address := range s.cfg.Listen {
		files = append(files[:len(files):len(files)], authn.CertificateFile{Usage: "serving", Path: address.CertFile})
	}
	if s.expiries, err = authn.NewExpiries(files...); err != nil {
		return fmt.Errorf("watch certificates: %w", err)
	}
	if err := s.cfg.Chain.Metrics().Registry().Register(s.expiries); err != nil {
		return fmt.Errorf("watch certificates: %w", err)
	}
	s.cfg.Health.AddWarnings(s.expiries.Warnings)
	return nil
}

// Listen binds all addresses, or none. Connections wait until Run, which calls Listen if it
// was not called. After Listen, Run must be called.
func (s *Server) Listen() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.listeners != nil {
		return nil
	}
	listeners, err := s.bindAll()
	if err != nil {
		for _, bound := range listeners {
			_ = bound.Close()
		}
		return err
	}
	s.listeners = listeners
	return s.watchExpiries()
}

// bindAll binds the addresses, that for probes last. It returns those that it bound also
// with an error.
func (s *Server) bindAll() (listeners []*listener, err error) {
	for i := range s.cfg.Listen {
		l, err := s.bind(&s.cfg.Listen[i])
		if err != nil {
			return listeners, fmt.Errorf("listen on %s: %w", s.cfg.Listen[i].Address, err)
		}
		listeners = append(listeners, l)
	}
	if s.cfg.Probe == "" {
		return listeners, nil
	}
	l, err := s.bindProbe()
	if err != nil {
		return listeners, err
	}
	return append(listeners, l), nil
}

// Addresses returns the bound addresses, in the order of the configuration, that for probes
// last.
func (s *Server) Addresses() []net.Addr {
	s.mu.Lock()
	defer s.mu.Unlock()
	var addresses []net.Addr
	for _, l := range s.listeners {
		addresses = append(addresses, l.Addr())
	}
	return addresses
}

// Run serves until ctx ends or an address fails, shuts down (see shutdown) and returns when
// that is done: nil after ctx, else the failure. It runs once.
func (s *Server) Run(ctx context.Context) error {
	if err := s.Listen(); err != nil {
		return err
	}
	defer s.runChain(ctx)()
	go s.expiries.Log(ctx, s.log)
	failures := make(chan error, len(s.listeners))
	var serving sync.WaitGroup
	for _, l := range s.listeners {
		serving.Go(func() {
			if err := s.serve(l); !errors.Is(err, http.ErrServerClosed) {
				failures <- fmt.Errorf("serve %s: %w", l.Addr(), err)
			}
		})
		s.log.Info("serving", "address", l.Addr().String())
	}
	var failed error
	select {
	case <-ctx.Done():
	case failed = <-failures:
		s.log.Error("listener failed, shutting down", "err", failed)
	}
	s.shutdown()
	serving.Wait()
	return failed
}

// runChain runs the Chain. end ends it after the last request and returns when it has
// delivered everything.
func (s *Server) runChain(ctx context.Context) (end func()) {
	ctx, cancel := context.WithCancel(context.WithoutCancel(ctx))
	var running sync.WaitGroup
	running.Go(func() { s.cfg.Chain.Run(ctx) })
	return func() {
		cancel()
		running.Wait()
	}
}

func (s *Server) serve(l *listener) error {
	if l.server.TLSConfig != nil {
		return l.server.ServeTLS(s.cfg.Chain.Connections().Listener(l.Listener), "", "")
	}
	return l.server.Serve(l.Listener)
}

// shutdown ends the server in order: it stops being ready; after a delay new requests are
// rejected; requests in flight have time to finish; long-running ones end, spread over some
// time; connections are closed, and the requests that end with them are waited for.
func (s *Server) shutdown() {
	lifecycle := s.cfg.Chain.Lifecycle()
	s.cfg.Health.shuttingDown.Store(true)
	s.log.Info("shutting down", "delay", s.cfg.ShutdownDelay)
	<-time.After(s.cfg.ShutdownDelay)

	lifecycle.Reject()
	shortDone := lifecycle.Short.Close()
	select {
	case <-shortDone:
	case <-time.After(s.cfg.ShutdownTimeout):
		s.log.Warn("gave up on requests in flight", "requests", lifecycle.Short.Count(), "waited", s.cfg.ShutdownTimeout)
	}
	longDone := lifecycle.Long.Close()
	lifecycle.Long.End(longShutdownTimeout)

	ctx, cancel := context.WithTimeout(context.Background(), closeTimeout)
	defer cancel()
	select {
	case <-longDone:
	case <-ctx.Done():
		s.log.Warn("long-running requests do not end", "requests", lifecycle.Long.Count())
	}
	for _, l := range s.listeners {
		if err := l.server.Shutdown(ctx); err != nil {
			_ = l.server.Close()
		}
	}
	limit := time.After(abandonTimeout)
	for _, done := range []<-chan struct{}{shortDone, longDone} {
		select {
		case <-done:
		case <-limit:
			s.log.Warn("requests did not end with their connections and are not logged", "requests", lifecycle.Short.Count()+lifecycle.Long.Count())
			return
		}
	}
	s.log.Info("shut down")
}

// Times and sizes of connections.
const (
	// readHeaderTimeout bounds the TLS handshake, and reading the header of a request.
	readHeaderTimeout = 10 * time.Second
	// idleTimeout ends idle connections of network clients. Those of unix sockets do not
	// end: their clients are known, and a request must not race with the end.
	idleTimeout = 90 * time.Second
	// streamWindow lets most bodies arrive without a window update; connectionWindow is
	// the largest that net/http accepts.
	streamWindow     = 256 << 10
	connectionWindow = 4<<20 - 1
	// maxHeader bounds the header of a request, in bytes: a bearer token with hundreds of
	// groups, or Impersonate-Group a thousand times. An unauthenticated client can make
	// the server hold that much for readHeaderTimeout. A longer header is a 431, or ends
	// an HTTP/2 connection. On a unix socket the bound is maxSocketHeader: a header that
	// the gateway accepted must fit with what it adds.
	maxHeader       = 64 << 10
	maxSocketHeader = 1 << 20
	// maxFrame bounds the frames of HTTP/2 clients, in bytes. Every connection keeps a
	// buffer as large as its largest frame, also for unauthenticated clients. net/http's
	// default is 1 MiB; this is the least that HTTP/2 permits.
	maxFrame = 16 << 10
	// A client that is silent for pingAfter gets a ping and has pingTimeout to answer.
	// One that has vanished would otherwise hold its watches until the kernel gives up,
	// a quarter of an hour.
	pingAfter   = 30 * time.Second
	pingTimeout = 15 * time.Second
)

// bind binds an address and makes its HTTP server.
func (s *Server) bind(address *ListenAddress) (*listener, error) {
	server, err := s.newHTTPServer(address)
	if err != nil {
		return nil, err
	}
	path, isSocket := address.socketPath()
	if !isSocket {
		bound, err := net.Listen("tcp", address.Address)
		if err != nil {
			return nil, err
		}
		return &listener{bound, server}, nil
	}
	bound, err := socket.Listen(path, address.PeerUID, s.log)
	if err != nil {
		return nil, err
	}
	server.IdleTimeout, server.MaxHeaderBytes = 0, maxSocketHeader
	server.ConnContext = socket.ConnContext
	return &listener{bound, server}, nil
}

func (s *Server) newHTTPServer(address *ListenAddress) (*http.Server, error) {
	streams := int(address.MaxConcurrentStreams)
	if streams == 0 {
		streams = DefaultMaxConcurrentStreams
	}
	server := &http.Server{
		Handler:                      s.cfg.Chain,
		DisableGeneralOptionsHandler: true, // OPTIONS * passes the filters too
		ReadHeaderTimeout:            readHeaderTimeout,
		MaxHeaderBytes:               maxHeader,
		IdleTimeout:                  idleTimeout,
		ErrorLog:                     log.New(&serverLog{s}, "", 0),
		Protocols:                    new(http.Protocols),
		HTTP2: &http.HTTP2Config{
			MaxConcurrentStreams:          streams,
			MaxReadFrameSize:              maxFrame,
			MaxReceiveBufferPerStream:     streamWindow,
			MaxReceiveBufferPerConnection: connectionWindow,
			SendPingTimeout:               pingAfter,
			PingTimeout:                   pingTimeout,
		},
	}
	server.Protocols.SetHTTP1(true)
	if address.CertFile == "" {
		server.Protocols.SetUnencryptedHTTP2(true)
		return server, nil
	}
	server.Protocols.SetHTTP2(true)
	server.ConnContext, server.ConnState = inflight.ConnContext, inflight.ConnState
	pair, err := authn.NewKeyPair(address.CertFile, address.KeyFile)
	if err != nil {
		return nil, err
	}
	server.TLSConfig = tlsConfig(pair, address.ClientCAs)
	return server, nil
}

// tlsConfig asks every client for a certificate and accepts every response: a certificate
// that cannot be verified is a 401 with a reason, not a failed handshake.
func tlsConfig(pair *authn.KeyPair, clientCAs func() *x509.CertPool) *tls.Config {
	base := &tls.Config{
		MinVersion:     tls.VersionTLS12,
		NextProtos:     []string{"h2", "http/1.1"},
		GetCertificate: pair.GetCertificate,
		ClientAuth:     tls.RequestClientCert,
	}
	if clientCAs == nil {
		return base
	}
	var last atomic.Pointer[tls.Config] // for the pool that it names
	config := base.Clone()
	config.GetConfigForClient = func(*tls.ClientHelloInfo) (*tls.Config, error) {
		pool := clientCAs()
		if c := last.Load(); c != nil && c.ClientCAs == pool {
			return c, nil
		}
		c := base.Clone()
		c.ClientCAs = pool
		last.Store(c)
		return c, nil
	}
	return config
}

// serverLog is the log of net/http. It counts failed handshakes, of which port scanners and
// clients without our authority make many.
type serverLog struct{ s *Server }

func (l *serverLog) Write(line []byte) (int, error) {
	text := strings.TrimSpace(string(line))
	if strings.HasPrefix(text, "http: TLS handshake error") {
		l.s.cfg.Chain.Metrics().HandshakeFailed()
		l.s.log.Debug("TLS handshake failed", "message", text)
	} else {
		l.s.log.Warn("HTTP server", "message", text)
	}
	return len(line), nil
}

// RunWith is Run for a server that depends on other parts of the process. The parts end
// after the server, which needs them for the requests that it drains; if they end first,
// the server ends too. It returns the server's error, or else theirs; the end of ctx is no
// error.
func (s *Server) RunWith(ctx context.Context, parts func(ctx context.Context) error) error {
	if err := s.Listen(); err != nil {
		return err
	}
	partsCtx, stop := context.WithCancel(context.WithoutCancel(ctx))
	defer stop()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	done := make(chan error, 1)
	go func() {
		defer cancel()
		done <- parts(partsCtx)
	}()
	err := s.Run(ctx)
	stop()
	if partsErr := <-done; err == nil && !errors.Is(partsErr, context.Canceled) {
		err = partsErr
	}
	return err
}
