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
	"time"

	"golang.org/x/net/http2"

	"portico/gateway/upstream/transport"
)

// frameServer is an endpoint that speaks HTTP/2 frame by frame. It calls on with every
// complete request; on reports whether the connection is closed then. Without on it is
// silent after the handshake.
type frameServer struct {
	Endpoint
	settings []http2.Setting
	on       func(n int, stream uint32, fr *http2.Framer) (end bool)
	first    func(*http2.Framer) // after the settings; nil: nothing

	connections, requests atomic.Int32
}

func startFrames(t *testing.T, on func(n int, stream uint32, fr *http2.Framer) (end bool), settings ...http2.Setting) *frameServer {
	t.Helper()
	f := &frameServer{on: on, settings: settings}
	f.Endpoint = At(startRaw(t, "h2", f.talk))[0]
	return f
}

func (f *frameServer) talk(conn net.Conn) {
	if _, err := io.ReadFull(conn, make([]byte, len(http2.ClientPreface))); err != nil {
		return
	}
	if f.on == nil {
		_, _ = io.Copy(io.Discard, conn)
		return
	}
	fr := http2.NewFramer(conn, conn)
	_ = fr.WriteSettings(f.settings...)
	f.connections.Add(1)
	if f.first != nil {
		f.first(fr)
	}
	for {
		frame, err := fr.ReadFrame()
		if err != nil {
			return
		}
		ended := false
		switch frame := frame.(type) {
		case *http2.SettingsFrame:
			if !frame.IsAck() {
				_ = fr.WriteSettingsAck()
			}
		case *http2.PingFrame:
			if !frame.IsAck() {
				_ = fr.WritePing(true, frame.Data)
			}
		case *http2.HeadersFrame:
			ended = frame.StreamEnded()
		case *http2.DataFrame:
			ended = frame.StreamEnded()
		}
		if ended && f.on(int(f.requests.Add(1)), frame.Header().StreamID, fr) {
			return
		}
	}
}

// answerFrames answers a request with 200.
func answerFrames(stream uint32, fr *http2.Framer) {
	const status200 = 0x88 // RFC 7541, appendix A
	_ = fr.WriteHeaders(http2.HeadersFrameParam{StreamID: stream, BlockFragment: []byte{status200}, EndHeaders: true, EndStream: true})
}

// A request that the server excludes by REFUSED_STREAM or GOAWAY is sent to another
// endpoint, whatever its method; one that it may have processed is not.
func TestRetryOfUnprocessedStreams(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		on      func(int, uint32, *http2.Framer)
		untaken bool
	}{
		"refused stream":   {func(_ int, s uint32, fr *http2.Framer) { _ = fr.WriteRSTStream(s, http2.ErrCodeRefusedStream) }, true},
		"above the last":   {func(_ int, s uint32, fr *http2.Framer) { _ = fr.WriteGoAway(s-2, http2.ErrCodeNo, nil) }, true},
		"protocol error":   {func(_ int, s uint32, fr *http2.Framer) { _ = fr.WriteRSTStream(s, http2.ErrCodeProtocol) }, false},
		"cancelled":        {func(_ int, s uint32, fr *http2.Framer) { _ = fr.WriteRSTStream(s, http2.ErrCodeCancel) }, false},
		"gone with errors": {func(_ int, s uint32, fr *http2.Framer) { _ = fr.WriteGoAway(s, http2.ErrCodeInternal, nil) }, false},
	} {
		on := func(n int, s uint32, fr *http2.Framer) bool {
			if n == 1 { // a stream that has an end, so that there is one before
				answerFrames(s, fr)
				return false
			}
			c.on(n, s, fr)
			return name == "gone with errors"
		}
		for _, method := range []string{"POST", "DELETE"} {
			for _, body := range []string{"", "text"} {
				bad := startFrames(t, on)
				good := startNode(t, "tls", nil)
				u := over(t, turns(), bad.Endpoint)
				if got := send(t, u, long, method, ""); got.code != 200 {
					t.Fatalf("%s: the first: %+v", name, got)
				}
				u.SetEndpoints([]Endpoint{bad.Endpoint, good.endpoint()})
				got := send(t, u, short, method, body)
				want := []string{strings.TrimSpace(method + " " + body)}
				if seen := good.seen(); (got.code == 200) != c.untaken || slices.Equal(seen, want) != c.untaken {
					t.Errorf("%s: %s %q: %d %v; the good one saw %q", name, method, body, got.code, got.err, seen)
				}
				if n := bad.requests.Load(); n != 2 {
					t.Errorf("%s: the bad one saw %d", name, n)
				}
				u.Close()
			}
		}
	}
}

