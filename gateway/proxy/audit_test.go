package proxy

import (
	"context"
	"crypto/tls"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/net/http2"
	auditv1 "k8s.io/apiserver/pkg/apis/audit/v1"

	"portico/apiservice/backend"
	"portico/gateway/upstream"
	"portico/internal/testing/await"
	"portico/resource"
	"portico/resource/audit"
	"portico/resource/serve/filter"
)

// The Audit-ID of a request reaches the server. The gateway makes one if the client sends none.
func TestAuditIDReachesTheServer(t *testing.T) {
	t.Parallel()
	var got []string
	front := startChain(t, func(_ http.ResponseWriter, r *http.Request) { got = r.Header["Audit-Id"] })
	for _, id := range []string{"foo-bar", ""} {
		req, err := http.NewRequestWithContext(t.Context(), "GET", front.URL+shortPath, nil)
		if err != nil {
			t.Fatal(err)
		}
		if id != "" {
			req.Header.Set("Audit-ID", id)
		}
		res, err := front.Client().Do(req)
		if err != nil {
			t.Fatal(err)
		}
		res.Body.Close()
		if len(got) != 1 || got[0] == "" || id != "" && got[0] != id || res.Header.Get("Audit-ID") != got[0] {
			t.Errorf("with the id %q the server got %q, and the client %q", id, got, res.Header["Audit-Id"])
		}
	}
}

