package upstream

import (
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"portico/gateway/upstream/retry"
)

// Safe requests are sent to the next endpoint after 502, 503, 504, and 429 with Retry-
// After.
func TestRetryOnAnswers(t *testing.T) {
	answer := func(code int, retryAfter string) http.HandlerFunc {
		return func(w http.ResponseWriter, _ *http.Request) {
			if retryAfter != "" {
				w.Header().Set("Retry-After", retryAfter)
			}
			w.WriteHeader(code)
			fmt.Fprint(w, "bad")
		}
	}
	for _, network := range []string{"tls", "unix"} {
		for _, c := range []struct {
			code       int
			retryAfter string
			elsewhere  bool // for safe requests
		}{
			{503, "", true}, {429, "7", true}, {429, "", false}, {500, "", false}, // retry.Allowed has the others
		} {
			bad, good := startNode(t, network, answer(c.code, c.retryAfter)), startNode(t, network, nil)
			for _, method := range []string{"GET", "HEAD", "OPTIONS", "POST", "PUT", "PATCH", "DELETE"} {
				for k, kind := range map[string]kind{"short": short, "long": long} {
					u := over(t, turns(), bad.endpoint(), good.endpoint())
					elsewhere := c.elsewhere && retry.Safe(method)
					got := send(t, u, kind, method, "")
					if want := map[bool]int{true: 200, false: c.code}[elsewhere]; got.code != want {
						t.Errorf("%s %s %s after %d: %d, %v", network, k, method, c.code, got.code, got.err)
					}
					if n := len(bad.seen()); n != 1 {
						t.Errorf("%s %s %s: the bad one saw %d", network, k, method, n)
					}
					if n := len(good.seen()); n == 1 != elsewhere || n > 1 {
						t.Errorf("%s %s %s after %d: the good one saw %d", network, k, method, c.code, n)
					}
					u.Close()
				}
			}
		}
	}
}

// If no endpoint has a better answer, the client gets the first unchanged.
func TestAnswerUntouched(t *testing.T) {
	busy := func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Retry-After", "7")
		w.WriteHeader(503)
		fmt.Fprint(w, "busy ", strings.Repeat("x", 100_000))
	}
	one, other := startNode(t, "tls", busy), startNode(t, "tls", busy)
	for name, list := range map[string][]Endpoint{
		"alone": {one.endpoint()}, "both say so": {one.endpoint(), other.endpoint()},
		"the other is gone": {one.endpoint(), At(closedPort(t))[0]},
	} {
		u := over(t, turns(), list...)
		got := send(t, u, short, "GET", "")
		if got.code != 503 || len(got.body) != 100_005 || got.err != nil {
			t.Errorf("%s: %d, %d bytes, %v", name, got.code, len(got.body), got.err)
		}
		if a, b := len(one.seen()), len(other.seen()); a != 1 || b > 1 {
			t.Errorf("%s: asked %d and %d times", name, a, b)
		}
	}
}

