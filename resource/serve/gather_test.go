package serve

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"portico/resource/authn"
)

// slowConn notes what is written, and stands in a write as long as it is told to.
type slowConn struct {
	net.Conn
	mu      sync.Mutex
	got     bytes.Buffer
	pieces  int
	fail    error
	stuck   chan struct{} // nil: never
	entered chan struct{}
	calls   []string
}

func (c *slowConn) Write(b []byte) (int, error) {
	if c.stuck != nil {
		c.entered <- struct{}{}
		<-c.stuck
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.fail != nil {
		return 0, c.fail
	}
	c.pieces++
	return c.got.Write(b)
}

func (c *slowConn) call(name string) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.calls = append(c.calls, name+" after "+c.got.String())
	return nil
}

func (c *slowConn) SetDeadline(time.Time) error      { return c.call("deadline") }
func (c *slowConn) SetWriteDeadline(time.Time) error { return c.call("deadline") }
func (c *slowConn) Close() error                     { return c.call("close") }

// held is a connection that writes nothing of its own accord.
func held(to net.Conn) *gathering {
	c := &gathering{Conn: to, due: true}
	c.on.Store(true)
	return c
}

func TestGather(t *testing.T) {
	write := func(t *testing.T, c net.Conn, pieces ...string) {
		t.Helper()
		for _, p := range pieces {
			if n, err := c.Write([]byte(p)); n != len(p) || err != nil {
				t.Errorf("write %.10q: %d, %v", p, n, err)
			}
		}
	}
	t.Run("small pieces go together", func(t *testing.T) {
		to := &slowConn{}
		c := held(to)
		write(t, c, "head ", "body ", "end")
		if to.pieces != 0 {
			t.Errorf("wrote %q", &to.got)
		}
		c.later()
		if to.got.String() != "head body end" || to.pieces != 1 || c.held != nil {
			t.Errorf("wrote %q in %d pieces", &to.got, to.pieces)
		}
		c.later()
		if to.pieces != 1 {
			t.Error("wrote nothing at all")
		}
	})
	t.Run("a large piece takes them along", func(t *testing.T) {
		to := &slowConn{}
		c, long := held(to), strings.Repeat("x", gatherRoom)
		write(t, c, long) // fits
		write(t, c, "y", "z")
		if got := to.got.String(); got != long+"y" {
			t.Errorf("wrote %d bytes", len(got))
		}
		write(t, c, long+"!")
		if got := to.got.String(); got != long+"yz"+long+"!" || c.n != 0 {
			t.Errorf("wrote %d bytes, %d are held", len(got), c.n)
		}
	})
	t.Run("at its turn", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			to := &slowConn{}
			c := held(to)
			c.due = false
			write(t, c, "a", "b")
			synctest.Wait()
			write(t, c, "c")
			synctest.Wait()
			if to.got.String() != "abc" {
				t.Errorf("wrote %q", &to.got)
			}
		})
	})
	t.Run("not for others", func(t *testing.T) {
		to := &slowConn{}
		write(t, &gathering{Conn: to, due: true}, "a", "b")
		if to.pieces != 2 {
			t.Errorf("wrote %q in %d pieces", &to.got, to.pieces)
		}
	})
	t.Run("errors", func(t *testing.T) {
		to := &slowConn{fail: errors.New("broken")}
		c := held(to)
		write(t, c, "lost")
		c.later()
		if n, err := c.Write([]byte("more")); n != 0 || err != to.fail {
			t.Errorf("%d, %v", n, err)
		}
		if n, err := held(to).Write(make([]byte, gatherRoom+1)); n != 0 || err != to.fail {
			t.Errorf("%d, %v", n, err)
		}
	})
	t.Run("before an end", func(t *testing.T) {
		to := &slowConn{}
		c := held(to)
		write(t, c, "a")
		_ = c.SetWriteDeadline(time.Unix(1, 0))
		write(t, c, "b")
		_ = c.SetDeadline(time.Unix(1, 0))
		write(t, c, "c")
		_ = c.Close()
		// Each has a deadline of its own before.
		want := "deadline after , deadline after a, deadline after a, deadline after ab, deadline after ab, close after abc"
		if got := strings.Join(to.calls, ", "); got != want {
			t.Error(got)
		}
	})
}

