package serve

import (
	"bytes"
	"errors"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"
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
func held(to net.Conn) *gathering { return &gathering{Conn: to, on: true, due: true} }

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
			c := &gathering{Conn: to, on: true}
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
		if got := strings.Join(to.calls, ", "); got != "deadline after a, deadline after ab, close after abc" {
			t.Error(got)
		}
	})
}

// A write that is stuck keeps nobody from closing, and who writes more waits for it.
func TestGatherStuck(t *testing.T) {
	to := &slowConn{entered: make(chan struct{}, 2), stuck: make(chan struct{})}
	c := &gathering{Conn: to, on: true}
	_, _ = c.Write([]byte("a"))
	<-to.entered
	wrote := make(chan error, 1)
	go func() {
		_, err := c.Write([]byte("b"))
		wrote <- err
	}()
	select {
	case err := <-wrote:
		t.Errorf("more is taken than is held: %v", err)
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

// What is gathered is told by the handshake: of HTTP/2, and of nothing else. Both
// carry answers of any size whole.
func TestGatherByProtocol(t *testing.T) {
	sizes := []int{0, 1, 100, gatherRoom - 100, gatherRoom, 5 << 10, 100 << 10}
	handler := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		n := len(r.URL.Path) - 1
		_, _ = io.WriteString(w, strings.Repeat("x", n/2))
		_ = http.NewResponseController(w).Flush()
		_, _ = io.WriteString(w, strings.Repeat("y", n-n/2))
	})
	p := newPKI(t)
	s := newTestServer(t, handler, func(c *Config) { c.Listen = []ListenAddress{p.listen()} })
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
		}
	}
}
