package transport

import (
	"bytes"
	"encoding/binary"
	"io"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"portico/internal/testing/await"
)

// An HTTP/2 connection that is retired finishes what it carries, and closes then.
func TestHTTP2Retires(t *testing.T) {
	t.Parallel()
	for name, retire := range map[string]func(*counted, *http2Pool){
		"replaced": func(e *counted, _ *http2Pool) { e.Renew() },
		"expired": func(_ *counted, p *http2Pool) {
			p.mu.Lock()
			defer p.mu.Unlock()
			p.conns[0].expires = time.Unix(0, 0)
			p.takeReady()
		},
	} {
		end := make(chan struct{})
		server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			_ = http.NewResponseController(w).Flush()
			<-end
			_, _ = io.WriteString(w, "whole")
		}))
		server.EnableHTTP2 = true
		server.StartTLS()
		t.Cleanup(server.Close)
		e := newCounted(t, "tcp", server.Listener.Addr().String(), trustOf(server))
		res, err := e.get(t, watchPath)
		if err != nil {
			t.Fatal(err)
		}
		g, _ := e.generation()
		g.http2.mu.Lock()
		c := g.http2.conns[0]
		g.http2.mu.Unlock()
		retire(e, g.http2)
		time.Sleep(10 * time.Millisecond) // for a connection that closes too early
		close(end)
		if body, err := io.ReadAll(res.Body); err != nil || string(body) != "whole" {
			t.Errorf("%s: %q %v", name, body, err)
		}
		await.Until(t, name+": it stays open", c.closed.Load)
	}
}

// frame returns a frame of a type, with a payload.
func frame(kind byte, stream uint32, payload []byte) []byte {
	b := []byte{byte(len(payload) >> 16), byte(len(payload) >> 8), byte(len(payload)), kind, 0}
	return append(binary.BigEndian.AppendUint32(b, stream), payload...)
}

// Frames are found however they are cut into pieces, and what follows the part of a
// payload that is looked at is no frame.
func FuzzFrames(f *testing.F) {
	f.Add(uint8(1), []byte("a payload"), uint32(7), uint32(5))
	f.Add(uint8(9), bytes.Repeat(frame(frameGoAway, 0, make([]byte, 8)), 40), uint32(3), uint32(9))
	f.Fuzz(func(t *testing.T, piece uint8, payload []byte, stream, last uint32) {
		stream, last = stream&^(1<<31), last&^(1<<31)
		goAway := append(binary.BigEndian.AppendUint32(nil, last), payload...)
		out := append([]byte(preface), frame(0, stream, payload)...)
		out = append(out, frame(frameHeaders, stream, payload)...)
		out = append(out, frame(frameSettings, 0, payload)...)
		in := append(frame(0, stream, payload), frame(frameGoAway, 0, goAway)...)
		in = append(in, frame(frameSettings, 0, payload)...)
		fr := newFrames()
		size := int(piece) + 1
		for p := out; len(p) > 0; p = p[min(size, len(p)):] {
			fr.sending(p[:min(size, len(p))])
		}
		for p := in; len(p) > 0; p = p[min(size, len(p)):] {
			fr.received(p[:min(size, len(p))], nil)
		}
		if got := fr.last(); got != stream {
			t.Errorf("HEADERS of stream %d, not %d", got, stream)
		}
		if !fr.excluded(last) || last > 0 && fr.excluded(last-1) {
			t.Errorf("GOAWAY is %d, not %d", fr.goAway, last)
		}
		if !fr.settings {
			t.Error("SETTINGS are not found")
		}
	})
}