// A write that is stuck keeps nobody from closing, and who writes more waits for it.
func TestGatherStuck(t *testing.T) {
	to := &slowConn{entered: make(chan struct{}, 2), stuck: make(chan struct{})}
	c := held(to)
	c.due = false
	_, _ = c.Write([]byte("a"))
	<-to.entered
	wrote := make(chan error, 1)
	go func() {
		_, err := c.Write([]byte("b"))
		wrote <- err
	}()
	select {
	case err := <-wrote:
		t.Fatalf("more is taken than is held: %v", err)
	case <-time.After(50 * time.Millisecond):
	}
	_ = c.SetWriteDeadline(time.Unix(1, 0))
	_ = c.Close()
	to.fail = net.ErrClosed
	close(to.stuck)
	if err := <-wrote; err != net.ErrClosed {
		t.Error(err)
	}
}

// A client that takes nothing does not keep its connection from being closed: what is
// held is given up, too.
func TestGatherClosesFull(t *testing.T) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	client, err := net.Dial("tcp", listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	conn, err := listener.Accept()
	if err != nil {
		t.Fatal(err)
	}
	_ = conn.SetWriteDeadline(time.Now().Add(200 * time.Millisecond))
	for err == nil {
		_, err = conn.Write(make([]byte, 1<<20)) // until nothing fits
	}
	_ = conn.SetWriteDeadline(time.Time{})
	c := held(conn)
	_, _ = c.Write([]byte("last"))
	done := make(chan struct{})
	go func() { defer close(done); _ = c.SetWriteDeadline(time.Now().Add(time.Hour)); _ = c.Close() }()
	select {
	case <-done:
	case <-time.After(30 * time.Second):
		t.Error("it is not closed")
	}
}

type seenKey struct{}

// What is gathered is told by the handshake: of HTTP/2, and of nothing else. Both
// carry answers of any size whole.
func TestGatherByProtocol(t *testing.T) {
	sizes := []int{0, 1, 100, gatherRoom - 100, gatherRoom, 5 << 10, 50 << 10}
	handler := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		n := len(r.URL.Path) - 1
		_, _ = io.WriteString(w, strings.Repeat("x", n/2))
		_ = http.NewResponseController(w).Flush()
		_, _ = io.WriteString(w, strings.Repeat("y", n-n/2))
	})
	p := newPKI(t)
	anybody := p.listen()
	anybody.ClientCAs = nil
	for _, address := range []ListenAddress{p.listen(), anybody} {
		var gathers []bool // whether each connection does
		s := newTestServer(t, func(w http.ResponseWriter, r *http.Request) {
			gathers = append(gathers, r.Context().Value(seenKey{}).(*gathering).on.Load())
			handler(w, r)
		}, func(c *Config) { c.Listen = []ListenAddress{address} })
		if err := s.Listen(); err != nil {
			t.Fatal(err)
		}
		s.doors[0].server.ConnContext = func(ctx context.Context, conn net.Conn) context.Context {
			return context.WithValue(ctx, seenKey{}, conn.(*tls.Conn).NetConn())
		}
		run(t, s)
		server := s.Addresses()[0].String()
		for _, h2 := range []bool{true, false} {
			client := p.httpClient(t, h2, false)
			for _, n := range sizes {
				res, err := client.Get("https://" + server + "/" + strings.Repeat("p", n))
				if err != nil {
					t.Fatal(err)
				}
				body, err := io.ReadAll(res.Body)
				res.Body.Close()
				want := strings.Repeat("x", n/2) + strings.Repeat("y", n-n/2)
				if err != nil || string(body) != want || (res.ProtoMajor == 2) != h2 {
					t.Errorf("%d bytes over %s: %d bytes, %v", n, res.Proto, len(body), err)
				}
				if gathers[len(gathers)-1] != h2 {
					t.Errorf("over %s what is written is gathered: %v", res.Proto, !h2)
				}
			}
		}
	}
}

// Whose socket it is is known below TLS, too.
func TestPeerBelowTLS(t *testing.T) {
	conn := tls.Server(&gathering{Conn: &peerConn{uid: 7}}, nil)
	if uid, ok := authn.PeerUIDFrom(withPeer(t.Context(), conn)); uid != 7 || !ok {
		t.Error(uid, ok)
	}
}
