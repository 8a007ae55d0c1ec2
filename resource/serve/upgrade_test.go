package serve

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"portico/resource/serve/inflight"
)

// pathConsole is a connect subresource that only its server knows.
const pathConsole = "/apis/vms.example.com/v1/namespaces/a/vms/b/console"

// echo hijacks the connection and sends back what it reads until either side closes it. Then it
// sends the cause of the end of the request's context to ended.
func echo(ended chan<- error) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		conn, rw, err := http.NewResponseController(w).Hijack()
		if err != nil {
			http.Error(w, err.Error(), http.StatusInternalServerError)
			return
		}
		defer conn.Close()
		stop := context.AfterFunc(r.Context(), func() { conn.Close() })
		defer stop()
		fmt.Fprintf(rw, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: echo\r\nAudit-Id: %s\r\n\r\n", w.Header().Get("Audit-Id"))
		_ = rw.Flush()
		_, _ = io.Copy(conn, rw)
		ended <- context.Cause(r.Context())
	}
}

// askUpgrade sends a request for another protocol on a new connection.
func askUpgrade(t *testing.T, s *testServer, target string) (net.Conn, *bufio.Reader) {
	t.Helper()
	conn := s.dial(t)
	fmt.Fprintf(conn, "GET %s HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\nUpgrade: echo\r\nAudit-ID: mine\r\n\r\n", target)
	return conn, bufio.NewReader(conn)
}

// upgraded sends requests for another protocol until the server accepts one: on a busy
// machine the deadline may pass before.
func upgraded(t *testing.T, s *testServer, target string) (net.Conn, *bufio.Reader) {
	t.Helper()
	for range 50 {
		conn, reader := askUpgrade(t, s, target)
		response, err := http.ReadResponse(reader, nil)
		switch {
		case err != nil:
			t.Fatal(err)
		case response.StatusCode == http.StatusSwitchingProtocols:
			if id := response.Header.Get("Audit-Id"); id != "mine" {
				t.Errorf("the Audit-ID is %q", id)
			}
			return conn, reader
		case response.StatusCode != http.StatusGatewayTimeout:
			t.Fatalf("got %s", response.Status)
		}
	}
	t.Fatal("no request was answered in time")
	return nil, nil
}

func exchangeWords(t *testing.T, conn net.Conn, from *bufio.Reader) {
	t.Helper()
	fmt.Fprint(conn, "hello\n")
	if line, err := from.ReadString('\n'); line != "hello\n" {
		t.Fatalf("got %q, %v", line, err)
	}
}

// A request with a hijacked connection has no deadline, holds no slot in flight, and is
// long-running for metrics, audit and shutdown. So is one that is long-running by its path.
func TestUpgradedRequestIsLongRunning(t *testing.T) {
	t.Parallel()
	const limit = 100 * time.Millisecond
	for target, group := range map[string]string{
		pathConsole:          `group="vms.example.com",resource="vms",scope="resource",subresource="console",verb="GET"`,
		pathPods + "/x/exec": `group="",resource="pods",scope="resource",subresource="exec",verb="CONNECT"`,
	} {
		t.Run(target, func(t *testing.T) {
			t.Parallel()
			ended := make(chan error, 1)
			change, events := auditing(t, completed, batched)
			routes := NewRouter(Routes{Resources: echo(ended), Discovery: http.HandlerFunc(nothing)})
			s := newTestServer(t, routes.ServeHTTP, change, func(c *testConfig) {
				c.RequestTimeout, c.MaxInFlight, c.Server.ShutdownTimeout = limit, 1, time.Hour
			})
			stop := s.start(t)
			conn, from := upgraded(t, s, target)
			exchangeWords(t, conn, from)
			<-time.After(2 * limit)
			exchangeWords(t, conn, from)
			if response, _ := get(t, s.client(t, false), "http://x/api"); response.StatusCode != 200 {
				t.Errorf("another request got %s: the slot in flight is not released", response.Status)
			}
			series := `apiserver_longrunning_requests{component="apiserver",` + group + `,version="v1"}`
			wantGauge(t, s, series, "1")
			conn.Close()
			if err := <-ended; err != nil && err != context.Canceled { // net/http cancels it at the end of the connection
				t.Errorf("it ended for %v, not with the connection", err)
			}
			other, _ := upgraded(t, s, target)
			stop() // ShutdownTimeout is for short requests
			if err := <-ended; !errors.Is(err, inflight.ErrShuttingDown) {
				t.Errorf("at shutdown it ended for %v", err)
			}
			if _, err := other.Read(make([]byte, 1)); err == nil {
				t.Error("the connection continues")
			}
			wantGauge(t, s, series, "0")
			got := told(events())
			for _, stage := range []string{"ResponseStarted", "ResponseComplete"} {
				if n := strings.Count(got, stage+" "); strings.Count(got, target+" jane 101") != 4 || n < 2 {
					t.Errorf("want two events %s among\n%s", stage, got)
				}
			}
		})
	}
}

