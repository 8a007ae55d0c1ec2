package handlers

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
)

const (
	// webSocketWrite bounds the sending of one message.
	webSocketWrite = 30 * time.Second
	// webSocketRead is the largest message a client may send, in bytes; none
	// means anything.
	webSocketRead = 4096
)

// isWebSocket reports whether the client wants to speak WebSocket.
func isWebSocket(r *http.Request) bool {
	return strings.EqualFold(r.Header.Get("Upgrade"), "websocket") &&
		strings.Contains(strings.ToLower(r.Header.Get("Connection")), "upgrade")
}

// overWebSocket runs the stream with one message for each event: text for JSON,
// else binary (docs/wire.md 5.4). What the client sends is read and dropped, which
// also answers pings; when it closes, or breaks the rules, the watch ends.
func (s *stream) overWebSocket(ctx context.Context, w http.ResponseWriter, r *http.Request, watcher resource.Watcher) error {
	conn, rw, err := http.NewResponseController(w).Hijack()
	if err != nil {
		return apierrors.NewBadRequest(fmt.Sprintf("this connection cannot be upgraded: %v", err))
	}
	defer conn.Close()
	// No deadline of the request is one of the watch.
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
			if s.format.media == mediaJSON {
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

// chooseProtocol agrees to the first protocol that the client offers. None is
// needed, and none changes anything, but browsers end a connection on which
// nothing of what they offered was chosen. A token that was offered as a
// protocol is gone by now.
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

// send sends each frame as a message. Between messages there is no deadline,
// which would be one of the answers to pings too.
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

// hijacked hands a connection that was taken over to a library that wants to do
// so itself, and panics where it cannot.
type hijacked struct {
	http.ResponseWriter
	conn net.Conn
	rw   *bufio.ReadWriter
}

func (h hijacked) Hijack() (net.Conn, *bufio.ReadWriter, error) { return h.conn, h.rw, nil }
