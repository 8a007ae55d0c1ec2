package proxy

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"runtime"
	"strings"
	"testing"

	"portico/gateway/upstream/transport"
	"portico/resource/serve/inflight"
)

// A shutdown of the gateway completes a watch: its client continues at another gateway. It
// breaks off every other answer that has begun, and answers 503 for one that has not.
func TestRelayAtShutdown(t *testing.T) {
	t.Parallel()
	shutdown := make(chan context.CancelCauseFunc, 1)
	server, trust := startTLS(t, func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == execPath {
			(<-shutdown)(inflight.ErrShuttingDown)
		} else {
			io.WriteString(w, "part")
			flush(w)
		}
		<-r.Context().Done()
	})
	send := asAlice(along(routeTo(upstreamTo(t, trust, []string{server.Listener.Addr().String()}))))
	gateway := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		ctx, end := context.WithCancelCause(r.Context())
		shutdown <- end
		send(w, r.WithContext(ctx))
	}))
	defer gateway.Close()
	for path, want := range map[string]string{watchPath: "200 part complete", longPath: "200 part broken off", execPath: "503 shutting down complete"} {
		res, err := http.Get(gateway.URL + path)
		if err != nil {
			t.Fatal(err)
		}
		begun := make([]byte, len("part"))
		if path != execPath {
			if _, err := io.ReadFull(res.Body, begun); err != nil {
				t.Fatal(path, err)
			}
			(<-shutdown)(inflight.ErrShuttingDown)
		}
		rest, err := io.ReadAll(res.Body)
		res.Body.Close()
		got := fmt.Sprint(res.StatusCode, " ", string(begun), string(rest))
		if strings.Contains(got, "the gateway is shutting down") {
			got = "503 shutting down"
		}
		if got += map[bool]string{true: " complete", false: " broken off"}[err == nil]; got != want {
			t.Errorf("%s: %s, want %s", path, got, want)
		}
	}
}

// A server that breaks off an answer breaks off the client's too: it must not look complete.
func TestProxyBrokenOff(t *testing.T) {
	t.Parallel()
	f := startFront(t, func(w http.ResponseWriter, _ *http.Request) {
		_, _ = io.WriteString(w, "part")
		flush(w)
		panic(http.ErrAbortHandler)
	})
	for _, path := range []string{watchPath, shortPath} {
		if got, err := io.ReadAll(f.get(t, path).Body); err == nil || string(got) != "part" {
			t.Errorf("%s: got %q and the error %v", path, got, err)
		}
	}
}

// A part of an answer of known length reaches the client before the server sends the rest.
func TestAnswersInPieces(t *testing.T) {
	t.Parallel()
	next := make(chan struct{})
	f := startFront(t, func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Length", "9")
		for range 3 {
			_, _ = io.WriteString(w, "abc")
			flush(w)
			select {
			case <-next:
			case <-r.Context().Done():
			}
		}
	})
	body, piece := f.get(t, shortPath).Body, make([]byte, 3)
	for range 3 {
		if _, err := io.ReadFull(body, piece); err != nil || string(piece) != "abc" {
			t.Fatalf("got %q, %v", piece, err)
		}
		next <- struct{}{}
	}
}

// stuck opens a watch on a connection with small buffers, and reads nothing of its answer but
// the header.
func (f *front) stuck(t *testing.T, path string) {
	t.Helper()
	server := httptest.NewUnstartedServer(f.Config.Handler)
	server.Config.ConnContext = func(ctx context.Context, conn net.Conn) context.Context {
		if err := conn.(*net.TCPConn).SetWriteBuffer(64 << 10); err != nil {
			t.Error(err)
		}
		return ctx
	}
	server.Start()
	t.Cleanup(server.Close)
	conn, err := net.Dial("tcp", server.Listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	if err := conn.(*net.TCPConn).SetReadBuffer(64 << 10); err != nil {
		t.Fatal(err)
	}
	fmt.Fprintf(conn, "GET %s HTTP/1.1\r\nHost: x\r\n\r\n", path)
	if _, err := http.ReadResponse(bufio.NewReaderSize(conn, 4<<10), nil); err != nil {
		t.Fatal(err)
	}
}

// Clients that do not read hold up no others, although all watches share a connection to the
// server, and hold little memory.
func TestClientsThatDoNotRead(t *testing.T) {
	const clients, events, size = 16, 100, 100 << 10
	next := make(chan struct{})
	event := append(bytes.Repeat([]byte("x"), size), '\n')
	f := startFront(t, func(w http.ResponseWriter, r *http.Request) {
		flush(w)
		for range events {
			if !r.URL.Query().Has("stuck") {
				select {
				case <-next:
				case <-r.Context().Done():
				}
			}
			if _, err := w.Write(event); err != nil {
				return
			}
			flush(w)
		}
		<-r.Context().Done()
	})
	for range clients {
		f.stuck(t, watchPath+"&stuck")
	}
	other := bufio.NewReaderSize(f.get(t, watchPath).Body, 64<<10)
	before := heapInUse()
	for range events {
		next <- struct{}{}
		if line, err := other.ReadBytes('\n'); err != nil || !bytes.Equal(line, event) {
			t.Fatalf("%d bytes, %v", len(line), err)
		}
	}
	if grown := heapInUse() - before; grown > clients*(transport.StreamBuffer+size)+16<<20 {
		t.Errorf("%d clients hold %d MiB", clients, grown>>20)
	}
}

func heapInUse() int64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}
