package proxy

import (
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// restFront starts a gateway before a REST server with the handler handle.
func restFront(t *testing.T, prefix string, handle http.HandlerFunc) *httptest.Server {
	t.Helper()
	rt := routeTo(upstreamOnSocket(t, handle))
	rt.REST = &REST{root: shopRoot, prefix: prefix, hosts: []string{"shop"}, headers: headerSet(nil, "X-Custom")}
	gateway := httptest.NewServer(asAlice(along(rt)))
	t.Cleanup(gateway.Close)
	return gateway
}

// askREST sends a request line unchanged; header has names and values in turn.
func askREST(t *testing.T, front *httptest.Server, method, target string, header ...string) (*http.Response, string) {
	t.Helper()
	return sendREST(t, front, method, target, nil, header...)
}

// sendREST is askREST with a body.
func sendREST(t *testing.T, front *httptest.Server, method, target string, body io.Reader, header ...string) (*http.Response, string) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), method, front.URL, body)
	if err != nil {
		t.Fatal(err)
	}
	path, query, _ := strings.Cut(target, "?")
	req.URL.Opaque, req.URL.RawQuery = path, query
	for i := 0; i < len(header); i += 2 {
		req.Header.Add(header[i], header[i+1])
	}
	res, err := http.DefaultTransport.RoundTrip(req)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	text, err := io.ReadAll(res.Body)
	if err != nil {
		t.Fatal(err)
	}
	return res, string(text)
}

const shopRoot = "/apis/shop.example.com/v1"

// The prefix of the API's paths is replaced by the server's.
func TestRESTPaths(t *testing.T) {
	t.Parallel()
	seen := func(w http.ResponseWriter, r *http.Request) {
		io.WriteString(w, r.Method+" "+r.RequestURI+" "+r.Header.Get("X-Forwarded-Prefix")+" "+r.Header.Get("X-Remote-User")+r.Header.Get("Content-Type"))
	}
	bare, prefixed := restFront(t, "", seen), restFront(t, "/api/v3", seen)
	for _, tc := range []struct {
		front  *httptest.Server
		target string
		want   string
	}{
		{bare, shopRoot + "/pets?a=1&b=%20&a=2", "GET /pets?a=1&b=%20&a=2 " + shopRoot + " alice"},
		{bare, shopRoot + "/pets/", "GET /pets/ " + shopRoot + " alice"},
		{bare, shopRoot + "/pets/a%20b%C3%A9;x=1/toys/7", "GET /pets/a%20b%C3%A9;x=1/toys/7 " + shopRoot + " alice"},
		{bare, "/%61pis/shop.example%2ecom/v1/pets", "GET /pets " + shopRoot + " alice"},
		{prefixed, shopRoot + "/pets/1?x", "GET /api/v3/pets/1?x  alice"},
		{prefixed, shopRoot + "/pets/%7Eme", "GET /api/v3/pets/%7Eme  alice"},
	} {
		if res, body := askREST(t, tc.front, "GET", tc.target, "X-Forwarded-Prefix", "/evil"); res.StatusCode != 200 || body != tc.want {
			t.Errorf("%s: %d %q, want %q", tc.target, res.StatusCode, body, tc.want)
		}
	}
}

// Paths that a server could read as others than were authorized are refused.
func TestRESTAmbiguousPaths(t *testing.T) {
	t.Parallel()
	front := restFront(t, "/api", func(w http.ResponseWriter, r *http.Request) { t.Errorf("%s arrived", r.RequestURI) })
	for _, rest := range []string{
		"/pets/../admin", "/pets/%2e%2e/admin", "/pets/..;/admin", "/pets/..;x=1/admin", "/pets/%2e%2e%3b/admin", "/./pets", "/pets/.", "/pets%2F1", "/pets/1%2ftoys", "/pets/a%5Cb", "/pets/..%5cadmin", "//pets", "/pets//1",
	} {
		res, body := askREST(t, front, "GET", shopRoot+rest)
		if res.StatusCode != http.StatusBadRequest || !strings.Contains(body, "the path must not have") {
			t.Errorf("%s: %d %s", rest, res.StatusCode, body)
		}
	}
}

