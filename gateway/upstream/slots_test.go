package upstream

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// A limiter admits requests up to its limit and queues more, first come, first served;
// a request that ends leaves the queue, and new bounds hold at once.
func TestLimiter(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var l limiter
		l.set(2, 3)
		enter := func() error { _, err := l.enter(t.Context(), ""); return err }
		for range 2 {
			if err := enter(); err != nil {
				t.Fatal(err)
			}
		}
		var order []int
		ctx, cancel := context.WithCancelCause(t.Context())
		gone := errors.New("gone")
		var all sync.WaitGroup
		for i := range 3 {
			all.Go(func() {
				c := t.Context()
				if i == 1 {
					c = ctx
				}
				if _, err := l.enter(c, ""); err != nil {
					if i != 1 || err != gone {
						t.Error(i, err)
					}
					return
				}
				order = append(order, i)
			})
			synctest.Wait()
		}
		var overload *OverloadError
		if err := enter(); !errors.As(err, &overload) {
			t.Errorf("the queue is full: %v", err)
		}
		cancel(gone)
		synctest.Wait()
		if l.waiting.InUse() != 2 || len(order) != 0 {
			t.Errorf("%d wait, %v entered", l.waiting.InUse(), order)
		}
		l.leave("")
		synctest.Wait()
		l.leave("")
		all.Wait()
		if fmt.Sprint(order) != "[0 2]" || l.active.InUse() != 2 {
			t.Errorf("%v entered, %d are active", order, l.active.InUse())
		}
		done := make(chan error)
		go func() { done <- enter() }()
		synctest.Wait()
		l.set(3, 0)
		if err := <-done; err != nil {
			t.Error(err)
		}
		if err := enter(); !errors.As(err, &overload) {
			t.Errorf("no queue: %v", err)
		}
		l.set(0, 0)
		for range 1000 {
			if err := enter(); err != nil {
				t.Fatal(err)
			}
		}
	})
}

// A waiting request whose user has its share of the slots is passed over.
func TestLimiterSharesSlots(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var l limiter
		l.set(4, 10)
		admitted := make(chan string, 10)
		for i, user := range []string{"a", "a", "a", "b", "a", "c"} { // the last two wait
			go func() {
				if _, err := l.enter(t.Context(), user); err != nil {
					t.Error(err)
				}
				if i > 3 {
					admitted <- user
				}
			}()
			synctest.Wait()
		}
		for _, c := range [][2]string{{"b", "c"}, {"a", "a"}} {
			if l.leave(c[0]); <-admitted != c[1] {
				t.Errorf("a slot of %s is not given to %s", c[0], c[1])
			}
		}
	})
}

// The limit holds under concurrent requests, some of which end while they wait, and at
// the end nothing is held.
func TestLimiterConcurrently(t *testing.T) {
	var l limiter
	l.set(4, 1000)
	var now, most atomic.Int64
	var all sync.WaitGroup
	for g := range 32 {
		all.Go(func() {
			for i := range 200 {
				ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
				if (g+i)%5 == 0 {
					cancel()
				}
				if _, err := l.enter(ctx, ""); err == nil {
					if n := now.Add(1); n > most.Load() {
						most.Store(n)
					}
					now.Add(-1)
					l.leave("")
				}
				cancel()
			}
		})
	}
	all.Wait()
	if most.Load() > 4 || l.active.InUse() != 0 || l.waiting.InUse() != 0 || l.queue.Len() != 0 {
		t.Errorf("%d at once; %d active, %d waiting at the end", most.Load(), l.active.InUse(), l.waiting.InUse())
	}
}

