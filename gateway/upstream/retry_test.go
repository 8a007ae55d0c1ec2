package upstream

import (
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"portico/gateway/upstream/retry"
	"portico/resource/rest/body"
)

// Safe requests are sent to the next endpoint after 503 and 429 with Retry-After, over
// every protocol; retry.Allowed has the other codes.
func TestRetryOnAnswers(t *testing.T) {
	t.Parallel()
	for _, network := range []string{"tls", "unix"} {
		for _, c := range []struct {
			code       int
			retryAfter string
			elsewhere  bool // for safe requests
		}{{503, "", true}, {429, "7", true}, {429, "", false}, {500, "", false}} {
			bad := startNode(t, network, func(w http.ResponseWriter, _ *http.Request) {
				if c.retryAfter != "" {
					w.Header().Set("Retry-After", c.retryAfter)
				}
				w.WriteHeader(c.code)
				fmt.Fprint(w, "bad")
			})
			good := startNode(t, network, nil)
			for _, method := range []string{"GET", "HEAD", "OPTIONS", "POST", "PUT", "PATCH", "DELETE"} {
				for _, k := range []kind{short, long} {
					u := over(t, turns(), bad.endpoint(), good.endpoint())
					code, asked := c.code, 0
					if c.elsewhere && retry.Safe(method) {
						code, asked = 200, 1
					}
					got := send(t, u, k, method, "")
					if a, b := len(bad.seen()), len(good.seen()); got.code != code || a != 1 || b != asked {
						t.Errorf("%s %d %s after %d: got %d %v, %d and %d requests; want %d, 1 and %d", network, k, method, c.code, got.code, got.err, a, b, code, asked)
					}
				}
			}
		}
	}
}

