package serve

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"sync"
	"time"

	"portico/resource/authn"
	"portico/resource/fairshare"
)

const (
	// longShutdownTimeout is the time within which long-running requests end at shutdown,
	// spread over it so that their clients do not reconnect all at once.
	longShutdownTimeout = 5 * time.Second
	// holdTimeout is how long connections wait at the start for a server that cannot answer
	// yet, which is asked every holdInterval. Then requests get errors that say what is missing.
	holdTimeout  = 5 * time.Second
	holdInterval = 5 * time.Millisecond
	// slowDrain is the time after which a line of the log says what a shutdown waits for.
	slowDrain = time.Second
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

// New checks the configuration; it binds no address.
func New(cfg Config) (*Server, error) {
	switch {
	case cfg.Chain == nil:
		return nil, errors.New("make server: no chain")
	case len(cfg.Listen) == 0:
		return nil, errors.New("make server: no address to listen on")
	}
	if err := CheckAddresses(cfg.Listen, cfg.Probe); err != nil {
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
		files = append(files[:len(files):len(files)], address.TLS.files()...)
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

// Addresses returns the bound addresses, in the order of the configuration, without that for
// probes.
func (s *Server) Addresses() []net.Addr {
	s.mu.Lock()
	defer s.mu.Unlock()
	var addresses []net.Addr
	for _, l := range s.listeners {
		if !l.probe {
			addresses = append(addresses, l.Addr())
		}
	}
	return addresses
}

// InFlight returns the limits of reads and of writes in flight. They may be set while the server
// runs.
func (s *Server) InFlight() (reads, writes *fairshare.Limit) { return s.cfg.Chain.InFlight() }

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
			if !l.probe {
				s.hold(ctx)
			}
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

// hold returns once requests can be answered, after holdTimeout, or when ctx ends.
func (s *Server) hold(ctx context.Context) {
	if s.cfg.Answers == nil {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, holdTimeout)
	defer cancel()
	tick := time.NewTicker(holdInterval)
	defer tick.Stop()
	for !s.cfg.Answers() {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
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

// shutdown ends the server in order: it stops being ready; from half of the delay on, when load
// balancers know that, connections end with the responses on them, so that clients open others
// elsewhere; after the delay new requests are rejected; requests in flight have time to finish; long-running ones end, spread over some
// time; connections are closed, and the requests that end with them are waited for.
func (s *Server) shutdown() {
	lifecycle := s.cfg.Chain.Lifecycle()
	s.cfg.Health.shuttingDown.Store(true)
	s.log.Info("shutting down", "delay", s.cfg.ShutdownDelay)
	<-time.After(s.cfg.ShutdownDelay / 2)
	lifecycle.Leave()
	<-time.After(s.cfg.ShutdownDelay / 2)

	lifecycle.Reject()
	shortDone := lifecycle.Short.Close()
	slow := time.AfterFunc(slowDrain, func() {
		s.log.Info("waiting for requests in flight", "requests", lifecycle.Short.Count(), "atMost", s.cfg.ShutdownTimeout)
	})
	select {
	case <-shortDone:
	case <-time.After(s.cfg.ShutdownTimeout):
		s.log.Warn("gave up on requests in flight", "requests", lifecycle.Short.Count(), "waited", s.cfg.ShutdownTimeout)
	}
	slow.Stop()
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
