package watchstream

import (
	"bufio"
	"context"
	"fmt"
	"net"
	"net/http"
	"strings"
	"time"

	"golang.org/x/net/websocket"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"portico/resource"
	"portico/resource/response"
)

const (
	// webSocketWrite bounds the sending of one message.
	webSocketWrite = 30 * time.Second
	// webSocketRead is the largest message that a client may send, in bytes; messages are
	// ignored.
	webSocketRead = 4096
)

// isWebSocket reports whether the request asks for a WebSocket (RFC 6455, 4.1).
func isWebSocket(r *http.Request) bool {
	return strings.EqualFold(r.Header.Get("Upgrade"), "websocket") &&
		strings.Contains(strings.ToLower(r.Header.Get("Connection")), "upgrade")
}

// serveWebSocket writes one message for each event, text for JSON and binary for protobuf
// (docs/wire.md 5.4). Messages of the client are read and dropped, which also answers pings;
// the watch ends when the client closes the connection or violates the protocol.
func (s *stream) serveWebSocket(ctx context.Context, w http.ResponseWriter, r *http.Request, watcher resource.Watcher) error {
	conn, rw, err := http.NewResponseController(w).Hijack()
	if err != nil {
		return apierrors.NewBadRequest(fmt.Sprintf("this connection cannot be upgraded: %v", err))
	}
	defer conn.Close()
	// The deadlines of the request do not apply to the watch.
	if err := conn.SetDeadline(time.Time{}); err != nil {
		return nil
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	server := websocket.Server{
		Handshake: chooseProtocol,
		Handler: func(ws *websocket.Conn) {
			ws.MaxPayloadBytes = webSocketRead
			done := make(chan struct{})
			go func() {
				defer close(done)
				defer cancel()
				var ignored []byte
				for websocket.Message.Receive(ws, &ignored) == nil {
				}
			}()
			ws.PayloadType = websocket.BinaryFrame
			if s.Format.Media == response.JSON {
				ws.PayloadType = websocket.TextFrame
			}
			s.send = (&socket{ws, webSocketWrite}).send
			s.run(ctx, watcher)
			_ = ws.SetWriteDeadline(time.Now().Add(webSocketWrite))
			_ = ws.Close()
			<-done
		},
	}
	server.ServeHTTP(hijacked{w, conn, rw}, r)
	return nil
}

// chooseProtocol accepts the first subprotocol that the client offers. Subprotocols have no
// effect, but browsers close a connection on which none of theirs was accepted.
// Authentication has removed a token that was sent as a subprotocol.
func chooseProtocol(config *websocket.Config, _ *http.Request) error {
	if len(config.Protocol) > 1 {
		config.Protocol = config.Protocol[:1]
	}
	return nil
}

// socket is the sending side of a WebSocket.
type socket struct {
	*websocket.Conn
	timeout time.Duration // of one message
}

// send sends each frame as a message. There is no deadline between messages: it would apply
// to the answers to pings too.
func (s *socket) send(frames []byte, ends []int) error {
	defer func() { _ = s.SetWriteDeadline(time.Time{}) }()
	start := 0
	for _, end := range ends {
		if err := s.SetWriteDeadline(time.Now().Add(s.timeout)); err != nil {
			return err
		}
		if _, err := s.Write(frames[start:end]); err != nil {
			return err
		}
		start = end
	}
	return nil
}

// hijacked passes a hijacked connection to websocket.Server, which hijacks it itself and
// panics if that fails.
type hijacked struct {
	http.ResponseWriter
	conn net.Conn
	rw   *bufio.ReadWriter
}

func (h hijacked) Hijack() (net.Conn, *bufio.ReadWriter, error) { return h.conn, h.rw, nil }
