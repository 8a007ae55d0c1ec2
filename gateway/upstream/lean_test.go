package upstream

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"
)

// What a watch brings is what was sent, in pieces of any size; while it waits there
// is no buffer, and it ends with its request.
func TestLeanWatch(t *testing.T) {
	s := newSocket(t)
	s.lean = true
	next, hash, done := make(chan int), sha256.New(), make(chan struct{})
	s.serve(t, func(w http.ResponseWriter, r *http.Request) {
		defer close(done)
		_ = http.NewResponseController(w).Flush()
		for size := range next {
			piece := make([]byte, size)
			for i := range piece {
				piece[i] = byte(rand.Int())
			}
			hash.Write(piece)
			_, _ = w.Write(piece)
			_ = http.NewResponseController(w).Flush()
		}
		<-r.Context().Done()
	})
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	req, _ := http.NewRequestWithContext(ctx, "GET", "http://backend/", nil)
	res, err := s.RoundTrip(req)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	got := sha256.New()
	c := res.Body.(*responseBody).conn
	for range 500 {
		left := 1 + rand.IntN(1<<rand.IntN(18))
		next <- left
		for buffer := make([]byte, 1+rand.IntN(40000)); left > 0; {
			n, err := res.Body.Read(buffer)
			if got.Write(buffer[:n]); err != nil {
				t.Fatal(err)
			}
			left -= n
		}
	}
	close(next)
	if c.br.Size() != leanBuffer {
		t.Errorf("%d bytes are held", c.br.Size())
	}
	ended := make(chan error)
	go func() {
		_, err := io.Copy(got, res.Body)
		ended <- err
	}()
	select {
	case err := <-ended:
		t.Fatalf("it ended: %v", err)
	case <-time.After(50 * time.Millisecond):
	}
	cancel()
	if err := <-ended; !errors.Is(err, context.Canceled) {
		t.Errorf("it ended: %v", err)
	}
	if c.lean.buffer != nil {
		t.Error("it waited with a buffer in hand")
	}
	select {
	case <-done:
	case <-time.After(20 * time.Second):
		t.Fatal("the server goes on")
	}
	if !bytes.Equal(got.Sum(nil), hash.Sum(nil)) {
		t.Error("something else was read than was sent")
	}
}

// Ends of a connection are those they would be, and surplus is no answer to the next
// request.
func TestLeanEnds(t *testing.T) {
	long := strings.Repeat("x", 2000) // more than is held
	for name, c := range map[string]struct {
		answer string
		body   string
		err    error
		dials  int32
	}{
		"whole":               {"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nok\r\n0\r\n\r\n", "ok", nil, 1},
		"surplus":             {"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nok\r\n0\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nbad", "ok", nil, 2},
		"surplus of a length": {"HTTP/1.1 200 OK\r\nContent-Length: 2000\r\n\r\n" + long + "HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nbad", long, nil, 2},
		"cut":                 {"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nok\r\n", "ok", io.ErrUnexpectedEOF, 2},
	} {
		t.Run(name, func(t *testing.T) {
			s := newSocket(t)
			s.lean = true
			l, err := net.Listen("unix", s.path)
			if err != nil {
				t.Fatal(err)
			}
			defer l.Close()
			go func() {
				for {
					conn, err := l.Accept()
					if err != nil {
						return
					}
					go func() {
						defer conn.Close()
						for in := make([]byte, 4096); ; {
							if _, err := conn.Read(in); err != nil {
								return
							}
							_, _ = io.WriteString(conn, c.answer)
							if c.err != nil {
								return
							}
						}
					}()
				}
			}()
			for range 2 {
				res, err := s.try(t, "GET", "/", "")
				if err != nil {
					t.Fatal(err)
				}
				if body, err := io.ReadAll(res.Body); string(body) != c.body || !errors.Is(err, c.err) {
					t.Errorf("%q %v", body, err)
				}
				res.Body.Close()
			}
			if n := s.dials.Load(); n != c.dials {
				t.Errorf("connected %d times, want %d", n, c.dials)
			}
		})
	}
}
