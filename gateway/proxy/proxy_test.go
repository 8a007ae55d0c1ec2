package proxy

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"runtime/debug"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"portico/apiservice"
	"portico/gateway/upstream"
	"portico/internal/testing/await"
)

// The server gets the user in front-proxy headers, and neither credentials nor identity
// headers of the client.
func TestProxyIdentity(t *testing.T) {
	t.Parallel()
	for _, path := range []string{shortPath, watchPath} { // HTTP/1.1 and HTTP/2
		var got http.Header
		f := startFront(t, func(_ http.ResponseWriter, r *http.Request) { got = r.Header.Clone() })
		res := f.do(t, "GET", path, nil, http.Header{
			"X-Remote-User": {"root"}, "X-Remote-Group": {"system:masters"}, "X-Remote-Uid": {"0"}, "X-Remote-Extra-Evil": {"x"},
			"X_remote_user": {"root"}, "Authorization": {"Bearer secret"},
			"Impersonate-User": {"root"}, "Impersonate-Group": {"system:masters"}, "Impersonate-Extra-Evil": {"x"}, "Impersonate-Uid": {"0"},
			"Connection": {"X-Remote-User, X-Remote-Group"}, "Accept-Language": {"tlh"},
		})
		if res.StatusCode != 200 {
			t.Fatalf("%s: %d", path, res.StatusCode)
		}
		for name, want := range map[string][]string{
			"X-Remote-User": {"alice"}, "X-Remote-Uid": {"42"}, "X-Remote-Group": {"dev", "system:authenticated"},
			"X-Remote-Extra-Example.com%2fscope": {"a", "b"}, "Accept-Language": {"tlh"},
		} {
			if !slices.Equal(got[name], want) {
				t.Errorf("%s: %s is %q, want %q", path, name, got[name], want)
			}
		}
		for name := range got {
			if strings.HasPrefix(name, "Impersonate-") || name == "Authorization" || strings.Contains(strings.ToLower(name), "evil") || name == "X_remote_user" {
				t.Errorf("%s: the server got the header %s", path, name)
			}
		}
	}
}

// The path and query reach the server as they were escaped.
func TestProxyRequestLine(t *testing.T) {
	t.Parallel()
	var uri, forwarded, host string
	f := startFront(t, func(_ http.ResponseWriter, r *http.Request) {
		uri, forwarded, host = r.RequestURI, strings.Join(r.Header["X-Forwarded-For"], "|"), r.Host
	})
	const path = "/apis/g.example.com/v1/namespaces/a%2Cb/things/x%20y?labelSelector=a%3Db&limit=5"
	f.do(t, "GET", path, nil, http.Header{"X-Forwarded-For": {"203.0.113.9"}})
	if uri != path || forwarded != "203.0.113.9, 127.0.0.1" || host != "api.ns.svc:443" {
		t.Errorf("request line %q, X-Forwarded-For %q, Host %q", uri, forwarded, host)
	}
}

// The answer reaches the client with its headers, except for those that only the gateway
// sets.
func TestProxyAnswer(t *testing.T) {
	t.Parallel()
	const media = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"
	f := startFront(t, func(w http.ResponseWriter, _ *http.Request) {
		w.Header()["Warning"] = []string{`299 - "one"`, `299 - "two"`}
		for _, name := range []string{"Access-Control-Allow-Origin", "Audit-Id", headerBackend, headerTiming} {
			w.Header().Set(name, "theirs")
		}
		w.Header().Set("Content-Type", media)
		w.WriteHeader(http.StatusTeapot)
		io.WriteString(w, "short")
	})
	res := f.get(t, shortPath)
	body, _ := io.ReadAll(res.Body)
	if res.StatusCode != http.StatusTeapot || string(body) != "short" || res.Header.Get("Content-Type") != media {
		t.Errorf("got %d %q %q", res.StatusCode, res.Header.Get("Content-Type"), body)
	}
	if w := res.Header["Warning"]; !slices.Equal(w, []string{`299 - "one"`, `299 - "two"`}) {
		t.Errorf("warnings %q", w)
	}
	for name, values := range res.Header {
		if slices.Contains(values, "theirs") {
			t.Errorf("the server set the header %s", name)
		}
	}
}

