package serve

import (
	"cmp"
	"fmt"
	"log"
	"net"
	"net/http"
	"time"

	"portico/resource/serve/inflight"
	"portico/resource/serve/socket"
)

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
	// maxSocketHeader bounds the header of a request on a unix socket: one that the gateway
	// accepted must fit with what it adds.
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

// listener is a bound address and its HTTP server.
type listener struct {
	net.Listener
	server *http.Server
	probe  bool // see Config.Probe
}

// bindAll binds the addresses. It returns those that it bound also with an error.
func (s *Server) bindAll() (listeners []*listener, err error) {
	for i := range s.cfg.Listen {
		bound, err := s.bind(&s.cfg.Listen[i])
		listeners = append(listeners, bound...)
		if err != nil {
			return listeners, fmt.Errorf("listen on %s: %w", s.cfg.Listen[i].Address, err)
		}
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

// bind binds the sockets of an address and makes their HTTP servers. It returns those that it
// bound also with an error.
func (s *Server) bind(address *ListenAddress) (listeners []*listener, err error) {
	sockets, err := s.sockets(address)
	if err != nil {
		return nil, err
	}
	for _, bound := range sockets {
		l := &listener{Listener: bound}
		listeners = append(listeners, l)
		if l.server, err = s.newHTTPServer(address, bound.Addr().Network() == "unix"); err != nil {
			return listeners, err
		}
	}
	return listeners, nil
}

// sockets returns the listening sockets of an address.
func (s *Server) sockets(address *ListenAddress) ([]net.Listener, error) {
	if name, ok := address.inherited(); ok {
		return socket.ListenInherited(name, address.PeerUID, s.log)
	}
	var bound net.Listener
	var err error
	if path, ok := address.socketPath(); ok {
		bound, err = socket.Listen(path, address.PeerUID, s.log)
	} else {
		bound, err = socket.ListenTCP(address.Address, address.SharePort)
	}
	if err != nil {
		return nil, err
	}
	return []net.Listener{bound}, nil
}

// newHTTPServer returns the HTTP server of a socket.
func (s *Server) newHTTPServer(address *ListenAddress, isUnix bool) (*http.Server, error) {
	streams := int(address.MaxConcurrentStreams)
	if streams == 0 {
		streams = DefaultMaxConcurrentStreams
	}
	server := &http.Server{
		Handler:                      s.cfg.Chain,
		DisableGeneralOptionsHandler: true, // OPTIONS * passes the filters too
		ReadHeaderTimeout:            readHeaderTimeout,
		MaxHeaderBytes:               cmp.Or(address.MaxHeaderBytes, DefaultMaxHeaderBytes),
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
	switch {
	case isUnix:
		server.Protocols.SetUnencryptedHTTP2(true)
		server.IdleTimeout, server.MaxHeaderBytes = 0, maxSocketHeader
		server.ConnContext = socket.ConnContext
		return server, nil
	case address.TLS.CertFile == "":
		return nil, ErrNoCertificate
	}
	protocols := []string{"http/1.1"}
	if !address.DisableHTTP2 {
		server.Protocols.SetHTTP2(true)
		protocols = []string{"h2", "http/1.1"}
	}
	server.ConnContext, server.ConnState = inflight.ConnContext, inflight.ConnState
	address.TLS.warn(s.log)
	var err error
	server.TLSConfig, err = address.TLS.config(address.ClientCAs, protocols...)
	return server, err
}