// A slot is released at the end of an answer, however that ends; watches take none.
func TestLimitOfRequests(t *testing.T) {
	arrived, hang := make(chan struct{}), make(chan struct{})
	n := startNode(t, "unix", func(w http.ResponseWriter, r *http.Request) {
		switch r.Header.Get("X-Do") {
		case "hang":
			close(arrived)
			<-hang
		case "break":
			panic(http.ErrAbortHandler)
		case "nothing":
			w.WriteHeader(204)
		default:
			fmt.Fprint(w, strings.Repeat("x", 100_000))
		}
	})
	p := turns()
	p.Limits.Concurrent, p.Limits.Queue = 1, 0
	u := over(t, p, n.endpoint())
	for _, do := range []string{"", "nothing", "break", "", "unread", ""} {
		if do == "unread" {
			req, _ := http.NewRequestWithContext(t.Context(), "GET", "http://server/", nil)
			res, err := u.Short().RoundTrip(req)
			if err != nil {
				t.Fatal(err)
			}
			if got := send(t, u, short, "GET", ""); got.err == nil {
				t.Error("an answer that is being read holds no slot")
			}
			res.Body.Close()
			continue
		}
		var overload *OverloadError
		if got := send(t, u, short, "GET", "", "X-Do", do); errors.As(got.err, &overload) {
			t.Errorf("%q: the slot of the last is not free", do)
		}
	}
	var waits sync.WaitGroup
	waits.Go(func() { send(t, u, short, "GET", "", "X-Do", "hang") })
	defer waits.Wait()
	<-arrived
	if got := send(t, u, long, "GET", ""); got.code != 200 {
		t.Errorf("a long one: %v", got.err)
	}
	if got := send(t, u, short, "GET", ""); got.err == nil {
		t.Error("there was a slot")
	}
	close(hang)
	if s := u.Status(); s.Overflowed != 2 {
		t.Errorf("%+v", s)
	}
}

// A request that leaves HTTP gets the connection, in both directions.
func TestTunnel(t *testing.T) {
	for _, network := range []string{"tls", "unix"} {
		n := startNode(t, network, func(w http.ResponseWriter, _ *http.Request) {
			conn, rw, err := http.NewResponseController(w).Hijack()
			if err != nil {
				t.Error(err)
				return
			}
			defer conn.Close()
			io.WriteString(conn, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: echo\r\n\r\n")
			line, _ := rw.ReadString('\n')
			io.WriteString(conn, line)
		})
		u := over(t, turns(), n.endpoint())
		req, _ := http.NewRequestWithContext(t.Context(), "GET", "https://example.com/exec", nil)
		req.Header.Set("Connection", "Upgrade")
		req.Header.Set("Upgrade", "echo")
		res, err := u.Upgrade().RoundTrip(req)
		if err != nil {
			t.Fatal(err)
		}
		conn, ok := res.Body.(io.ReadWriteCloser)
		if !ok || res.StatusCode != 101 || u.Status().Endpoints[0].Active != 1 {
			t.Fatalf("%d %T", res.StatusCode, res.Body)
		}
		io.WriteString(conn, "hello\n")
		if line, err := bufio.NewReader(conn).ReadString('\n'); err != nil || line != "hello\n" {
			t.Errorf("%q %v", line, err)
		}
		conn.Close()
		if s := u.Status(); s.Endpoints[0].Active != 0 {
			t.Error("it is never over")
		}
		if got := send(t, u, short, "GET", "", "Connection", "Upgrade", "Upgrade", "echo"); !errors.Is(got.err, ErrSwitched) {
			t.Errorf("the protocol was switched: %d %v", got.code, got.err)
		}
	}
}

// Bytes beyond an answer that are still in a TLS record are not taken for the next
// answer.
func TestSurplusBelowTLS(t *testing.T) {
	// In one record, and read past the buffer above TLS.
	const length = 12_000
	e, requests := rough(t, false, func(c net.Conn) {
		io.WriteString(c, fmt.Sprintf("HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n", length)+
			strings.Repeat("x", length)+"HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nevil")
		_, _ = io.Copy(io.Discard, c)
	})
	u := over(t, turns(), e)
	for range 3 {
		req, _ := http.NewRequestWithContext(t.Context(), "GET", "https://example.com/", nil)
		res, err := u.Short().RoundTrip(req)
		if err != nil {
			t.Fatal(err)
		}
		b := make([]byte, 2*length)
		n, err := io.ReadFull(res.Body, b)
		if n != length || err != io.ErrUnexpectedEOF {
			t.Errorf("%.20q %v", b[:n], err)
		}
		res.Body.Close()
	}
	if requests() != 3 {
		t.Error(requests())
	}
}
