package serve

import (
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"time"

	"golang.org/x/net/netutil"

	"portico/resource/serve/metrics"
)

// Bounds of the listener for probes, which knows no user: whatever reaches it can take so
// much and no more.
const (
	probeConnections = 64
	probeHeader      = 8 << 10
	probeReadTimeout = 5 * time.Second
	// probeWriteTimeout is long enough for the metrics of a large installation.
	probeWriteTimeout = 30 * time.Second
)

// validProbe checks an address of Config.Probe.
func validProbe(address string) error {
	if address == "" {
		return nil
	}
	if _, _, err := net.SplitHostPort(address); err != nil {
		return fmt.Errorf("--probe-listen=%s: must have the form host:port", address)
	}
	return nil
}

// bindProbe binds the address for probes.
func (s *Server) bindProbe() (*listener, error) {
	bound, err := net.Listen("tcp", s.cfg.Probe)
	if err != nil {
		var op *net.OpError
		if errors.As(err, &op) {
			err = op.Err
		}
		return nil, fmt.Errorf("--probe-listen=%s: %w; choose another address", s.cfg.Probe, err)
	}
	return &listener{probe: true, Listener: netutil.LimitListener(bound, probeConnections), server: &http.Server{
		Handler:     probeHandler(s.cfg.Health, s.cfg.Chain.Metrics().Handler()),
		ReadTimeout: probeReadTimeout, WriteTimeout: probeWriteTimeout, IdleTimeout: idleTimeout,
		MaxHeaderBytes: probeHeader, ErrorLog: log.New(io.Discard, "", 0),
	}}, nil
}

// probeHandler serves health and metrics to GET and HEAD, and nothing else.
func probeHandler(health *Health, series http.Handler) http.Handler {
	mux := http.NewServeMux()
	for _, endpoint := range endpoints {
		mux.Handle("GET /"+endpoint, health)
		mux.Handle("GET /"+endpoint+"/", health)
	}
	mux.Handle("GET /metrics", series)
	mux.Handle("GET "+metrics.PathSLIs, health.results.Handler())
	return mux
}
