package serve

import (
	"crypto/tls"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"golang.org/x/net/http2"

	"portico/internal/testing/await"
	"portico/resource"
	"portico/resource/authz"
)

// A request that is refused over HTTP/2 while its body is being sent gets the whole response
// and no reset of its stream; then the connection of an unknown client ends.
func TestRefusedWhileSending(t *testing.T) {
	t.Parallel()
	for name, refuse := range map[string]func(*testConfig){
		"401": func(c *testConfig) { c.Authenticator = failing(nil) },
		"403": func(c *testConfig) {
			c.Authenticator = authenticate(func(*http.Request) (*resource.User, bool, error) {
				return &resource.User{Name: resource.Anonymous}, true, nil
			})
			c.Authorizer = decide(authz.NoOpinion, "", nil)
		},
	} {
		server := httptest.NewUnstartedServer(newTestServer(t, ok, refuse).chain)
		server.EnableHTTP2 = true
		server.StartTLS()
		t.Cleanup(server.Close)
		for _, size := range []int{67, 5000, 60_000} {
			t.Run(fmt.Sprint(name, " ", size, " bytes"), func(t *testing.T) {
				t.Parallel()
				frames, body := postSlowly(t, server.Listener.Addr().String(), size)
				if strings.Contains(frames, "RST_STREAM") || !strings.Contains(frames, "END_STREAM") || !strings.Contains(body, `"Status"`) {
					t.Errorf("frames %q, body %q", frames, body)
				}
				if !strings.Contains(frames, "GOAWAY") {
					t.Errorf("the connection continues: %q", frames)
				}
			})
		}
	}
}

// postSlowly sends a header and, a moment later, a body over a connection of its own. It
// returns the types of the frames that the server sends, and the body of the response. After
// the response it sends a ping, which the server answers after all frames of the stream.
func postSlowly(t *testing.T, address string, size int) (frames, body string) {
	t.Helper()
	conn, err := tls.Dial("tcp", address, &tls.Config{InsecureSkipVerify: true, NextProtos: []string{"h2"}})
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	_ = conn.SetDeadline(time.Now().Add(await.Patience()))
	framer := newFramer(t, conn)
	header := http2.HeadersFrameParam{StreamID: 1, BlockFragment: fields(":method", "POST", ":scheme", "https", ":authority", "x", ":path", pathPods, "content-type", "application/json"), EndHeaders: true}
	if err := framer.WriteHeaders(header); err != nil {
		t.Fatal(err)
	}
	sent := make(chan struct{})
	go func() {
		defer close(sent)
		time.Sleep(20 * time.Millisecond) // most often the server has answered by then
		for left := size; left > 0; left -= 10_000 {
			n := min(left, 10_000)
			_ = framer.WriteData(1, left == n, make([]byte, n)) // the response shows the result
		}
	}()
	for {
		f, err := framer.ReadFrame()
		if err != nil {
			return frames, body
		}
		frames += " " + f.Header().Type.String()
		if d, ok := f.(*http2.DataFrame); ok {
			body += string(d.Data())
			if d.StreamEnded() {
				frames += "+END_STREAM"
				<-sent
				_ = framer.WritePing(false, [8]byte{}) // the next read shows the result
			}
		}
		if f.Header().Type == http2.FramePing {
			return frames, body
		}
	}
}
