package serve

import (
	"crypto/tls"
	"crypto/x509"
	"log"
	"net"
	"net/http"
	"strings"
	"sync/atomic"
	"time"

	"portico/resource/authn"
	"portico/resource/serve/socket"
)

// Times and sizes of connections.
const (
	// readHeaderTimeout is how long a client may take for the TLS handshake, and for the
	// header of a request.
	readHeaderTimeout = 10 * time.Second
	// idleTimeout ends kept connections of network clients. Sockets have none:
	// their clients are few, known, and must not lose a race with it.
	idleTimeout = 90 * time.Second
	// streamWindow lets most bodies arrive without waiting for the window to
	// open; connectionWindow is the largest that net/http takes.
	streamWindow     = 256 << 10
	connectionWindow = 4<<20 - 1
	// maxHeader bounds the header of a request, in bytes: a bearer token with hundreds
	// of groups, or the Impersonate-Group of a thousand, fits. A stranger makes the
	// server keep that much for readHeaderTimeout. One that is longer is a 431, or the
	// end of an HTTP/2 connection. On a unix socket, whose clients are known, a header
	// may have maxSocketHeader: what a gateway adds to a header that it took must fit.
	maxHeader       = 64 << 10
	maxSocketHeader = 1 << 20
	// maxFrame bounds the frames that an HTTP/2 client may send, in bytes. Every
	// connection keeps a buffer as large as the largest that it got, of a stranger
	// too, and net/http would take 1 MiB; this is the least that the protocol
	// allows.
	maxFrame = 16 << 10
	// A client that says nothing is asked for a sign of life after pingAfter, and
	// given up after pingTimeout more: one that has vanished would otherwise hold
	// its watches until the kernel gives up sending to it, a quarter of an hour.
	pingAfter   = 30 * time.Second
	pingTimeout = 15 * time.Second
)

// openDoor binds an address and makes the server behind it.
func (s *Server) openDoor(address *ListenAddress) (*door, error) {
	server, err := s.newHTTPServer(address)
	if err != nil {
		return nil, err
	}
	path, isSocket := address.socket()
	if !isSocket {
		listener, err := net.Listen("tcp", address.Address)
		if err != nil {
			return nil, err
		}
		return &door{listener: listener, server: server}, nil
	}
	listener, err := socket.Listen(path, address.PeerUID, s.log)
	if err != nil {
		return nil, err
	}
	server.IdleTimeout, server.MaxHeaderBytes = 0, maxSocketHeader
	server.ConnContext = socket.ConnContext
	return &door{listener: listener, server: server}, nil
}

func (s *Server) newHTTPServer(address *ListenAddress) (*http.Server, error) {
	streams := int(address.MaxConcurrentStreams)
	if streams == 0 {
		streams = DefaultMaxConcurrentStreams
	}
	server := &http.Server{
		Handler: s.handler,
		// OPTIONS * is a request like any other.
		DisableGeneralOptionsHandler: true,
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
	server.ConnContext, server.ConnState = withClient, stateOfClient
	pair, err := authn.NewKeyPair(address.CertFile, address.KeyFile)
	if err != nil {
		return nil, err
	}
	server.TLSConfig = tlsConfig(pair, address.ClientCAs)
	return server, nil
}

// tlsConfig asks every client for a certificate and takes every answer: one
// that cannot be verified shall get a 401 that says so, not a broken
// handshake.
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

// serverLog takes what net/http has to say. Failed handshakes are counted: port
// scanners and clients without our authority make many of them.
type serverLog struct{ s *Server }

func (l *serverLog) Write(line []byte) (int, error) {
	text := strings.TrimSpace(string(line))
	if strings.HasPrefix(text, "http: TLS handshake error") {
		l.s.metrics.HandshakeFailed()
		l.s.log.Debug("TLS handshake failed", "message", text)
	} else {
		l.s.log.Warn("HTTP server", "message", text)
	}
	return len(line), nil
}
