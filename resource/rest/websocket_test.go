package rest

import (
	"io"
	"net/http/httptest"
	"strings"
	"testing"

	"golang.org/x/net/websocket"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"portico/resource"
)

func TestWatchOverWebSocket(t *testing.T) {
	b := newBench(t)
	b.put(b.configMaps, configMap("a"))
	dial := func(path, accept string) *websocket.Conn {
		config, err := websocket.NewConfig("ws"+strings.TrimPrefix(b.URL, "http")+path, "http://localhost")
		if err != nil {
			t.Fatal(err)
		}
		config.Header.Set("Accept", accept)
		ws, err := websocket.DialConfig(config)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { ws.Close() })
		return ws
	}
	ws := dial(inDefault+"configmaps?watch=1", "")
	var text string
	if err := websocket.Message.Receive(ws, &text); err != nil || !strings.HasPrefix(text, `{"type":"ADDED","object":{"kind":"ConfigMap",`) {
		t.Fatalf("got %q, %v", text, err)
	}
	b.put(b.configMaps, configMap("b"))
	if err := websocket.Message.Receive(ws, &text); err != nil || !strings.Contains(text, `"name":"b"`) {
		t.Fatalf("got %q, %v", text, err)
	}
	ws = dial(inDefault+"configmaps?watch=1&timeoutSeconds=1", contentProtobuf)
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
	api := New(Config{Resources: []*Resource{b.configMaps}})
	api.ServeHTTP(w, r.WithContext(resource.WithAction(r.Context(), resource.ParseAction(r))))
	if w.Code != 400 || !strings.Contains(w.Body.String(), "cannot be upgraded") {
		t.Errorf("%d %s", w.Code, w.Body)
	}
}
