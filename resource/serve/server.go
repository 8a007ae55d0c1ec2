package serve

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"sync"
	"time"

	"portico/resource/authn"
	"portico/resource/serve/metrics"
)

// closeTimeout is how long connections get to end by themselves once all
// requests are done or given up.
const closeTimeout = 2 * time.Second

// lastWords is how long requests that were given up get to end once their
// connections are gone, so that what is told of them is still taken.
const lastWords = time.Second

// Server serves one handler on some addresses.
type Server struct {
	cfg     Config
	log     *slog.Logger
	metrics *metrics.Metrics
	handler http.Handler
	life    life
	long    longRunning
	clients *connections
	// deadlines are the writers of requests that have one.
	deadlines deadlineWriters
	expiries  *authn.Expiries

	mu    sync.Mutex // guards doors
	doors []*door
}

// door is one address and the server behind it.
type door struct {
	listener net.Listener
	server   *http.Server
}

// New checks the configuration; it opens nothing.
func New(cfg Config) (*Server, error) {
	switch {
	case cfg.Handler == nil:
		return nil, errors.New("make server: no handler")
	case cfg.Authenticator == nil:
		return nil, errors.New("make server: no authenticator")
	case len(cfg.Listen) == 0:
		return nil, errors.New("make server: no address to listen on")
	case cfg.GoawayChance < 0 || cfg.GoawayChance > maxGoawayChance:
		return nil, fmt.Errorf("make server: the chance of GOAWAY is %v and must be between 0 and %v", cfg.GoawayChance, maxGoawayChance)
	}
	for _, address := range cfg.Listen {
		if err := address.validate(); err != nil {
			return nil, fmt.Errorf("make server: listen on %q: %w", address.Address, err)
		}
	}
	cfg = cfg.withDefaults()
	s := &Server{cfg: cfg, log: cfg.Logger, metrics: cfg.Metrics, long: newLongRunning(&cfg), clients: newConnections(descriptors(), cfg.Connections)}
	if cfg.Name != "" {
		s.log = s.log.With("server", cfg.Name)
	}
	s.deadlines.metrics = s.metrics
	s.handler = s.chain()
	return s, nil
}

// watchExpiries has the ends of certificates shown.
func (s *Server) watchExpiries() (err error) {
	files := s.cfg.Certificates
	for _, address := range s.cfg.Listen {
		files = append(files[:len(files):len(files)], authn.CertificateFile{Usage: "serving", Path: address.CertFile})
	}
	if s.expiries, err = authn.NewExpiries(files...); err != nil {
		return fmt.Errorf("watch certificates: %w", err)
	}
	if err := s.metrics.Registry().Register(s.expiries); err != nil {
		return fmt.Errorf("watch certificates: %w", err)
	}
	s.cfg.Health.AddWarnings(s.expiries.Warnings)
	return nil
}

// Handler returns the configured handler behind all filters, for requests that
// do not come through a listener.
func (s *Server) Handler() http.Handler { return s.handler }

// Listen binds all addresses, or none. Connections wait until Run. Run calls it
// if nobody has; whoever has calls Run.
func (s *Server) Listen() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.doors != nil {
		return nil
	}
	var doors []*door
	for i := range s.cfg.Listen {
		d, err := s.openDoor(&s.cfg.Listen[i])
		if err != nil {
			for _, open := range doors {
				_ = open.listener.Close()
			}
			return fmt.Errorf("listen on %s: %w", s.cfg.Listen[i].Address, err)
		}
		doors = append(doors, d)
	}
	s.doors = doors
	return s.watchExpiries()
}

// Addresses returns what Listen has bound, in the order of the configuration.
func (s *Server) Addresses() []net.Addr {
	s.mu.Lock()
	defer s.mu.Unlock()
	var addresses []net.Addr
	for _, d := range s.doors {
		addresses = append(addresses, d.listener.Addr())
	}
	return addresses
}

// Run serves until ctx ends or an address fails, then shuts down in order (see
// shutdown) and returns when that is done: nil after ctx, else what failed. It
// runs once.
func (s *Server) Run(ctx context.Context) error {
	if err := s.Listen(); err != nil {
		return err
	}
	defer s.observing(ctx)()
	go s.expiries.Log(ctx, s.log)
	failures := make(chan error, len(s.doors))
	var serving sync.WaitGroup
	for _, d := range s.doors {
		serving.Go(func() {
			if err := s.serve(d); !errors.Is(err, http.ErrServerClosed) {
				failures <- fmt.Errorf("serve %s: %w", d.listener.Addr(), err)
			}
		})
		s.log.Info("serving", "address", d.listener.Addr().String())
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

func (s *Server) serve(d *door) error {
	if d.server.TLSConfig != nil {
		return d.server.ServeTLS(clientListener{d.listener, s.clients}, "", "")
	}
	return d.server.Serve(d.listener)
}

// shutdown ends the server in order (contract 11.5): not ready any more, at
// once; after a delay new requests are turned away; those at work get time to
// finish; long-running ones are ended, spread over some time; connections are
// closed, and what ends with them is waited for, for a moment.
func (s *Server) shutdown() {
	s.cfg.Health.shuttingDown.Store(true)
	s.log.Info("shutting down", "delay", s.cfg.ShutdownDelay)
	<-time.After(s.cfg.ShutdownDelay)

	s.life.refusing.Store(true)
	shortDone := s.life.short.close()
	select {
	case <-shortDone:
	case <-time.After(s.cfg.ShutdownTimeout):
		s.log.Warn("gave up on requests at work", "requests", s.life.short.count(), "waited", s.cfg.ShutdownTimeout)
	}
	longDone := s.life.long.close()
	s.life.long.end(s.cfg.LongShutdownTimeout)

	ctx, cancel := context.WithTimeout(context.Background(), closeTimeout)
	defer cancel()
	select {
	case <-longDone:
	case <-ctx.Done():
		s.log.Warn("long-running requests do not end", "requests", s.life.long.count())
	}
	for _, d := range s.doors {
		if err := d.server.Shutdown(ctx); err != nil {
			_ = d.server.Close() // what did not end in time is cut
		}
	}
	limit := time.After(lastWords)
	for _, done := range []<-chan struct{}{shortDone, longDone} {
		select {
		case <-done:
		case <-limit:
			s.log.Warn("requests did not end with their connections; what they tell from now on is lost",
				"requests", s.life.short.count()+s.life.long.count())
			return
		}
	}
	s.log.Info("shut down")
}