// Audit events of proxied requests have the code that the client got and the body as it
// was sent, which streams as without audit.
func TestAuditThroughTheProxy(t *testing.T) {
	t.Parallel()
	seen, entered := make(chan string), make(chan struct{})
	change, events := auditing(t, "Request")
	front := startChain(t, func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Query().Get("container") {
		case "stream":
			part := make([]byte, 100)
			n, _ := r.Body.Read(part)
			seen <- string(part[:n])
			rest, err := io.ReadAll(r.Body)
			if err != nil {
				t.Error(err)
			}
			seen <- string(rest)
			w.WriteHeader(http.StatusCreated)
		case "hang":
			entered <- struct{}{}
			<-r.Context().Done()
		case "wait":
			time.Sleep(audit.Slow + 50*time.Millisecond)
		case "break":
			panic(http.ErrAbortHandler)
		}
	}, change)
	ask := func(ctx context.Context, method, query string, body io.Reader) (int, error) {
		r, err := http.NewRequestWithContext(ctx, method, front.URL+shortPath+query, body)
		if err != nil {
			t.Fatal(err)
		}
		r.Header.Set("Content-Type", "application/json")
		res, err := front.Client().Do(r)
		if err != nil {
			return 0, err
		}
		return res.StatusCode, res.Body.Close()
	}
	sent, sending := io.Pipe()
	go func() {
		_, _ = io.WriteString(sending, `{"metadata":`)
		if got := <-seen; got != `{"metadata":` {
			t.Errorf("the server has seen %q", got)
		}
		_, _ = io.WriteString(sending, `{"name":"x"}}`)
		sending.Close()
		<-seen
	}()
	if code, err := ask(t.Context(), "POST", "?container=stream", sent); code != 201 || err != nil {
		t.Errorf("got %d, %v", code, err)
	}
	broken, err := ask(t.Context(), "POST", "?container=break", strings.NewReader(`{}`))
	if err != nil {
		t.Error(err)
	}
	if code, err := ask(t.Context(), "GET", "/x?container=wait", nil); code != 200 || err != nil {
		t.Errorf("got %d, %v", code, err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	go func() { <-entered; cancel() }()
	if _, err := ask(ctx, "GET", "/x?container=hang", nil); err == nil {
		t.Error("the client is still there")
	}
	want := fmt.Sprintf(`create ?container=stream 201 "x" {"metadata":{"name":"x"}}
create ?container=break %d "" {}
get /x?container=wait 200 "x"  waited for the server
get /x?container=hang 499 "x" `, broken)
	await.Until(t, "the client's end is recorded", func() bool { return strings.Count(events(), "\n") == strings.Count(want, "\n") })
	if got := strings.ReplaceAll(events(), shortPath, ""); got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
}

// auditing has a chain audited, and returns a line for each event that ends a
// request.
func auditing(t *testing.T, level string) (change func(*filter.Config), events func() string) {
	t.Helper()
	o := audit.DefaultOptions()
	dir := t.TempDir()
	o.PolicyFile, o.Log.Path, o.Log.MaxSize = filepath.Join(dir, "policy"), filepath.Join(dir, "log"), 0
	policy := `{"apiVersion":"audit.k8s.io/v1","kind":"Policy","omitStages":["RequestReceived"],"rules":[{"level":"` + level + `"}]}`
	if err := os.WriteFile(o.PolicyFile, []byte(policy), 0o600); err != nil {
		t.Fatal(err)
	}
	auditor, err := audit.Open(o, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	return func(c *filter.Config) { c.Audit = auditor }, func() string {
		text, err := os.ReadFile(o.Log.Path)
		if err != nil {
			t.Fatal(err)
		}
		var lines []string
		for line := range strings.Lines(string(text)) {
			var e auditv1.Event
			if err := json.Unmarshal([]byte(line), &e); err != nil {
				t.Fatalf("%v: %s", err, line)
			}
			object := ""
			if e.RequestObject != nil {
				object = string(e.RequestObject.Raw)
			}
			if took, err := time.ParseDuration(e.Annotations[annotationUpstream]); err == nil && took > audit.Slow {
				object += " waited for the server"
			}
			if v := e.Annotations[annotationOfServer]; v != "" {
				object += " annotated " + v
			}
			lines = append(lines, fmt.Sprintf("%s %s %d %q %s", e.Verb, e.RequestURI, e.ResponseStatus.Code, e.ObjectRef.Name, object))
		}
		return strings.Join(lines, "\n")
	}
}

const annotationOfServer = "pod-security.kubernetes.io/audit-violations"

// The core and the CRD server are asked for the annotations of admission, which are in the event
// and not in the response. The header is ignored in responses of other servers, of pods behind the
// core server and of upgrades.
func TestAnnotationsOfServers(t *testing.T) {
	t.Parallel()
	answer := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Asked", r.Header.Get(audit.HeaderAnnotations))
		w.Header().Set(audit.HeaderAnnotations, base64.StdEncoding.EncodeToString([]byte(`{"`+annotationOfServer+`":"a Ω\u007f"}`)))
	})
	for name, c := range map[string]struct {
		path   string
		static bool
		asked  string
		event  string
	}{
		"of the gateway":    {shortPath + "/x", true, "Metadata", "annotated a Ω"},
		"of a registration": {shortPath + "/x", false, "", ""},
		"a pod behind it":   {"/api/v1/namespaces/default/pods/p/proxy/x", true, "", ""},
		"an exec":           {"/api/v1/namespaces/default/pods/p/exec", true, "", ""},
		"an upgrade":        {shortPath + "/x", true, "", "annotated a Ω"},
	} {
		t.Run(name, func(t *testing.T) {
			change, events := auditing(t, "Metadata")
			rt := routeTo(upstreamOnSocket(t, answer))
			rt.Static = c.static
			front := httptest.NewServer(newChain(t, along(rt), change))
			defer front.Close()
			r, err := http.NewRequestWithContext(t.Context(), http.MethodPut, front.URL+c.path, strings.NewReader("{}"))
			if err != nil {
				t.Fatal(err)
			}
			r.Header.Set(audit.HeaderAnnotations, "client")
			if name == "an upgrade" {
				r.Header.Set("Connection", "Upgrade")
				r.Header.Set("Upgrade", "SPDY/3.1")
			}
			res, err := front.Client().Do(r)
			if err != nil {
				t.Fatal(err)
			}
			res.Body.Close()
			if got := res.Header.Get("Asked"); got != c.asked {
				t.Errorf("the server is asked %q, want %q", got, c.asked)
			}
			if got := res.Header[audit.HeaderAnnotations]; got != nil {
				t.Errorf("the client gets %q", got)
			}
			await.Until(t, "there is an event", func() bool { return events() != "" })
			if got := events(); strings.Contains(got, "annotated") != (c.event != "") || !strings.Contains(got, c.event) {
				t.Errorf("the event is %s, want %q in it", got, c.event)
			}
		})
	}
}

