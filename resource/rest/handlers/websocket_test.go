package handlers

import (
	"errors"
	"fmt"
	"io"
	"net"
	"net/http/httptest"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/net/websocket"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"portico/resource"
	"portico/resource/rest"
	"portico/resource/rest/resttest"
)

// dial opens a WebSocket.
func (b *bench) dial(path, accept string, protocols ...string) *websocket.Conn {
	b.t.Helper()
	config, err := websocket.NewConfig("ws"+strings.TrimPrefix(b.URL, "http")+path, "http://localhost")
	if err != nil {
		b.t.Fatal(err)
	}
	config.Header.Set("Accept", accept)
	config.Protocol = protocols
	ws, err := websocket.DialConfig(config)
	if err != nil {
		b.t.Fatal(err)
	}
	b.t.Cleanup(func() { ws.Close() })
	return ws
}

// The first subprotocol that a client offers is accepted.
func TestWebSocketProtocols(t *testing.T) {
	b := newBench(t)
	for _, offered := range [][]string{nil, {"one"}, {"base64.binary.k8s.io", "two"}} {
		ws := b.dial(inDefault+"configmaps?watch=1", "", offered...)
		if got := ws.Config().Protocol; len(offered) == 0 && len(got) > 0 || len(offered) > 0 && (len(got) != 1 || got[0] != offered[0]) {
			t.Errorf("offered %q, chosen %q", offered, got)
		}
	}
}

// A client that violates the protocol, sends a large message or closes the connection ends
// only its own watch.
func TestWebSocketClientsThatEndTheWatch(t *testing.T) {
	b := newBench(t)
	frame := func(bytes ...byte) string { return string(bytes) }
	for name, bytes := range map[string]string{
		"close":       frame(0x88, 0x80, 1, 2, 3, 4),
		"not masked":  "\x81\x05hello",
		"too large":   frame(0x82, 0xff, 0, 0, 0, 0, 0x40, 0, 0, 0, 1, 2, 3, 4),
		"negative":    frame(0x82, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 1, 2, 3, 4),
		"large pings": frame(0x89, 0xff, 0, 0, 0, 0, 0, 1, 0, 0, 1, 2, 3, 4) + strings.Repeat("x", 1<<16) + frame(0x88, 0x80, 1, 2, 3, 4),
		"words":       "GET / HTTP/1.1\r\n\r\n",
	} {
		conn, err := net.Dial("tcp", b.Listener.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		fmt.Fprintf(conn, "GET %sconfigmaps?watch=1 HTTP/1.1\r\nHost: x\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"+
			"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n%s", inDefault, bytes)
		answer, err := io.ReadAll(conn)
		if !strings.HasPrefix(string(answer), "HTTP/1.1 101 ") || err != nil && !errors.Is(err, syscall.ECONNRESET) {
			t.Errorf("%s: %q, %v", name, answer, err)
		}
	}
	b.put(b.configMaps, resttest.ConfigMap("a"))
	b.watch(inDefault+"configmaps?watch=1", "").expect("ADDED ConfigMap a")
}

func TestWatchOverWebSocket(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.put(b.configMaps, resttest.ConfigMap("a"))
	ws := b.dial(inDefault+"configmaps?watch=1", "")
	var text string
	if err := websocket.Message.Receive(ws, &text); err != nil || !strings.HasPrefix(text, `{"type":"ADDED","object":{"kind":"ConfigMap",`) {
		t.Fatalf("got %q, %v", text, err)
	}
	b.put(b.configMaps, resttest.ConfigMap("b"))
	if err := websocket.Message.Receive(ws, &text); err != nil || !strings.Contains(text, `"name":"b"`) {
		t.Fatalf("got %q, %v", text, err)
	}
	ws = b.dial(inDefault+"configmaps?watch=1&timeoutSeconds=1", runtime.ContentTypeProtobuf)
	var message []byte
	for _, name := range []string{"a", "b"} {
		var e metav1.WatchEvent
		if err := websocket.Message.Receive(ws, &message); err != nil {
			t.Fatal(err)
		}
		if err := e.Unmarshal(message); err != nil || e.Type != "ADDED" || !strings.Contains(string(e.Object.Raw), name) {
			t.Fatalf("message %q, %v", message, err)
		}
	}
	if err := websocket.Message.Receive(ws, &message); err != io.EOF {
		t.Errorf("after the end: %v", err)
	}
}

func TestWebSocketNeedsAConnectionToTakeOver(t *testing.T) {
	b := newBench(t)
	r := httptest.NewRequest("GET", inDefault+"configmaps?watch=1", nil)
	r.Header.Set("Upgrade", "websocket")
	r.Header.Set("Connection", "keep-alive, Upgrade")
	w := httptest.NewRecorder()
	api := New(Config{Resources: []*rest.Resource{b.configMaps}})
	api.ServeHTTP(w, r.WithContext(resource.WithAction(r.Context(), resource.ParseAction(r))))
	if w.Code != 400 || !strings.Contains(w.Body.String(), "cannot be upgraded") {
		t.Errorf("%d %s", w.Code, w.Body)
	}
}