// After a failure before anything was sent, any request is sent to the next endpoint;
// after one that came later, only a safe request.
func TestRetryOnFailures(t *testing.T) {
	for name, c := range map[string]struct {
		eager  bool
		talk   func(net.Conn)
		unsent bool // any request may be sent again
	}{
		"no handshake":     {true, func(net.Conn) {}, true},
		"no TLS":           {true, func(c net.Conn) { io.WriteString(c, "HTTP/1.1 400 no TLS here\r\n\r\n") }, true},
		"no answer":        {false, func(net.Conn) {}, false},
		"garbage":          {false, func(c net.Conn) { io.WriteString(c, "what?\r\n\r\n") }, false},
		"half a header":    {false, func(c net.Conn) { io.WriteString(c, "HTTP/1.1 200 OK\r\nContent-") }, false},
		"another protocol": {false, func(c net.Conn) { io.WriteString(c, "HTTP/1.1 101 Switching\r\n\r\n") }, false},
	} {
		good := startNode(t, "tls", nil)
		for _, method := range []string{"GET", "POST", "DELETE"} {
			for _, body := range []string{"", "text", strings.Repeat("y", retry.MaxKeptBody+1)} {
				bad, requests := rough(t, c.eager, c.talk)
				u := over(t, turns(), bad, good.endpoint())
				elsewhere := c.unsent || retry.Safe(method)
				got := send(t, u, short, method, body)
				if !c.unsent && retry.Safe(method) && len(body) > retry.MaxKeptBody {
					// A body that is not kept cannot be sent again, unless the answer came
					// before anything was taken of it.
					elsewhere = got.err == nil
				}
				if (got.err == nil) != elsewhere {
					t.Errorf("%s: %s of %d bytes: %d %v", name, method, len(body), got.code, got.err)
				}
				want := []string{strings.TrimSpace(method + " " + body)}
				if seen := good.seen(); elsewhere && !slices.Equal(seen, want) || !elsewhere && len(seen) > 0 {
					t.Errorf("%s: %s of %d bytes: the good one saw %.80q", name, method, len(body), seen)
				}
				if n := requests(); n > 1 || c.unsent && n > 0 {
					t.Errorf("%s: %s: the bad one saw %d", name, method, n)
				}
				u.Close()
			}
		}
	}
}

// A request reaches the endpoint that listens, whatever its method and however many
// others refuse the connection.
func TestRetryOnRefused(t *testing.T) {
	good := startNode(t, "tls", nil)
	list := At(closedPort(t), closedPort(t), closedPort(t), closedPort(t), good.Listener.Addr().String())
	u := over(t, turns(), list...)
	for _, body := range []string{"text", strings.Repeat("y", 2*retry.MaxKeptBody)} {
		if got := send(t, u, short, "POST", body); got.code != 200 {
			t.Fatalf("%+v", got)
		}
		if seen := good.seen(); len(seen) != 1 || seen[0] != "POST "+body {
			t.Errorf("saw %.80q", seen)
		}
	}
	for range 20 { // any of them may be asked next
		send(t, u, short, "POST", "x")
	}
	// When all have refused, no request tries them again.
	got := send(t, u, short, "POST", "x")
	if a := got.trace.Attempts(); len(a) != 1 || a[0].Status != 200 {
		t.Errorf("%+v", a)
	}
}

// A GET that asks for another protocol is sent once.
func TestNoRetryOfUpgrades(t *testing.T) {
	bad, requests := rough(t, false, func(net.Conn) {})
	good := startNode(t, "tls", nil)
	u := over(t, turns(), bad, good.endpoint())
	if got := send(t, u, upgrade, "GET", "", "Connection", "Upgrade", "Upgrade", "websocket"); got.err == nil {
		t.Errorf("answered %d", got.code)
	}
	if requests() != 1 || len(good.seen()) != 0 {
		t.Error("it was sent again")
	}
	refusing := over(t, turns(), At(closedPort(t))[0], good.endpoint())
	if got := send(t, refusing, upgrade, "GET", "", "Connection", "Upgrade", "Upgrade", "websocket"); got.code != 200 {
		t.Errorf("the first refuses connections: %v", got.err)
	}
}

// A GET that asks for another protocol is sent once also after another on the same
// connection was refused.
func TestNoRetryOfUpgradesOnUsedConnections(t *testing.T) {
	var requests atomic.Int32
	n := startNode(t, "tls", func(w http.ResponseWriter, _ *http.Request) {
		if requests.Add(1) > 1 {
			panic(http.ErrAbortHandler)
		}
		w.WriteHeader(403)
	})
	u := over(t, turns(), n.endpoint())
	for i, code := range []int{403, 0} {
		if got := send(t, u, upgrade, "GET", "", "Connection", "Upgrade", "Upgrade", "websocket"); got.code != code {
			t.Errorf("%d: %d %v", i, got.code, got.err)
		}
	}
	if n := requests.Load(); n != 2 {
		t.Errorf("the server saw %d requests", n)
	}
}