// A request that is sent twice has one audit event with its whole body, whether or not the
// body is in memory.
func TestAuditOfRetriedRequests(t *testing.T) {
	t.Parallel()
	var got atomic.Pointer[string]
	good, _ := startTLS(t, func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			t.Error(err)
		}
		got.Store(new(string(body)))
		w.WriteHeader(http.StatusCreated)
	})
	hangUp := func(net.Conn) {}
	small, large := `{"metadata":{"name":"x"}}`, `{"a":"`+strings.Repeat("x", 200_000)+`"}`
	for name, c := range map[string]struct {
		refuse func(net.Conn)
		body   string
		sized  bool
	}{
		"small, connection closed": {hangUp, small, true}, "small, stream refused": {refuseStreams, small, true},
		"large, connection closed": {hangUp, large, true}, "of unknown length, connection closed": {hangUp, small, false},
	} {
		t.Run(name, func(t *testing.T) {
			bad := startRefusing(t, good.TLS, c.refuse)
			change, events := auditing(t, "Request")
			up := upstreamTo(t, upstream.Trust{Insecure: true}, []string{bad.Addr().String(), good.Listener.Addr().String()}, func(c *upstream.Config) {
				c.Policy.Balance, c.Policy.PanicThresholdPercent = backend.RoundRobin, 0 // the first endpoint gets the first request
			})
			sentOn := func(c *filter.Config) { c.SentOn = func(*resource.Action) bool { return true } }
			front := httptest.NewServer(newChain(t, along(routeTo(up)), change, sentOn))
			defer front.Close()
			var body io.Reader = strings.NewReader(c.body)
			if !c.sized {
				body = io.MultiReader(body)
			}
			res, err := http.Post(front.URL+shortPath, "application/json", body)
			if err != nil {
				t.Fatal(err)
			}
			res.Body.Close()
			if n := bad.refused.Load(); res.StatusCode != http.StatusCreated || n == 0 {
				t.Fatalf("%d; the first endpoint had %d connections", res.StatusCode, n)
			}
			if body := got.Swap(nil); body == nil || *body != c.body {
				t.Errorf("the second endpoint did not get the body as it was sent")
			}
			await.Until(t, "the event is written", func() bool { return events() != "" })
			if got := events(); strings.Count(got, "create ") != 1 || !strings.HasSuffix(got, ` `+c.body) {
				t.Errorf("got %.300s (%d bytes)", got, len(got))
			}
		})
	}
}

// refusing is an endpoint that processes no request, and counts its connections.
type refusing struct {
	net.Listener
	refused atomic.Int64
}

func startRefusing(t *testing.T, config *tls.Config, refuse func(net.Conn)) *refusing {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	r := &refusing{Listener: l}
	t.Cleanup(func() { l.Close() })
	go func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			r.refused.Add(1)
			go func() {
				defer conn.Close()
				refuse(tls.Server(conn, config))
			}()
		}
	}()
	return r
}

// refuseStreams resets every request with REFUSED_STREAM when it is complete.
func refuseStreams(conn net.Conn) {
	byFrames(conn, func(fr *http2.Framer, stream uint32) { _ = fr.WriteRSTStream(stream, http2.ErrCodeRefusedStream) })
}

// byFrames speaks HTTP/2; on is called when a request is complete.
func byFrames(conn net.Conn, on func(fr *http2.Framer, stream uint32)) {
	if _, err := io.ReadFull(conn, make([]byte, len(http2.ClientPreface))); err != nil {
		return
	}
	fr := http2.NewFramer(conn, conn)
	_ = fr.WriteSettings()
	for {
		frame, err := fr.ReadFrame()
		if err != nil {
			return
		}
		switch frame := frame.(type) {
		case *http2.SettingsFrame:
			if !frame.IsAck() {
				_ = fr.WriteSettingsAck()
			}
		case *http2.PingFrame:
			_ = fr.WritePing(true, frame.Data)
		}
		if end, ok := frame.(interface{ StreamEnded() bool }); ok && end.StreamEnded() {
			on(fr, frame.Header().StreamID)
		}
	}
}