// An answer 204 has no Content-Length, whatever the server says.
func TestNoContent(t *testing.T) {
	t.Parallel()
	for status, want := range map[int]string{http.StatusNoContent: "", http.StatusOK: "5", http.StatusNotModified: "5"} {
		res := &http.Response{StatusCode: status, Header: http.Header{"Content-Length": {"5"}}, Request: httptest.NewRequest("GET", "/", nil)}
		if err := modifyResponse(res); err != nil || res.Header.Get("Content-Length") != want {
			t.Errorf("%d: Content-Length %q, %v", status, res.Header.Get("Content-Length"), err)
		}
	}
}

// Redirects are refused, except for those to the present hash of an OpenAPI document and of
// proxied pods, nodes and services.
func TestProxyRedirect(t *testing.T) {
	t.Parallel()
	f := startFront(t, func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Location", r.URL.Query().Get("to"))
		w.WriteHeader(http.StatusMovedPermanently)
	})
	for path, code := range map[string]int{
		shortPath + "?to=https://169.254.169.254/":                                        502,
		"/openapi/v3/apis/g/v1?to=https://169.254.169.254/":                               502,
		"/openapi/v3/apis/g/v1?to=//evil.example.com/openapi/v3/apis/g/v1":                502,
		"/openapi/v3/apis/g/v1?to=" + url.QueryEscape("/openapi/v3/apis/other/v1?hash=B"): 502,
		"/openapi/v3/apis/g/v1?to=" + url.QueryEscape("/openapi/v3/apis/g/v1?hash=B"):     301, // the present hash
		shortPath + "?to=" + url.QueryEscape(shortPath+"?hash=B"):                         502,
		"/api/v1/namespaces/a/pods/x/proxy/y?to=/login":                                   301, // of the pod
		"/api/v1/namespaces/a/pods/x/log?to=/login":                                       502,
		"/apis/g/v1/namespaces/a/pods/x/proxy/y?to=/login":                                502,
	} {
		res := f.get(t, path)
		if res.StatusCode != code {
			t.Errorf("%s: %d, want %d", path, res.StatusCode, code)
		} else if code == 502 {
			if s := statusOf(t, res); s.Code != 502 || !strings.Contains(s.Message, errRedirect.Error()) || res.Header.Get("Location") != "" {
				t.Errorf("%s: %+v", path, s)
			}
		}
	}
	if n := f.broken.Load(); n != 0 {
		t.Errorf("redirects made the server suspect %d times", n)
	}
}

// A server that refuses connections, or closes one before its answer, is suspect, and the
// answer is 503 without Retry-After. It says if the request may have been carried out.
func TestProxyBrokenConnection(t *testing.T) {
	t.Parallel()
	refused := frontOf(t, upstream.Trust{}, closedPort(t))
	closed := startFront(t, func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) })
	for _, f := range []*front{refused, closed} {
		for _, method := range []string{"POST", "PATCH", "DELETE", "PUT", "GET"} {
			before := f.broken.Load()
			res := f.do(t, method, shortPath+"/x", nil, nil)
			s := statusOf(t, res)
			if res.StatusCode != 503 || s.Code != 503 || s.Reason != metav1.StatusReasonServiceUnavailable || res.Header.Get("Retry-After") != "" {
				t.Errorf("%s: %d, Retry-After %q, %+v", method, res.StatusCode, res.Header.Get("Retry-After"), s)
			}
			if unknown := f == closed && method != "GET"; strings.Contains(s.Message, "not known whether") != unknown {
				t.Errorf("%s: %s", method, s.Message)
			}
			if f == closed && f.broken.Load() == before {
				t.Errorf("%s: the server is not suspect", method)
			}
		}
	}
	if refused.broken.Load() == 0 {
		t.Error("the server that refuses connections is not suspect")
	}
}