// A POST with Idempotency-Key, which http.Transport would send again, is sent once.
func TestNoRetryByHeader(t *testing.T) {
	var requests atomic.Int32
	n := startNode(t, "tls", func(_ http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Idempotency-Key") != "1" {
			t.Error("the header is lost")
		}
		if requests.Add(1) > 1 {
			panic(http.ErrAbortHandler)
		}
	})
	u := over(t, turns(), n.endpoint())
	for i, want := range []bool{true, false} {
		// Expect: 100-continue is not sent directly.
		got := send(t, u, short, "POST", "", "Idempotency-Key", "1", "Expect", "100-continue")
		if (got.err == nil) != want {
			t.Errorf("%d: %v", i, got.err)
		}
	}
	if requests.Load() != 2 {
		t.Errorf("the server saw %d requests", requests.Load())
	}
}

// A request body that breaks off is a BodyError and does not count against an endpoint.
func TestBodyOfClient(t *testing.T) {
	a, b := startNode(t, "tls", nil), startNode(t, "tls", nil)
	for _, list := range [][]Endpoint{{a.endpoint()}, {a.endpoint(), b.endpoint()}} {
		p := turns()
		p.Timeouts.ResponseHeader = 0
		u := over(t, p, list...)
		for _, k := range []kind{short, long} {
			for _, length := range []int64{10, -1, retry.MaxKeptBody + 1} {
				req, _ := http.NewRequestWithContext(t.Context(), "PUT", "https://example.com/x", io.NopCloser(io.MultiReader(strings.NewReader("x"), failing{})))
				req.ContentLength = length
				var body *BodyError
				if _, err := u.send(req, k); !errors.As(err, &body) {
					t.Errorf("%d endpoints, kind %d, length %d: %v", len(list), k, length, err)
				}
			}
		}
		for _, e := range u.Status().Endpoints {
			if e.Errors != 0 {
				t.Errorf("of %d, blamed: %+v", len(list), e)
			}
		}
	}
	if len(a.seen())+len(b.seen()) != 0 {
		t.Error("half a request was taken for a whole one")
	}
}

// A request body that breaks off while the answer is read does not count against the
// endpoint, although the answer ends with it.
func TestBodyOfClientAfterAnswer(t *testing.T) {
	early := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_ = http.NewResponseController(w).EnableFullDuplex()
		_ = http.NewResponseController(w).Flush()
		_, _ = io.Copy(io.Discard, r.Body)
	}))
	early.EnableHTTP2 = true
	early.StartTLS()
	defer early.Close()
	for k, method := range map[kind]string{short: "POST", long: "GET"} {
		u := over(t, turns(), At(early.Listener.Addr().String())...)
		r, w := io.Pipe()
		req, _ := http.NewRequestWithContext(t.Context(), method, "https://example.com/x", r)
		res, err := u.send(req, k)
		if err != nil {
			t.Fatal(err)
		}
		w.CloseWithError(errors.New("the client went away"))
		_, _ = io.ReadAll(res.Body) // how that ends is the server's affair
		if e := u.Status().Endpoints[0]; e.Errors != 0 {
			t.Errorf("%v, blamed: %+v", k, e)
		}
	}
}

type failing struct{}

func (failing) Read([]byte) (int, error) { return 0, errors.New("the client went away") }

