package upstream

import (
	"context"
	"net"
	"strings"
	"testing"
	"time"
)

// accepting listens and returns its address.
func accepting(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	return l.Addr().String()
}

func TestDialGoesOnToTheNextAddress(t *testing.T) {
	good := accepting(t)
	e := newEndpoints("tcp", []string{closedPort(t), good, closedPort(t)})
	for range 20 { // whatever order the addresses come in
		conn, err := e.dial(t.Context(), &net.Dialer{Timeout: 10 * time.Second})
		if err != nil {
			t.Fatal(err)
		}
		if got := conn.RemoteAddr().String(); got != good {
			t.Errorf("connected to %s", got)
		}
		conn.Close()
	}
}

func TestDialUsesAllAddresses(t *testing.T) {
	want := map[string]bool{accepting(t): true, accepting(t): true, accepting(t): true}
	var list []string
	for a := range want {
		list = append(list, a)
	}
	e := newEndpoints("tcp", list)
	for i := 0; len(want) > 0; i++ {
		if i == 1000 {
			t.Fatalf("never tried: %v", want)
		}
		conn, err := e.dial(t.Context(), &net.Dialer{Timeout: 10 * time.Second})
		if err != nil {
			t.Fatal(err)
		}
		delete(want, conn.RemoteAddr().String())
		conn.Close()
	}
}

func TestDialFails(t *testing.T) {
	e := newEndpoints("tcp", []string{closedPort(t), closedPort(t)})
	_, err := e.dial(t.Context(), &net.Dialer{})
	if err == nil || !IsDialError(err) || strings.Count(err.Error(), "refused") != 2 {
		t.Errorf("all refuse: %v", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := e.dial(ctx, &net.Dialer{}); err == nil || strings.Contains(err.Error(), "dial all") {
		t.Errorf("a dead context goes on to the next address: %v", err)
	}
	e.set(nil)
	if _, err := e.dial(t.Context(), &net.Dialer{}); err == nil || !IsDialError(err) {
		t.Errorf("no address: %v; nothing was sent, so it must count as a failure to connect", err)
	}
	good := accepting(t)
	e.set([]string{good})
	conn, err := e.dial(t.Context(), &net.Dialer{Timeout: 10 * time.Second})
	if err != nil {
		t.Fatalf("new addresses: %v", err)
	}
	conn.Close()
}