// If HTTP/2 does not begin with an endpoint, another one gets the request, whatever its
// method. Without another, the error says why.
func TestHTTP2DoesNotBegin(t *testing.T) {
	t.Parallel()
	on := func(_ int, s uint32, fr *http2.Framer) bool {
		answerFrames(s, fr)
		return false
	}
	none := startFrames(t, on, http2.Setting{ID: http2.SettingMaxConcurrentStreams, Val: 0})
	goingAway := startFrames(t, on)
	goingAway.first = func(fr *http2.Framer) { _ = fr.WriteGoAway(0, http2.ErrCodeNo, nil) }
	mute := startFrames(t, nil).Endpoint
	good := startNode(t, "tls", nil)
	for text, bad := range map[string]Endpoint{
		"permits no requests on it": none.Endpoint,
		"":                          goingAway.Endpoint, // this, or that it ended, early or late
		"HTTP/2 with " + mute.Address + " did not begin within ": mute,
	} {
		p := turns()
		u := over(t, p, bad)
		var got result
		for p.Timeouts.Connect = 50 * time.Millisecond; p.Timeouts.Connect < 5*time.Second; p.Timeouts.Connect *= 2 { // the handshake may take that, too
			u.SetPolicy(p)
			if got = send(t, u, long, "GET", ""); strings.Contains(fmt.Sprint(got.err), text) {
				break
			}
		}
		var connect *transport.ConnectError
		if got.err == nil || text != "" && !(errors.As(got.err, &connect) && strings.Contains(got.err.Error(), text)) {
			t.Errorf("alone: %v, not %q", got.err, text)
		}
		u = over(t, turns(), good.endpoint())
		send(t, u, long, "GET", "") // its connection is made without a short time to connect
		u.SetPolicy(p)
		u.SetEndpoints([]Endpoint{bad, good.endpoint()})
		for _, method := range []string{"GET", "POST", "DELETE", "PATCH"} {
			if got := send(t, u, long, method, ""); got.code != 200 {
				t.Errorf("%s beside a good one: %+v", method, got)
			}
		}
	}
	for _, f := range []*frameServer{none, goingAway} {
		// A connection for each request that had none, and not one after the other.
		if requests, conns := f.requests.Load(), f.connections.Load(); requests != 0 || conns > 20 {
			t.Errorf("a server that takes none saw %d on %d connections", requests, conns)
		}
	}
}

