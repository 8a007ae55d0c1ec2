//go:build floods

package attack

import (
	"bytes"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	nethttp "net/http"
	"strings"
	"syscall"
	"testing"
	"time"

	xhttp2 "golang.org/x/net/http2"

	"portico/internal/testing/await"
)

const (
	// floodLasts bounds a flood over one connection, and floodFrames its frames: more than
	// the buffers between a client and the gateway hold.
	floodLasts  = 5 * time.Second
	floodFrames = 20_000_000
	// floodConnections is the number of connections of a flood of connections.
	floodConnections = 500
	// handshakeEnds bounds the time of a connection without a request: 10 s, and a margin
	// for a busy machine.
	handshakeEnds = 25 * time.Second
)

// frames returns a frame n times.
func frames(n int, kind xhttp2.FrameType, flags xhttp2.Flags, id uint32, payload []byte) []byte {
	return bytes.Repeat(frame(kind, flags, id, payload), n)
}

// A client that sends frames as fast as it can over one connection is disconnected, or
// costs no more than it sends.
func TestFloodOfFrames(t *testing.T) {
	get := literals(pseudo("GET", "/version"))
	post := literals(pseudo("POST", "/version"))
	const piece = 100
	for _, tc := range []struct {
		name  string
		first []byte
		// next returns further frames; id is the next stream.
		next func(id *uint32) []byte
		// cut means that the gateway ends the connection before all frames are sent.
		cut bool
	}{
		{"rapid reset", nil, func(id *uint32) (out []byte) {
			for range piece / 2 {
				out = append(out, frame(xhttp2.FrameHeaders, xhttp2.FlagHeadersEndHeaders|xhttp2.FlagHeadersEndStream, *id, get)...)
				out = append(out, frame(xhttp2.FrameRSTStream, 0, *id, []byte{0, 0, 0, 8})...)
				*id += 2
			}
			return out
		}, true},
		{"CONTINUATION", frame(xhttp2.FrameHeaders, xhttp2.FlagHeadersEndStream, 1, get), func(*uint32) []byte {
			return frames(piece, xhttp2.FrameContinuation, 0, 1, literals([]field{{"x-a", strings.Repeat("b", 100)}}))
		}, true},
		{"empty CONTINUATION", frame(xhttp2.FrameHeaders, xhttp2.FlagHeadersEndStream, 1, get), func(*uint32) []byte {
			return frames(piece, xhttp2.FrameContinuation, 0, 1, nil)
		}, false},
		{"PING", nil, func(*uint32) []byte { return frames(piece, xhttp2.FramePing, 0, 0, make([]byte, 8)) }, true},
		{"SETTINGS", nil, func(*uint32) []byte { return frames(piece, xhttp2.FrameSettings, 0, 0, []byte{0, 3, 0, 0, 0, 100}) }, false},
		{"PRIORITY", nil, func(*uint32) []byte { return frames(piece, xhttp2.FramePriority, 0, 1, []byte{0, 0, 0, 0, 1}) }, false},
		{"WINDOW_UPDATE", nil, func(*uint32) []byte { return frames(piece, xhttp2.FrameWindowUpdate, 0, 0, []byte{0, 0, 0, 1}) }, false},
		{"empty DATA", frame(xhttp2.FrameHeaders, xhttp2.FlagHeadersEndHeaders, 1, post), func(*uint32) []byte {
			return frames(piece, xhttp2.FrameData, 0, 1, nil)
		}, true},
		{"frames of an unknown type", nil, func(*uint32) []byte { return frames(piece, 0xbe, 0, 0, nil) }, false},
	} {
		t.Run(tc.name, func(t *testing.T) {
			target.calm(t, func() {
				conn := target.dial(t, nil, http2)
				defer conn.Close()
				go io.Copy(io.Discard, conn)
				conn.SetDeadline(time.Now().Add(floodLasts))
				_, err := conn.Write(append([]byte(xhttp2.ClientPreface), append(frame(xhttp2.FrameSettings, 0, 0, nil), tc.first...)...))
				id, sent := uint32(1), 0
				for ; err == nil && sent < floodFrames; sent += piece {
					_, err = conn.Write(tc.next(&id))
				}
				t.Logf("%d frames were sent, and then: %v", sent, err)
				if ended := err != nil && !isTimeout(err); tc.cut && !ended {
					t.Errorf("the connection is open after %d frames: %v", sent, err)
				}
			})
		})
	}
}