// A safe request whose answer does not begin in time is sent to another endpoint.
func TestHeaderTimeout(t *testing.T) {
	hang := make(chan struct{})
	slow := startNode(t, "tls", func(http.ResponseWriter, *http.Request) { <-hang })
	t.Cleanup(func() { close(hang) })
	p := turns()
	p.Timeouts.ResponseHeader = time.Second
	large := strings.Repeat("y", retry.MaxKeptBody+1)
	for name, c := range map[string]struct {
		method, body string
		alone, good  bool
	}{
		"GET": {"GET", "", false, true}, "GET with a body": {"GET", "x", false, true}, "GET with a large one": {"GET", large, false, false},
		"POST": {"POST", "", false, false}, "POST with a body": {"POST", large, false, false}, "GET, alone": {"GET", "", true, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			good := startNode(t, "tls", nil)
			list := []Endpoint{slow.endpoint(), good.endpoint()}
			if c.alone {
				list = list[:1]
			}
			got := send(t, over(t, p, list...), short, c.method, c.body)
			if c.good && got.code != 200 || !c.good && !errors.Is(got.err, errHeaderTimeout) || !c.good && len(good.seen()) != 0 {
				t.Errorf("%d %v", got.code, got.err)
			}
		})
	}
}

// A watch has no response header timeout.
func TestNoHeaderTimeout(t *testing.T) {
	p := turns()
	p.Timeouts.ResponseHeader = 20 * time.Millisecond
	slow := startNode(t, "tls", func(http.ResponseWriter, *http.Request) { time.Sleep(5 * p.Timeouts.ResponseHeader) })
	if got := send(t, over(t, p, slow.endpoint()), long, "GET", ""); got.code != 200 {
		t.Errorf("%d %v", got.code, got.err)
	}
}

// The response header timeout does not bound the rest of an answer, even if the client
// still sends.
func TestHeaderTimeoutEnds(t *testing.T) {
	p := turns()
	p.Timeouts.ResponseHeader = 50 * time.Millisecond
	early := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_ = http.NewResponseController(w).EnableFullDuplex()
		_ = http.NewResponseController(w).Flush()
		_, _ = io.Copy(io.Discard, r.Body)
		time.Sleep(4 * p.Timeouts.ResponseHeader)
		fmt.Fprint(w, "done")
	}))
	early.StartTLS()
	defer early.Close()
	u := over(t, p, At(early.Listener.Addr().String())...)
	r, w := io.Pipe()
	req, _ := http.NewRequestWithContext(t.Context(), "POST", "https://example.com/x", r)
	req.ContentLength = -1
	res, err := u.Short().RoundTrip(req)
	if err != nil {
		t.Fatal(err)
	}
	fmt.Fprint(w, "late")
	w.Close()
	if body, err := io.ReadAll(res.Body); err != nil || string(body) != "done" {
		t.Errorf("%q %v", body, err)
	}
}

// A budget of 0 % and 0 a second disables retries.
func TestNoRetries(t *testing.T) {
	good := startNode(t, "tls", nil)
	p := turns()
	p.Retries.BudgetPercent, p.Retries.MinPerSecond = 0, 0
	u := over(t, p, At(closedPort(t))[0], good.endpoint())
	if got := send(t, u, short, "GET", ""); got.err == nil {
		t.Error("it was sent again")
	}
}

// Attempts and the budget bound the retries that reach servers.
func TestRetryBounds(t *testing.T) {
	var all []*node
	var list []Endpoint
	for range 5 {
		n := startNode(t, "tls", func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(503) })
		all, list = append(all, n), append(list, n.endpoint())
	}
	count := func() (sum int) {
		for _, n := range all {
			sum += len(n.seen())
		}
		return sum
	}
	p := turns()
	p.Retries.Attempts, p.Outlier.ConsecutiveErrors = 4, 0
	p.Retries.MinPerSecond = 1000
	if send(t, over(t, p, list...), short, "GET", ""); count() != 4 {
		t.Error("not 4 attempts")
	}
	p.Retries.BudgetPercent, p.Retries.MinPerSecond = 20, 0
	u := over(t, p, list...)
	for range 50 {
		send(t, u, short, "GET", "")
	}
	if n := count(); n > 60 || n < 58 {
		t.Errorf("%d attempts for 50 requests and 20 %%", n)
	}
	if u.Status().OutOfBudget == 0 {
		t.Error("OutOfBudget is 0")
	}
}
