package serve

import (
	"bytes"
	"context"
	"crypto/tls"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"

	"portico/resource"
	"portico/resource/authz"
)

// A request that is refused over HTTP/2 while its body is on its way gets the whole
// answer and no reset of its stream.
func TestRefusedWhileSending(t *testing.T) {
	t.Parallel()
	for name, refuse := range map[string]func(*testConfig){
		"401": func(c *testConfig) { c.Authenticator = failing{} },
		"403 of a stranger": func(c *testConfig) {
			c.Authenticator = asStranger{}
			c.Authorizer = authz.Func(func(context.Context, *resource.Action) (authz.Decision, string, error) {
				return authz.NoOpinion, "", nil
			})
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newTestServer(t, ok, refuse)
			server := httptest.NewUnstartedServer(s.Handler())
			server.EnableHTTP2 = true
			server.StartTLS()
			defer server.Close()
			for _, size := range []int{67, 5000, 60_000} {
				frames, answer := postSlowly(t, server.Listener.Addr().String(), size)
				if strings.Contains(frames, "RST_STREAM") || !strings.Contains(frames, "END_STREAM") || !strings.Contains(answer, `"Status"`) {
					t.Errorf("body of %d bytes: frames %q, answer %q", size, frames, answer)
				}
				if !strings.Contains(frames, "GOAWAY") {
					t.Errorf("body of %d bytes: the connection of a stranger goes on: %q", size, frames)
				}
			}
		})
	}
}

// postSlowly sends a header and, a moment later, a body over a connection of its own.
// It returns the types of the frames that came back, until the connection ended, and
// the body of the answer.
func postSlowly(t *testing.T, address string, size int) (frames, answer string) {
	t.Helper()
	conn, err := tls.Dial("tcp", address, &tls.Config{InsecureSkipVerify: true, NextProtos: []string{"h2"}})
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	_ = conn.SetDeadline(time.Now().Add(20 * time.Second))
	if _, err := io.WriteString(conn, http2.ClientPreface); err != nil {
		t.Fatal(err)
	}
	framer := http2.NewFramer(conn, conn)
	var header bytes.Buffer
	enc := hpack.NewEncoder(&header)
	for _, f := range [][2]string{{":method", "POST"}, {":scheme", "https"}, {":authority", "x"}, {":path", pathPods}, {"content-type", "application/json"}} {
		if err := enc.WriteField(hpack.HeaderField{Name: f[0], Value: f[1]}); err != nil {
			t.Fatal(err)
		}
	}
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	must(framer.WriteSettings())
	must(framer.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, BlockFragment: header.Bytes(), EndHeaders: true}))
	go func() {
		time.Sleep(20 * time.Millisecond) // the server would have answered by now
		for left := size; left > 0; left -= 10_000 {
			n := min(left, 10_000)
			_ = framer.WriteData(1, left == n, make([]byte, n)) // the response shows the result
		}
	}()
	var kinds []string
	var body strings.Builder
	for {
		f, err := framer.ReadFrame()
		if err != nil {
			return strings.Join(kinds, " "), body.String()
		}
		kind := f.Header().Type.String()
		if d, ok := f.(*http2.DataFrame); ok {
			body.Write(d.Data())
			if d.StreamEnded() {
				kind += "+END_STREAM"
			}
		}
		kinds = append(kinds, kind)
	}
}

// asStranger authenticates every request as the anonymous user.
type asStranger struct{}

func (asStranger) Authenticate(*http.Request) (*resource.User, bool, error) {
	return &resource.User{Name: resource.Anonymous}, true, nil
}