func isTimeout(err error) bool {
	timeout, ok := err.(net.Error)
	return ok && timeout.Timeout()
}

// Connections without a request are closed, and cost little until then.
func TestFloodOfConnections(t *testing.T) {
	plain := func(t *testing.T) net.Conn {
		conn, err := net.DialTimeout("tcp", target.host, await.Patience())
		if err != nil {
			t.Fatal(err)
		}
		return conn
	}
	secured := func(start string) func(*testing.T) net.Conn {
		return func(t *testing.T) net.Conn {
			conn := tls.Client(plain(t), target.tls(nil))
			if _, err := io.WriteString(conn, start); err != nil {
				t.Fatal(err)
			}
			return conn
		}
	}
	for _, tc := range []struct {
		name string
		open func(*testing.T) net.Conn
	}{
		{"half open", plain},
		{"a part of a header", secured("GET /healthz HTTP/1.1\r\nHost: x\r\nX-A: " + strings.Repeat("a", 1000))},
		{"a large part of a header", secured("GET /healthz HTTP/1.1\r\nHost: x\r\nX-A: " + strings.Repeat("a", 60<<10))},
	} {
		t.Run(tc.name, func(t *testing.T) {
			target.calm(t, func() {
				var all []net.Conn
				ended := map[string]int{}
				for range floodConnections {
					all = append(all, tc.open(t))
				}
				deadline := time.Now().Add(handshakeEnds)
				for n, conn := range all {
					conn.SetReadDeadline(deadline)
					// A response, such as 408, is ignored.
					answered, err := io.Copy(io.Discard, conn)
					if isTimeout(err) {
						t.Errorf("connection %d is open after %v", n, handshakeEnds)
					}
					ended[fmt.Sprintf("after an answer: %t, reset: %t", answered > 0, errors.Is(err, syscall.ECONNRESET))]++
					conn.Close()
				}
				t.Logf("they ended %v", ended)
			})
		})
	}
}

// Streams that the client does not read cost the size of their headers, which is freed with
// the connection.
func TestFloodOfStreamsThatAreNotRead(t *testing.T) {
	target.calm(t, func() {
		header := pseudo("GET", "/version")
		for n := range 8 {
			header = append(header, field{fmt.Sprint("x-", n), strings.Repeat("a", 120)})
		}
		block := literals(header)
		for range 5 {
			conn := target.dial(t, nil, http2)
			defer conn.Close()
			conn.SetDeadline(time.Now().Add(floodLasts))
			// The window of each stream is 0.
			io.WriteString(conn, xhttp2.ClientPreface)
			conn.Write(frame(xhttp2.FrameSettings, 0, 0, []byte{0, 4, 0, 0, 0, 0}))
			for id := uint32(1); id < 2*1000; id += 2 {
				if _, err := conn.Write(frame(xhttp2.FrameHeaders, xhttp2.FlagHeadersEndHeaders|xhttp2.FlagHeadersEndStream, id, block)); err != nil {
					t.Logf("cut off at stream %d: %v", id, err)
					break
				}
			}
		}
	})
}

// Servers with an endless stream of discovery delay no other request, and use bounded
// memory.
func TestFloodOfDiscoveryStreams(t *testing.T) {
	target.calm(t, func() {
		for n := range 3 {
			group := fmt.Sprintf("stream-%d.example.com", n)
			url := runServer(t, serving(t, http1), func(w nethttp.ResponseWriter, r *nethttp.Request) {
				w.Header().Set("Content-Type", "application/json")
				switch {
				case r.URL.Path == "/apis" && r.URL.Query().Get("watch") == "true":
					w.Header().Set("Content-Type", "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList;stream=watch")
					event := []byte(strings.Repeat(fmt.Sprintf(`{"type":"ADDED","object":{"metadata":{"name":%q},"versions":[]}}`+"\n", group), 100))
					for r.Context().Err() == nil {
						if _, err := w.Write(event); err != nil {
							return
						}
					}
				case r.URL.Path == "/apis":
					io.WriteString(w, groupList(group))
				case r.URL.Path == "/apis/"+group+"/v1":
					io.WriteString(w, resourceList(group))
				default:
					nethttp.NotFound(w, r)
				}
			})
			target.backend(t, group, discovered(url, group))
		}
		time.Sleep(15 * time.Second) // as long as the flood lasts
	})
}