// If no endpoint has a better answer, the client gets the first unchanged.
func TestAnswerUntouched(t *testing.T) {
	t.Parallel()
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
	t.Parallel()
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
			for _, text := range []string{"", "text", strings.Repeat("y", body.MaxSmall+1)} {
				bad, requests := rough(t, c.eager, c.talk)
				u := over(t, turns(), bad, good.endpoint())
				elsewhere := c.unsent || retry.Safe(method)
				got := send(t, u, short, method, text)
				if !c.unsent && retry.Safe(method) && len(text) > body.MaxSmall {
					// A body that is not in memory cannot be sent again, unless the answer came
					// before anything was taken of it.
					elsewhere = got.err == nil
				}
				if (got.err == nil) != elsewhere {
					t.Errorf("%s: %s of %d bytes: %d %v", name, method, len(text), got.code, got.err)
				}
				want := []string{strings.TrimSpace(method + " " + text)}
				if seen := good.seen(); elsewhere && !slices.Equal(seen, want) || !elsewhere && len(seen) > 0 {
					t.Errorf("%s: %s of %d bytes: the good one saw %.80q", name, method, len(text), seen)
				}
				if n := requests.Load(); n > 1 || c.unsent && n > 0 {
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
	t.Parallel()
	good := startNode(t, "tls", nil)
	list := At(closedPort(t), closedPort(t), closedPort(t), closedPort(t), good.Listener.Addr().String())
	u := over(t, turns(), list...)
	for _, text := range []string{"text", strings.Repeat("y", 2*body.MaxSmall)} {
		if got := send(t, u, short, "POST", text); got.code != 200 {
			t.Fatalf("%+v", got)
		}
		if seen := good.seen(); len(seen) != 1 || seen[0] != "POST "+text {
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
	t.Parallel()
	bad, requests := rough(t, false, func(net.Conn) {})
	good := startNode(t, "tls", nil)
	u := over(t, turns(), bad, good.endpoint())
	if got := send(t, u, upgrade, "GET", "", "Connection", "Upgrade", "Upgrade", "websocket"); got.err == nil {
		t.Errorf("answered %d", got.code)
	}
	if requests.Load() != 1 || len(good.seen()) != 0 {
		t.Error("it was sent again")
	}
	refusing := over(t, turns(), At(closedPort(t))[0], good.endpoint())
	if got := send(t, refusing, upgrade, "GET", "", "Connection", "Upgrade", "Upgrade", "websocket"); got.code != 200 {
		t.Errorf("the first refuses connections: %v", got.err)
	}
}

// A request that is not safe is sent once if the server drops it on a connection that was
// used before, also with the Idempotency-Key for which http.Transport would send it again.
func TestNoRetryOnUsedConnections(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		k      kind
		method string
		header []string
	}{
		"upgrade": {upgrade, "GET", []string{"Connection", "Upgrade", "Upgrade", "websocket"}},
		"key":     {short, "POST", []string{"Idempotency-Key", "1"}},
	} {
		var requests atomic.Int32
		n := startNode(t, "tls", func(w http.ResponseWriter, r *http.Request) {
			if r.Header.Get(c.header[0]) != c.header[1] {
				t.Errorf("%s: the header %s is lost", name, c.header[0])
			}
			if requests.Add(1) > 1 {
				panic(http.ErrAbortHandler)
			}
			w.WriteHeader(403)
		})
		u := over(t, turns(), n.endpoint())
		for i, code := range []int{403, 0} {
			if got := send(t, u, c.k, c.method, "", c.header...); got.code != code {
				t.Errorf("%s, request %d: got %d %v, want %d", name, i, got.code, got.err, code)
			}
		}
		if n := requests.Load(); n != 2 {
			t.Errorf("%s: the server saw %d requests, want 2", name, n)
		}
	}
}

// A request body that breaks off is a BodyError and does not count against an endpoint.
func TestBodyOfClient(t *testing.T) {
	t.Parallel()
	a, b := startNode(t, "tls", nil), startNode(t, "tls", nil)
	for _, list := range [][]Endpoint{{a.endpoint()}, {a.endpoint(), b.endpoint()}} {
		p := turns()
		p.Timeouts.ResponseHeader = 0
		u := over(t, p, list...)
		for _, k := range []kind{short, long} {
			for _, length := range []int64{10, -1, body.MaxSmall + 1} {
				req := newRequest(t.Context(), "PUT", "/x", io.NopCloser(io.MultiReader(strings.NewReader("x"), failing{})))
				req.ContentLength = length
				var client *BodyError
				if _, err := u.send(req, k); !errors.As(err, &client) {
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
	t.Parallel()
	early := startNode(t, "tls", nil, handledBy(answerEarly))
	for k, method := range map[kind]string{short: "POST", long: "GET"} {
		u := over(t, turns(), early.endpoint())
		r, w := io.Pipe()
		req := newRequest(t.Context(), method, "/x", r)
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

// answerEarly begins its answer before it reads the body of the request.
func answerEarly(w http.ResponseWriter, r *http.Request) {
	_ = http.NewResponseController(w).EnableFullDuplex()
	_ = http.NewResponseController(w).Flush()
	_, _ = io.Copy(io.Discard, r.Body)
}

// handledBy replaces the handler of a node.
func handledBy(h http.HandlerFunc) func(*http.Server) { return func(s *http.Server) { s.Handler = h } }

type failing struct{}

func (failing) Read([]byte) (int, error) { return 0, errors.New("the client went away") }

// Attempts and the budget bound the retries of requests that a server may have read, also
// on a new connection to the same endpoint. Without a budget nothing is sent again.
func TestRetryBounds(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		endpoints, attempts, percent, perSecond int
		want                                    int
	}{
		"no budget":                {1, 3, 0, 0, 1},
		"no budget, two endpoints": {2, 3, 0, 0, 1},
		"by default":               {1, 3, 20, 3, 2},
		"two endpoints":            {2, 3, 20, 3, 3},
		"four attempts":            {2, 4, 20, 4, 4},
		"one attempt":              {2, 1, 20, 3, 1},
		"a budget of one":          {2, 4, 0, 1, 2},
	} {
		for _, method := range []string{"GET", "OPTIONS", "POST"} {
			p, want := turns(), c.want
			p.Retries.Attempts, p.Retries.BudgetPercent, p.Retries.MinPerSecond = c.attempts, c.percent, c.perSecond
			if method == "POST" {
				want = 1
			}
			n := 0
			for range 20 { // a connection may not be idle again yet: there are fewer attempts then
				if n = sendDropped(t, p, c.endpoints, method); n >= want {
					break
				}
			}
			if n != want {
				t.Errorf("%s: %s: it arrived %d times, want %d", name, method, n, want)
			}
		}
	}
	p := turns()
	p.Retries.BudgetPercent, p.Retries.MinPerSecond = 0, 0
	if got := send(t, over(t, p, At(closedPort(t))[0], startNode(t, "tls", nil).endpoint()), short, "GET", ""); got.err == nil {
		t.Error("without a budget, a request that no server saw is sent again")
	}
}

// sendDropped sends a request to endpoints that read and drop it, on connections that were
// used before, and returns how often it arrived.
func sendDropped(t *testing.T, p Policy, endpoints int, method string) int {
	var drops atomic.Bool
	var dropped atomic.Int32
	var list []Endpoint
	for range endpoints {
		list = append(list, startNode(t, "unix", func(http.ResponseWriter, *http.Request) {
			if drops.Load() {
				dropped.Add(1)
				panic(http.ErrAbortHandler)
			}
		}).endpoint())
	}
	u := over(t, p, list...)
	for range list {
		if got := send(t, u, short, method, ""); got.code != 200 {
			t.Fatalf("%+v", got)
		}
	}
	drops.Store(true)
	got := send(t, u, short, method, "")
	n := int(dropped.Load())
	if attempts, out := len(got.trace.Attempts()), u.Status().OutOfBudget; got.err == nil || IsUnprocessed(got.err) || attempts != n || out > 1 {
		t.Errorf("%s: arrived %d times, in %d attempts, %d out of budget: %v", method, n, attempts, out, got.err)
	}
	return n
}

// Retries are a share of the requests, and those beyond it are counted.
func TestRetryBudget(t *testing.T) {
	t.Parallel()
	p := turns()
	p.Outlier.ConsecutiveErrors, p.Retries.BudgetPercent, p.Retries.MinPerSecond = 0, 20, 0
	var requests atomic.Int32
	busy := func(w http.ResponseWriter, _ *http.Request) {
		requests.Add(1)
		w.WriteHeader(503)
	}
	u := over(t, p, startNode(t, "tls", busy).endpoint(), startNode(t, "tls", busy).endpoint())
	for range 50 {
		send(t, u, short, "GET", "")
	}
	if n := requests.Load(); n < 58 || n > 60 || u.Status().OutOfBudget == 0 {
		t.Errorf("got %d attempts for 50 requests and 20 %%, %d out of budget; want 58 to 60", n, u.Status().OutOfBudget)
	}
}

// A request on a used connection that turns out to be closed is sent again on a new one,
// and does not count against the endpoint.
func TestClosedIdleConnection(t *testing.T) {
	t.Parallel()
	p := turns()
	p.Retries.MinPerSecond = 100 // the server has read what it does not answer
	for _, method := range []string{"GET", "OPTIONS"} {
		var used sync.Map
		n := startNode(t, "tls1", func(_ http.ResponseWriter, r *http.Request) {
			if _, again := used.LoadOrStore(r.RemoteAddr, true); again {
				panic(http.ErrAbortHandler)
			}
		})
		u := over(t, p, n.endpoint())
		for i := range 5 {
			if got := send(t, u, short, method, ""); got.code != 200 || got.err != nil {
				t.Errorf("%s, request %d: got %d, %v", method, i, got.code, got.err)
			}
		}
		if s := u.Status().Endpoints[0]; s.Errors != 0 {
			t.Errorf("%s: %d errors are counted", method, s.Errors)
		}
	}
}