// A server that shuts down gracefully loses no request of any method and processes none
// twice: it finishes those that it took, and the others go to the next endpoint.
func TestRollingShutdown(t *testing.T) {
	t.Parallel()
	var mu sync.Mutex
	done := map[string]int{}
	var served atomic.Int32
	serve := func(w http.ResponseWriter, r *http.Request) {
		served.Add(1)
		mu.Lock()
		done[r.Header.Get("X-Id")]++
		mu.Unlock()
		time.Sleep(time.Millisecond)
	}
	nodes := []*node{startNode(t, "tls", serve), startNode(t, "tls", serve), startNode(t, "tls", serve)}
	p := turns()
	u := over(t, p, nodes[0].endpoint(), nodes[1].endpoint(), nodes[2].endpoint())
	stop := make(chan struct{})
	var clients sync.WaitGroup
	for c := range 8 {
		clients.Go(func() {
			for i := 0; ; i++ {
				select {
				case <-stop:
					return
				default:
				}
				id := fmt.Sprint(c, "/", i)
				method := []string{"GET", "POST", "DELETE", "PUT"}[i%4]
				got := send(t, u, short, method, "body", "X-Id", id)
				mu.Lock()
				times := done[id]
				mu.Unlock()
				if got.code != 200 || method != "GET" && times != 1 {
					t.Errorf("%s %s: %d %v, carried out %d times, %+v", method, id, got.code, got.err, times, got.trace.Attempts())
				}
			}
		})
	}
	for i, n := range nodes[:2] {
		// Retries are a share of the traffic: there has to be some.
		for served.Load() < int32(300*(i+1)) && !t.Failed() {
			time.Sleep(time.Millisecond)
		}
		if err := n.Config.Shutdown(t.Context()); err != nil {
			t.Error(err)
		}
	}
	time.Sleep(50 * time.Millisecond)
	close(stop)
	clients.Wait()
}

// A server without HTTP/2 gets its watches over HTTP/1.1, and that it is found to have
// none does not count as a broken connection: each check would cause the next.
func TestServerWithoutHTTP2(t *testing.T) {
	t.Parallel()
	n := startNode(t, "tls1", func(w http.ResponseWriter, r *http.Request) { fmt.Fprint(w, r.Proto) })
	u := over(t, turns(), n.endpoint())
	var broken atomic.Int32
	u.broken = func(string) { broken.Add(1) }
	for _, k := range []kind{long, short, long} {
		if got := send(t, u, k, "GET", ""); got.err != nil || got.body != "HTTP/1.1" {
			t.Errorf("kind %d: got %q, %v", k, got.body, got.err)
		}
	}
	if broken.Load() != 0 || n.conns.Load() > 3 {
		t.Errorf("got %d connections, of which %d broke", n.conns.Load(), broken.Load())
	}
}

// A window beyond the largest (RFC 9113, 6.9.1) fails its request only: the connection
// carries others, and the endpoints can be replaced.
func TestWindowBeyondTheLargest(t *testing.T) {
	t.Parallel()
	f := startFrames(t, func(n int, stream uint32, fr *http2.Framer) bool {
		if n == 2 {
			answerFrames(stream, fr)
			return false
		}
		_ = fr.WriteWindowUpdate(stream, 1<<31-1)
		_ = fr.WriteWindowUpdate(stream, 1<<31-1)
		return false
	})
	u := over(t, turns(), f.Endpoint)
	done := make(chan struct{})
	go func() {
		defer close(done)
		if got := send(t, u, long, "GET", ""); got.err == nil || !strings.Contains(got.err.Error(), "FLOW_CONTROL_ERROR") {
			t.Errorf("got %v, %v", got.code, got.err)
		}
		if got := send(t, u, long, "GET", ""); got.err != nil || got.code != 200 {
			t.Errorf("the next one: %v, %v", got.code, got.err)
		}
		u.Status()
		u.SetEndpoints([]Endpoint{startNode(t, "tls", nil).endpoint()})
	}()
	receive(t, done, "a call does not return")
}

// Broken is called when a server closes its connections, without a request.
func TestClosedConnectionsAreReported(t *testing.T) {
	t.Parallel()
	n := startNode(t, "tls", nil)
	u := over(t, turns(), n.endpoint())
	reported := make(chan string, 100)
	u.broken = func(url string) { reported <- url }
	if err := u.Probe(t.Context(), n.endpoint().URL, "/", func(http.Header) {}); err != nil {
		t.Fatal(err)
	}
	n.CloseClientConnections()
	if url := receive(t, reported, "the closed connection is not reported"); url != n.endpoint().URL {
		t.Errorf("got %s, want %s", url, n.endpoint().URL)
	}
}
