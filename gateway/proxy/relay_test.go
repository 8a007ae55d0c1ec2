package proxy

import (
	"bytes"
	"context"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"portico/resource/serve/inflight"
)

// written counts writes and flushes.
type written struct {
	*httptest.ResponseRecorder
	writes, flushes int
	fail            error
}

func (p *written) Write(b []byte) (int, error) {
	if p.fail != nil {
		return 0, p.fail
	}
	p.writes++
	return p.ResponseRecorder.Write(b)
}

func (p *written) FlushError() error { p.flushes++; return nil }

func relayOf(body io.Reader, to *written) *relay {
	return &relay{
		body: io.NopCloser(body), to: to, buffers: newBuffers(copyBuffer), answer: &http.Response{}, log: slog.New(slog.DiscardHandler),
	}
}

// A relay copies what has been received in large pieces, and flushes each.
func TestRelayMovesLargePieces(t *testing.T) {
	data := bytes.Repeat([]byte("0123456789abcdef"), 20<<10)
	to := &written{ResponseRecorder: httptest.NewRecorder()}
	if err := relayOf(bytes.NewReader(data), to).copy(); err != io.EOF {
		t.Fatal(err)
	}
	if want := len(data) / copyBuffer; to.writes != want || to.flushes != want+1 || !bytes.Equal(to.Body.Bytes(), data) {
		t.Errorf("%d bytes in %d writes and %d flushes, want %d writes", to.Body.Len(), to.writes, to.flushes, want)
	}
}

// A relay ends with the error of the client or of the body.
func TestRelayErrors(t *testing.T) {
	gone := errors.New("the client is gone")
	to := &written{ResponseRecorder: httptest.NewRecorder(), fail: gone}
	if err := relayOf(bytes.NewReader([]byte("x")), to).copy(); err != gone {
		t.Errorf("a client that is gone: %v", err)
	}
	broken := errors.New("the connection broke")
	to = &written{ResponseRecorder: httptest.NewRecorder()}
	body := io.MultiReader(bytes.NewReader([]byte("x")), &failing{broken})
	if err := relayOf(body, to).copy(); err != broken || to.Body.String() != "x" {
		t.Errorf("a body that breaks: %v after %q", err, to.Body)
	}
}

// A shutdown of the gateway completes a watch, and breaks off every other answer.
func TestRelayAtShutdown(t *testing.T) {
	ctx, end := context.WithCancelCause(context.WithValue(t.Context(), http.ServerContextKey, new(http.Server)))
	end(inflight.ErrShuttingDown)
	for _, watch := range []bool{true, false} {
		to := &written{ResponseRecorder: httptest.NewRecorder()}
		r := relayOf(&failing{context.Canceled}, to)
		r.ctx, r.watch = ctx, watch
		if _, err := r.Read(nil); (err == io.EOF) != watch {
			t.Errorf("a watch: %v; ended with %v", watch, err)
		}
	}
	w := httptest.NewRecorder()
	NewMaker(slog.New(slog.DiscardHandler)).fail(w, httptest.NewRequestWithContext(ctx, "GET", "/api/v1/pods?watch=1", nil), context.Canceled)
	if w.Code != http.StatusServiceUnavailable || !strings.Contains(w.Body.String(), "the gateway is shutting down") {
		t.Errorf("before the header: %d %s", w.Code, w.Body)
	}
}

type failing struct{ err error }

func (f *failing) Read([]byte) (int, error) { return 0, f.err }

// The bodies of answers, over HTTP/2 and HTTP/1.1, wait for data in a read of no bytes.
// Without that, a relay holds a buffer while it waits.
func TestBodiesWaitInEmptyReads(t *testing.T) {
	for _, h2 := range []bool{false, true} {
		next := make(chan struct{})
		server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			for range next {
				_, _ = io.WriteString(w, "data")
				_ = http.NewResponseController(w).Flush()
			}
		}))
		server.EnableHTTP2 = h2
		server.StartTLS()
		go func() { next <- struct{}{} }() // the header waits for it
		res, err := server.Client().Get(server.URL)
		if err != nil || (res.ProtoMajor == 2) != h2 {
			t.Fatal(res, err)
		}
		buf := make([]byte, 100)
		if n, err := res.Body.Read(buf); n != 4 || err != nil {
			t.Fatalf("%s: %d, %v", res.Proto, n, err)
		}
		waited := make(chan struct{})
		go func() { defer close(waited); _, _ = res.Body.Read(nil) }()
		select {
		case <-waited:
			t.Errorf("%s: an empty read does not wait", res.Proto)
		case <-time.After(20 * time.Millisecond):
		}
		next <- struct{}{}
		<-waited
		if n, err := res.Body.Read(buf); n != 4 || err != nil {
			t.Fatalf("%s: %d, %v after the wait", res.Proto, n, err)
		}
		close(next)
		res.Body.Close()
		server.Close()
	}
}

// The header of a watch is sent before its first event.
func TestProxyWatchHeader(t *testing.T) {
	end := make(chan struct{})
	f := startFront(t, func(w http.ResponseWriter, _ *http.Request) {
		_ = http.NewResponseController(w).Flush()
		<-end
	})
	res := f.do(t, "GET", watchPath, nil, nil)
	if res.StatusCode != http.StatusOK {
		t.Error(res.Status)
	}
	close(end)
}

// A server that breaks off breaks off the client's watch too: it must not look
// complete.
func TestProxyWatchBrokenOff(t *testing.T) {
	f := startFront(t, func(w http.ResponseWriter, _ *http.Request) {
		_, _ = io.WriteString(w, "part")
		_ = http.NewResponseController(w).Flush()
		panic(http.ErrAbortHandler)
	})
	if got, err := io.ReadAll(f.do(t, "GET", watchPath, nil, nil).Body); err == nil {
		t.Errorf("got %q and a proper end", got)
	}
}

// halves is a body that is received in two pieces.
type halves struct{ pieces []string }

func (h *halves) Read(b []byte) (int, error) {
	if len(h.pieces) == 0 {
		return 0, io.EOF
	}
	n := copy(b, h.pieces[0])
	h.pieces = h.pieces[1:]
	return n, nil
}

// A part of a short answer is flushed before the rest is waited for; an answer in one
// piece is not flushed on its own.
func TestShortAnswersInPieces(t *testing.T) {
	for _, tc := range []struct {
		pieces  []string
		flushes int
	}{{[]string{"all"}, 0}, {[]string{"a", "ll"}, 1}, {[]string{"a", "l", "l"}, 2}} {
		to := &written{ResponseRecorder: httptest.NewRecorder()}
		h := &proxiedRequest{client: to}
		res := &http.Response{
			StatusCode: 200, ContentLength: 3, Header: http.Header{}, Body: io.NopCloser(&halves{tc.pieces}),
			Request: httptest.NewRequest("GET", "/", nil).WithContext(context.WithValue(t.Context(), proxiedRequestKey{}, h)),
		}
		if err := inPieces(res); err != nil {
			t.Fatal(err)
		}
		if _, err := io.Copy(to, res.Body); err != nil || to.Body.String() != "all" || to.flushes != tc.flushes {
			t.Errorf("%q: %q with %d flushes, want %d; %v", tc.pieces, to.Body, to.flushes, tc.flushes, err)
		}
	}
}