// Headers and query parameters that override the method or path are refused.
func TestRESTOverrides(t *testing.T) {
	t.Parallel()
	arrived := false
	front := restFront(t, "/api", func(http.ResponseWriter, *http.Request) { arrived = true })
	for _, c := range []struct{ query, name, value string }{
		{"", "X-HTTP-Method-Override", "DELETE"}, {"", "x-http-method", "PUT"}, {"", "X_HTTP_METHOD_OVERRIDE", "DELETE"},
		{"", "X-Method-Override", "DELETE"}, {"", "X-Original-URL", "/api/admin"}, {"", "X-Rewrite-Url", "/api/admin"},
		{"?_method=DELETE", "", ""}, {"?a=1&_m%65thod=DELETE", "", ""},
		{"", "X.HTTP.Method.Override", "DELETE"}, {"", "X-Http_Method'Override", "DELETE"}, {"", "X-Original-Method", "DELETE"}, {"", "HTTP-Method-Override", "PUT"},
		{"?_method[]=DELETE", "", ""}, {"?%5Fmethod=DELETE", "", ""}, {"?%5fmethod%5b%5d=DELETE", "", ""}, {"?_METHOD=DELETE", "", ""}, {"?.method=DELETE", "", ""},
		{"?%20_method=DELETE", "", ""}, {"?+_method=DELETE", "", ""}, {"?[method=DELETE", "", ""}, {"?a=1;_method=DELETE", "", ""}, {"?_method", "", ""},
		{"?_method=%zz", "", ""}, {"?_method%00x=DELETE", "", ""}, {"?X-HTTP-Method-Override=DELETE", "", ""}, {"?x_http_method=DELETE", "", ""}, {"?$httpMethod=DELETE", "", ""},
	} {
		var header []string
		if c.name != "" {
			header = []string{c.name, c.value}
		}
		res, body := askREST(t, front, "POST", shopRoot+"/pets/1"+c.query, header...)
		if arrived || res.StatusCode != http.StatusBadRequest || !strings.Contains(body, "is not forwarded") {
			t.Errorf("%v: %d %s, and it arrived: %v", c, res.StatusCode, body, arrived)
		}
		arrived = false
	}
	if res, body := askREST(t, front, "POST", shopRoot+"/pets?method=1&filter[_method]=1&the_method=2", "X-Method", "1"); res.StatusCode != http.StatusOK || !arrived {
		t.Errorf("another header: %d %s", res.StatusCode, body)
	}
}

// Clients that expect Kubernetes objects get an error that says how to use the API;
// others are forwarded.
func TestRESTRefusesKubernetesClients(t *testing.T) {
	t.Parallel()
	front := restFront(t, "", func(w http.ResponseWriter, r *http.Request) { io.WriteString(w, "[]") })
	const table = "application/json;as=Table;v=v1;g=meta.k8s.io,application/json;as=Table;v=v1beta1;g=meta.k8s.io,application/json"
	for _, tc := range []struct {
		method, target, accept string
		agent                  string
		code                   int
		reason                 metav1.StatusReason
	}{
		{"GET", "/pets?limit=500", table, "", 406, metav1.StatusReasonNotAcceptable},
		{"GET", "/pets/1", table, "", 406, metav1.StatusReasonNotAcceptable},
		{"GET", "/pets", "application/json; AS=PartialObjectMetadataList;g=meta.k8s.io;v=v1", "", 406, metav1.StatusReasonNotAcceptable},
		{"GET", "/pets?watch=true", "application/json", "", 405, metav1.StatusReasonMethodNotAllowed},
		{"GET", "/watch/pets", "", "", 405, metav1.StatusReasonMethodNotAllowed},
		{"POST", "/pets?fieldManager=kubectl-create&fieldValidation=Strict", "application/json", "", 400, metav1.StatusReasonBadRequest},
		{"DELETE", "/pets/1?dryRun=All", "application/json", "", 400, metav1.StatusReasonBadRequest},
		{"PATCH", "/pets/1?fieldManager=me&force=true", "", "", 400, metav1.StatusReasonBadRequest},
		{"GET", "/pets", "application/json", "kubectl/v1.37.2 (linux/amd64)", 406, metav1.StatusReasonNotAcceptable}, // -o json
		{"GET", "/pets", "application/json, */*", "kubectl/v1.37.2 (linux/amd64)", 200, ""},                          // --raw
		{"GET", "/pets", "application/json", "curl/8", 200, ""},
		{"GET", "/pets", "text/html;level=1;q=0.3,application/json;profile=basic", "", 200, ""},
		{"DELETE", "/pets/1", "application/json", "kubectl/v1.37.2 (linux/amd64)", 406, metav1.StatusReasonNotAcceptable},
		{"DELETE", "/pets/1?dryRun=false", "", "", 200, ""},
		{"GET", "/pets/1?watch=true", "", "", 200, ""},
	} {
		res, body := askREST(t, front, tc.method, shopRoot+tc.target, "Accept", tc.accept, "User-Agent", tc.agent)
		if res.StatusCode != tc.code {
			t.Errorf("%s %s: %d %s", tc.method, tc.target, res.StatusCode, body)
		}
		if tc.code == 200 {
			continue
		}
		var status metav1.Status
		if err := json.Unmarshal([]byte(body), &status); err != nil || status.Kind != "Status" || status.Reason != tc.reason || int(status.Code) != tc.code ||
			!strings.Contains(status.Message, "pets.shop.example.com is served by a REST server") || !strings.Contains(status.Message, "kubectl get --raw") {
			t.Errorf("%s %s: %s", tc.method, tc.target, body)
		}
	}
}

