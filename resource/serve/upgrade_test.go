package serve

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"portico/resource/audit"
	"portico/resource/serve/inflight"
	"portico/resource/serve/metrics"
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

// leave sends requests for another protocol until the server on a socket accepts one: on a busy
// machine the deadline may pass before.
func leave(t *testing.T, path, target string) (net.Conn, *bufio.Reader) {
	t.Helper()
	for range 20 {
		conn, err := net.Dial("unix", path)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { conn.Close() })
		fmt.Fprintf(conn, "GET %s HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\nUpgrade: echo\r\nAudit-ID: mine\r\n\r\n", target)
		reader := bufio.NewReader(conn)
		response, err := http.ReadResponse(reader, nil)
		switch {
		case err != nil:
			t.Fatal(err)
		case response.StatusCode == http.StatusSwitchingProtocols:
			if id := response.Header.Get("Audit-Id"); id != "mine" {
				t.Errorf("the audit ID is %q", id)
			}
			return conn, reader
		case response.StatusCode != http.StatusGatewayTimeout:
			t.Fatalf("got %s", response.Status)
		}
	}
	t.Fatal("it was not answered in time, ever")
	return nil, nil
}

func exchangeWords(t *testing.T, conn net.Conn, from *bufio.Reader) {
	t.Helper()
	fmt.Fprint(conn, "hello\n")
	if line, err := from.ReadString('\n'); line != "hello\n" {
		t.Fatalf("got %q, %v", line, err)
	}
}

// A request whose connection was hijacked has no deadline, holds no slot in flight, and is
// long-running for metrics, audit and shutdown.
func TestUpgradedRequestIsLongRunning(t *testing.T) {
	const limit = 200 * time.Millisecond
	m, ended := metrics.New(), make(chan error, 1)
	change, events := auditing(t, "- {level: Metadata, omitStages: [RequestReceived]}\n", func(o *audit.Options) { o.Log.Delivery.Mode = audit.ModeBatch })
	s := newTestServer(t, func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Upgrade") == "" {
			return
		}
		echo(ended)(w, r)
	}, change, func(c *testConfig) {
		c.Metrics, c.RequestTimeout, c.MaxInFlight, c.Server.ShutdownTimeout = m, limit, 1, time.Hour
	})
	if err := s.Listen(); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- s.Run(ctx) }()
	path := strings.TrimPrefix(s.cfg.Listen[0].Address, unixPrefix)

	conn, from := leave(t, path, pathConsole)
	exchangeWords(t, conn, from)
	<-time.After(2 * limit)
	exchangeWords(t, conn, from)
	if response, _ := get(t, socketClient(t, path, false), "http://x"+pathPods); response.StatusCode != 200 {
		t.Errorf("another request got %s: the slot in flight is not released", response.Status)
	}
	const line = `apiserver_longrunning_requests{component="apiserver",group="vms.example.com",resource="vms",scope="resource",subresource="console",verb="GET",version="v1"} `
	if got := scrape(m, "apiserver_longrunning_requests{"); !slices.Equal(got, []string{line + "1"}) {
		t.Errorf("while it lasts: %q", got)
	}
	conn.Close()
	if err := <-ended; err != nil && err != context.Canceled { // net/http cancels it at the end of the connection
		t.Errorf("it ended for %v, not with the connection", err)
	}
	other, _ := leave(t, path, pathConsole)
	cancel() // ShutdownTimeout is for short requests
	if err := <-ended; !errors.Is(err, inflight.ErrShuttingDown) {
		t.Errorf("at shutdown it ended for %v", err)
	}
	if _, err := other.Read(make([]byte, 1)); err == nil {
		t.Error("the connection goes on")
	}
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	if got := scrape(m, "apiserver_longrunning_requests{"); !slices.Equal(got, []string{line + "0"}) {
		t.Errorf("at the end: %q", got)
	}
	if got := told(events()); strings.Count(got, "ResponseStarted get "+pathConsole+" jane 101") != 2 || strings.Count(got, "ResponseComplete get "+pathConsole+" jane 101") != 2 {
		t.Errorf("audit has\n%s", got)
	}
}

// A request that only asks for another protocol has a deadline and holds a slot in flight.
func TestUpgradeRequestHasDeadlineAndSlot(t *testing.T) {
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
	run(t, s)
	path := strings.TrimPrefix(s.cfg.Listen[0].Address, unixPrefix)
	conn, err := net.Dial("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	fmt.Fprintf(conn, "GET %s?timeout=300ms HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\nUpgrade: echo\r\n\r\n", pathConsole)
	<-arrived
	if len(hijack) == 0 {
		if response, _ := get(t, socketClient(t, path, false), "http://x"+pathPods); response.StatusCode != 429 && len(hijack) == 0 {
			t.Errorf("another request got %s: it has no slot in flight", response.Status)
		}
	}
	response, err := http.ReadResponse(bufio.NewReader(conn), nil)
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
	s := newTestServer(t, func(w http.ResponseWriter, r *http.Request) {
		if _, _, err := http.NewResponseController(w).Hijack(); !errors.Is(err, http.ErrNotSupported) {
			t.Errorf("got %v", err)
		}
	})
	run(t, s)
	get(t, socketClient(t, strings.TrimPrefix(s.cfg.Listen[0].Address, unixPrefix), false), "http://x"+pathPods)
}

// A server that ends its long-running requests admits no more of them.
func TestNoUpgradeAtShutdown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		late := make(chan error, 1)
		s := newTestServer(t, func(w http.ResponseWriter, r *http.Request) {
			<-time.After(time.Minute)
			_, _, err := http.NewResponseController(w).Hijack()
			late <- err
		}, func(c *testConfig) { c.RequestTimeout, c.Server.ShutdownTimeout = time.Hour, time.Second })
		go func() {
			r := httptest.NewRequest("GET", pathConsole, nil)
			r.Header.Set("Connection", "Upgrade")
			r.Header.Set("Upgrade", "echo")
			s.Handler().ServeHTTP(httptest.NewRecorder(), r)
		}()
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
	for _, target := range []string{pathConsole, pathPods + "/x/exec"} {
		taken := make(chan struct{})
		s := newTestServer(t, func(w http.ResponseWriter, r *http.Request) {
			conn, rw, err := http.NewResponseController(w).Hijack()
			if err != nil {
				t.Error(err)
				return
			}
			defer conn.Close()
			close(taken)
			_, _ = rw.ReadString('\n') // nothing comes
		})
		if err := s.Listen(); err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { done <- s.Run(ctx) }()
		conn, err := net.Dial("unix", strings.TrimPrefix(s.cfg.Listen[0].Address, unixPrefix))
		if err != nil {
			t.Fatal(err)
		}
		fmt.Fprintf(conn, "GET %s HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\nUpgrade: echo\r\n\r\n", target)
		<-taken
		cancel()
		if _, err := conn.Read(make([]byte, 1)); err != io.EOF {
			t.Errorf("%s: got %v", target, err)
		}
		if err := <-done; err != nil || s.longRunning() != 0 {
			t.Errorf("%s: %v, %d long-running requests", target, err, s.longRunning())
		}
		conn.Close()
	}
}