// A request that only asks for another protocol has a deadline and holds a slot in flight.
func TestUpgradeRequestHasDeadlineAndSlot(t *testing.T) {
	t.Parallel()
	hijack, arrived := make(chan error, 1), make(chan struct{}, 1)
	s := newTestServer(t, func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Upgrade") == "" {
			return
		}
		arrived <- struct{}{}
		<-r.Context().Done()
		if err := context.Cause(r.Context()); err != context.DeadlineExceeded {
			t.Errorf("the context ended with %v", err)
		}
		_, _, err := http.NewResponseController(w).Hijack()
		hijack <- err
	}, func(c *testConfig) { c.MaxInFlight = 1 })
	s.start(t)
	_, from := askUpgrade(t, s, pathConsole+"?timeout=300ms")
	<-arrived
	if response, _ := get(t, s.client(t, false), "http://x"+pathPods); response.StatusCode != 429 && len(hijack) == 0 {
		t.Errorf("another request got %s: it has no slot in flight", response.Status)
	}
	response, err := http.ReadResponse(from, nil)
	if err != nil {
		t.Fatal(err)
	}
	wantStatus(t, response.Body, 504, metav1.StatusReasonTimeout, timedOut)
	if err := <-hijack; !errors.Is(err, http.ErrHandlerTimeout) {
		t.Errorf("after its deadline it was hijacked: %v", err)
	}
}

// The connection of a request that does not ask for another protocol cannot be hijacked: its
// deadline could not be removed.
func TestHijackNeedsUpgradeRequest(t *testing.T) {
	t.Parallel()
	s := newTestServer(t, func(w http.ResponseWriter, r *http.Request) {
		if _, _, err := http.NewResponseController(w).Hijack(); !errors.Is(err, http.ErrNotSupported) {
			t.Errorf("got %v", err)
		}
	})
	s.start(t)
	get(t, s.client(t, false), "http://x"+pathPods)
}

// A server that ends its long-running requests admits no more of them.
func TestNoUpgradeAtShutdown(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		late := make(chan error, 1)
		s := newTestServer(t, func(w http.ResponseWriter, r *http.Request) {
			<-time.After(time.Minute)
			_, _, err := http.NewResponseController(w).Hijack()
			late <- err
		}, func(c *testConfig) { c.RequestTimeout, c.Server.ShutdownTimeout = time.Hour, time.Second })
		inBackground(s, pathConsole, "Connection", "Upgrade", "Upgrade", "echo")
		synctest.Wait()
		s.shutdown()
		if err := <-late; err != inflight.ErrShuttingDown {
			t.Errorf("got %v", err)
		}
		if n := s.longRunning(); n != 0 {
			t.Errorf("%d long-running requests", n)
		}
	})
}

// A hijacked connection is closed at shutdown, also if its handler does not close it.
func TestHijackedConnectionsEndAtShutdown(t *testing.T) {
	t.Parallel()
	hijacked := make(chan struct{})
	s := newTestServer(t, func(w http.ResponseWriter, r *http.Request) {
		conn, rw, err := http.NewResponseController(w).Hijack()
		if err != nil {
			t.Error(err)
			return
		}
		defer conn.Close()
		hijacked <- struct{}{}
		_, _ = rw.ReadString('\n') // nothing is sent
	})
	stop := s.start(t)
	var conns []net.Conn
	for _, target := range []string{pathConsole, pathPods + "/x/exec"} {
		conn, _ := askUpgrade(t, s, target)
		conns = append(conns, conn)
		<-hijacked
	}
	go stop()
	for i, conn := range conns {
		if _, err := conn.Read(make([]byte, 1)); err != io.EOF {
			t.Errorf("connection %d: got %v", i, err)
		}
	}
	if stop(); s.longRunning() != 0 {
		t.Errorf("%d long-running requests", s.longRunning())
	}
}