// The 503 for the API of a server that is away has no Retry-After: kubectl fails at once instead
// of repeating the request ten times.
func TestProxyUnavailable(t *testing.T) {
	t.Parallel()
	w := httptest.NewRecorder()
	rt := &Route{Name: "v1.g.example.com", Condition: apiservice.Condition{Status: "False", Reason: "MissingEndpoints", Message: "none"}}
	along(rt)(w, httptest.NewRequest("POST", shortPath, nil))
	if s := statusOf(t, w.Result()); w.Code != 503 || w.Header().Get("Retry-After") != "" || !strings.Contains(s.Message, "MissingEndpoints: none") {
		t.Errorf("%d %v %s", w.Code, w.Header(), w.Body)
	}
}

// An upgraded connection forwards both directions, and bytes that the client sent with its
// request.
func TestProxyUpgrade(t *testing.T) {
	t.Parallel()
	var user string
	f := startFront(t, func(w http.ResponseWriter, r *http.Request) {
		user = r.Header.Get("X-Remote-User")
		conn, rw, err := http.NewResponseController(w).Hijack()
		if err != nil {
			t.Errorf("hijack: %v", err)
			return
		}
		defer conn.Close()
		fmt.Fprint(conn, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: echo\r\n\r\n")
		for {
			line, err := rw.ReadString('\n')
			if err != nil {
				return
			}
			fmt.Fprint(conn, strings.ToUpper(line))
		}
	})
	for _, method := range []string{"GET", "POST"} {
		conn, err := net.Dial("tcp", f.Listener.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		// Bytes after the header belong to the other protocol.
		fmt.Fprint(conn, method+" "+execPath+" HTTP/1.1\r\nHost: gw\r\nConnection: Upgrade\r\nUpgrade: echo\r\n\r\nearly\n")
		r := bufio.NewReader(conn)
		res, err := http.ReadResponse(r, nil)
		if err != nil || res.StatusCode != http.StatusSwitchingProtocols || res.Header.Get("Upgrade") != "echo" || res.Header["Content-Length"] != nil {
			t.Fatalf("%s: %+v %v", method, res, err)
		}
		for _, word := range []string{"early\n", "one\n", "two\n"} {
			if word != "early\n" {
				fmt.Fprint(conn, word)
			}
			_ = conn.SetReadDeadline(time.Now().Add(await.Patience()))
			if got, err := r.ReadString('\n'); err != nil || got != strings.ToUpper(word) {
				t.Fatalf("%s: got %q %v, want %q", method, got, err, word)
			}
		}
		conn.Close()
	}
	if user != "alice" {
		t.Errorf("the server got the user %q", user)
	}
}

// A list of 200 MB takes no memory of its own, whether or not its length is known.
func TestProxyPassesLargeListsThrough(t *testing.T) {
	const piece, pieces = 128 << 10, 1600
	defer debug.SetGCPercent(debug.SetGCPercent(20))
	for _, sized := range []bool{true, false} {
		f := startFront(t, func(w http.ResponseWriter, _ *http.Request) {
			if sized {
				w.Header().Set("Content-Length", strconv.Itoa(piece*pieces))
			}
			data := make([]byte, piece)
			for range pieces {
				_, _ = w.Write(data)
			}
		})
		before, peak, read := heapInUse(), int64(0), 0
		for body, buf := f.get(t, shortPath).Body, make([]byte, piece); ; {
			n, err := io.ReadFull(body, buf)
			if read += n; err != nil {
				break
			}
			if read%(20<<20) == 0 {
				peak = max(peak, heapInUse())
			}
		}
		if read != piece*pieces || peak > before+8<<20 {
			t.Errorf("length known %v: read %d bytes, the heap grew from %d to %d", sized, read, before, peak)
		}
	}
}