// A DELETE with DeleteOptions is refused: it may be a dry run.
func TestRESTDelete(t *testing.T) {
	t.Parallel()
	front := restFront(t, "", func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		w.Write(body)
	})
	for body, want := range map[string]int{
		`{"kind":"DeleteOptions","apiVersion":"v1","dryRun":["All"]}`: 400,
		`{"dryRun":["All"]}`:                    400,
		`{"kind":"DeleteOptions"}`:              400,
		`{"reason":"old"}`:                      200,
		`{"kind":"DeleteOptions"`:               200,
		"":                                      200,
		strings.Repeat("x", maxDeleteOptions+1): 200,
	} {
		res, echo := sendREST(t, front, "DELETE", shopRoot+"/pets/1", strings.NewReader(body))
		if res.StatusCode != want || want == 200 && echo != body {
			t.Errorf("%.60s: %d %.200s", body, res.StatusCode, echo)
		}
	}
}

// A REST server gets the headers of HTTP itself and those that its Backend names, and no other: none in which proxies name
// users, clients or certificates, and no credential.
func TestRESTHeaders(t *testing.T) {
	t.Parallel()
	var got http.Header
	front := restFront(t, "", func(_ http.ResponseWriter, r *http.Request) { got = r.Header.Clone() })
	var header []string
	for _, name := range append([]string{
		"X-Remote-User", "X.Remote.User", "X_Remote_Group", "X'Remote-Uid", "Remote-User", "Remote_Groups", "REMOTE.USER",
		"X-Forwarded-User", "X-Forwarded-For", "X_Forwarded_For", "X-Forwarded-Host", "X-Forwarded-Client-Cert", "X-Forwarded-Prefix", "X-Forwarded-Server",
		"Forwarded", "X-Real-Ip", "X_REAL_IP", "True-Client-Ip", "X-Ssl-Client-Cn", "X-Client-Cert", "Client-Cert", "Proxy", "Content_Type", "X_Custom",
		"Baggage", "Kubectl-Session", "X-Stream-Protocol-Version", "Referer",
	}, credentials...) {
		header = append(header, name, "evil")
	}
	kept := []string{"X-Request-Id", "If-Match", "X-Custom", "Accept-Language", "Content-Type", "Traceparent", "Idempotency-Key", "Last-Event-Id"}
	for _, name := range kept {
		header = append(header, name, "kept")
	}
	res, body := askREST(t, front, "GET", shopRoot+"/pets", header...)
	if res.StatusCode != 200 {
		t.Fatalf("%d %s", res.StatusCode, body)
	}
	judgeConfined(t, "REST", res.Header)
	for name, values := range got {
		if strings.Contains(strings.Join(values, ","), "evil") {
			t.Errorf("the server got %s: %q", name, values)
		}
	}
	for _, name := range kept {
		if got.Get(name) != "kept" {
			t.Errorf("%s is %q", name, got[name])
		}
	}
	if got.Get("X-Forwarded-For") != "127.0.0.1" || got.Get("X-Forwarded-Proto") != "http" || got.Get("X-Forwarded-Prefix") != shopRoot || got.Get("X-Remote-User") != "alice" {
		t.Errorf("the gateway's own: %v", got)
	}
}

// Selectors are refused: authorization may read a name from one, and a REST server
// would list or delete everything.
func TestRESTSelectors(t *testing.T) {
	t.Parallel()
	front := restFront(t, "", func(_ http.ResponseWriter, r *http.Request) { t.Errorf("%s %s arrived", r.Method, r.RequestURI) })
	for _, query := range []string{
		"fieldSelector=metadata.name%3Dmine", "labelSelector=a%3Db", "field%53elector=metadata.name=mine", "a=1&fieldSelector=", "labelSelector", "fieldSelector=%20&fieldSelector=metadata.name=mine",
	} {
		for _, method := range []string{"GET", "HEAD", "DELETE", "POST"} {
			if res, body := askREST(t, front, method, shopRoot+"/pets?"+query); res.StatusCode != http.StatusBadRequest {
				t.Errorf("%s %s: %d %s", method, query, res.StatusCode, body)
			}
		}
	}
}

// A path that is not ambiguous reaches a REST server below its prefix, escaped as it was.
func FuzzRESTRequest(f *testing.F) {
	f.Add("/pets/1", "a=1")
	f.Add("/pets/%2e%2e/x", "")
	f.Add("//x/..;/%5c", "%zz")
	f.Fuzz(func(t *testing.T, path, query string) {
		u, err := url.Parse(shopRoot + "/" + path)
		if err != nil || u.Host != "" || !strings.HasPrefix(u.Path, shopRoot+"/") {
			return
		}
		u.RawQuery = query
		p := &REST{root: shopRoot, prefix: "/api"}
		if unambiguous(p.below(u)) != nil {
			return
		}
		out := p.request(&http.Request{URL: u, Header: http.Header{}})
		if sent := out.URL.EscapedPath(); sent != "/api"+strings.TrimPrefix(u.EscapedPath(), shopRoot) || strings.Contains(out.URL.Path, "/../") || strings.Contains(sent, "//") || out.URL.RawQuery != query {
			t.Errorf("%q becomes %q", u, out.URL)
		}
	})
}
