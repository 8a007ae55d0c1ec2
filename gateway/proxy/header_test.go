package proxy

import (
	"maps"
	"net/http"
	"net/http/httptest"
	"reflect"
	"slices"
	"strings"
	"testing"

	"portico/resource"
)

// credentials are headers by which clients authenticate at servers and proxies, and by which proxies name users.
var credentials = []string{
	"Cookie", "Cookie2", "Proxy-Authorization", "X-Api-Key", "Apikey", "X-Auth-Token", "X-Access-Token", "X-Id-Token", "X-Csrf-Token", "X-Amz-Security-Token",
	"X-Vault-Token", "Private-Token", "X-Forwarded-Access-Token", "X-Forwarded-User", "X-Auth-Request-Access-Token", "X-Ms-Token-Aad-Id-Token", "Cf-Access-Jwt-Assertion",
	"X-Goog-Iap-Jwt-Assertion", "X-Scope-Orgid", "Kubeflow-Userid", "X-Hasura-Role", "X-Consumer-Groups", "X-Original-Forwarded-For", "X-Token-Subject", "X-Vouch-User",
	"X-Principal", "X-Tenant", "X-Envoy-Original-Path", "X_Remote_User", "X.Remote.User", "Impersonate-User", "Impersonate_User", "Authorization",
}

// forgedHeader returns what has a value in each of names.
func forgedHeader(names ...string) http.Header {
	h := http.Header{}
	for _, name := range names {
		h[name] = []string{"evil"}
	}
	return h
}

// A Kubernetes API server gets what servers of k8s.io/apiserver read and no other header of a client, over HTTP/1.1 and HTTP/2.
func TestHeadersOfKubernetesServers(t *testing.T) {
	t.Parallel()
	var got http.Header
	f := startFront(t, func(_ http.ResponseWriter, r *http.Request) { got = r.Header })
	kept := []string{
		"Accept", "Accept-Encoding", "Accept-Language", "Audit-Id", "Baggage", "Cache-Control", "Content-Type", "If-Match", "If-None-Match", "If-Modified-Since",
		"Kubectl-Command", "Kubectl-Session", "Origin", "Prefer", "Range", "Sec-Fetch-Site", "Traceparent", "Tracestate", "User-Agent", "X-Request-Id", "X-Stream-Protocol-Version",
	}
	own := []string{
		"X-Forwarded-For", "X-Forwarded-Host", "X-Forwarded-Proto", "X-Forwarded-Uri", "X-Portico-Via", "X-Remote-Extra-Example.com%2fscope", "X-Remote-Group",
		"X-Remote-Uid", "X-Remote-User",
	}
	for _, path := range []string{shortPath, longPath} { // HTTP/1.1 and HTTP/2
		h := forgedHeader(append([]string{"Referer", "X-Custom"}, credentials...)...)
		for _, name := range kept {
			h[name] = []string{"kept"}
		}
		if res := f.do(t, "GET", path, nil, h); res.StatusCode != 200 {
			t.Fatalf("%s: %d", path, res.StatusCode)
		}
		if names := slices.Sorted(maps.Keys(got)); !slices.Equal(names, slices.Sorted(slices.Values(append(own, kept...)))) {
			t.Errorf("%s: the server got %v", path, names)
		}
		for _, name := range kept {
			if got.Get(name) != "kept" {
				t.Errorf("%s: %s is %q", path, name, got[name])
			}
		}
	}
}

// A server gets the client's headers, the user, X-Forwarded-* and the id of the gateway, and nothing else: over HTTP/1.1, over
// HTTP/2 and for upgrades.
func TestHeaderOfARequest(t *testing.T) {
	t.Parallel()
	var got http.Header
	server, trust := startTLS(t, func(w http.ResponseWriter, r *http.Request) {
		got = r.Header
		w.WriteHeader(http.StatusNotFound) // passed on also if another protocol is asked for
	})
	send := along(routeTo(upstreamTo(t, trust, []string{server.Listener.Addr().String()})))
	bob := &resource.User{Name: "bob", Groups: []string{"one", "two"}}
	for name, c := range map[string]struct {
		path    string
		user    *resource.User
		upgrade bool
		secure  bool // the connection of the client
	}{
		"HTTP/1.1":     {path: shortPath + "?limit=5", user: bob},
		"HTTP/2":       {path: watchPath, user: bob},
		"over TLS":     {path: shortPath, user: bob, secure: true},
		"with a UID":   {path: shortPath, user: &resource.User{Name: "bob", UID: "42", Groups: bob.Groups}},
		"an upgrade":   {path: execPath, user: &resource.User{Name: "bob", UID: "42", Groups: bob.Groups}, upgrade: true},
		"one over TLS": {path: longPath, user: bob, upgrade: true, secure: true},
	} {
		start, proto := httptest.NewServer, "http"
		if c.secure {
			start, proto = httptest.NewTLSServer, "https"
		}
		front := start(asUser(c.user, send))
		t.Cleanup(front.Close)
		req, err := http.NewRequestWithContext(t.Context(), "GET", front.URL+c.path, nil)
		if err != nil {
			t.Fatal(err)
		}
		want := http.Header{
			"User-Agent": {"Go-http-client/1.1"}, "Accept-Encoding": {"gzip"}, "X-Remote-User": {"bob"}, "X-Remote-Group": {"one", "two"},
			"X-Forwarded-For": {"127.0.0.1"}, "X-Forwarded-Host": {front.Listener.Addr().String()}, "X-Forwarded-Proto": {proto}, "X-Forwarded-Uri": {c.path},
		}
		if c.user.UID != "" {
			want["X-Remote-Uid"] = []string{c.user.UID}
		}
		if c.upgrade {
			want["Connection"], want["Upgrade"] = []string{"Upgrade"}, []string{"echo"}
			req.Header["Connection"], req.Header["Upgrade"] = want["Connection"], want["Upgrade"]
		}
		res, err := front.Client().Do(req)
		if err != nil {
			t.Fatal(err)
		}
		res.Body.Close()
		via := got["X-Portico-Via"]
		delete(got, "X-Portico-Via")
		if res.StatusCode != http.StatusNotFound || len(via) != 1 || !reflect.DeepEqual(got, want) {
			t.Errorf("%s: %d, by way of %q\n got %v\nwant %v", name, res.StatusCode, via, got, want)
		}
	}
}

// A pod, node or service behind the core server gets all headers but those by which a client authenticates at the gateway or before
// it. Its answer is a page of no origin, and sets no cookie for the gateway's.
func TestProxiedObjects(t *testing.T) {
	t.Parallel()
	var got http.Header
	f := startFront(t, func(w http.ResponseWriter, r *http.Request) {
		got = r.Header
		w.Header().Set("Set-Cookie", "session=evil; Path=/")
		w.Header().Set("Content-Security-Policy", "default-src 'self'")
		w.Header().Set("Content-Type", "text/html")
	})
	for _, path := range []string{"/api/v1/namespaces/a/pods/x/proxy/", "/api/v1/namespaces/a/services/x/proxy/y", "/api/v1/nodes/x/proxy/"} {
		stripped := forgedHeader("Cookie", "Cookie2", "Proxy-Authorization", "X-Forwarded-Access-Token", "X-Auth-Request-Access-Token", "X_Forwarded_User", "Impersonate-User", "Authorization", "X-Remote-Extra-A")
		stripped["X-Vault-Token"], stripped["Referer"] = []string{"kept"}, []string{"kept"}
		res := f.do(t, "GET", path, nil, stripped)
		for name, values := range got {
			if slices.Contains(values, "evil") {
				t.Errorf("%s: the server got %s", path, name)
			}
		}
		if got.Get("X-Vault-Token") != "kept" || got.Get("Referer") != "kept" {
			t.Errorf("%s: the server got %v", path, got)
		}
		judgeConfined(t, path, res.Header, "default-src 'self'")
	}
}

// judgeConfined checks the header of an answer that is not the gateway's own.
func judgeConfined(t *testing.T, about string, h http.Header, policies ...string) {
	t.Helper()
	if got := h["Content-Security-Policy"]; !slices.Equal(got, append(policies, sandbox)) || strings.Contains(sandbox, "allow-same-origin") {
		t.Errorf("%s: Content-Security-Policy: %q", about, got)
	}
	if h.Get("X-Content-Type-Options") != "nosniff" || h["Set-Cookie"] != nil {
		t.Errorf("%s: the answer has %v", about, h)
	}
}

// An answer of a registered server is a page of no origin and sets no cookie; that of a server that the gateway starts with only
// sets none.
func TestAnswersAreConfined(t *testing.T) {
	t.Parallel()
	for _, static := range []bool{false, true} {
		up := upstreamOnSocket(t, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			w.Header()["Set-Cookie"] = []string{"a=b", "c=d"}
		}))
		rt := routeTo(up)
		rt.Static = static
		front := httptest.NewServer(asAlice(along(rt)))
		t.Cleanup(front.Close)
		res, _ := askREST(t, front, "GET", shortPath)
		if !static {
			judgeConfined(t, "registered", res.Header)
		} else if res.Header["Content-Security-Policy"] != nil || res.Header["Set-Cookie"] != nil {
			t.Errorf("static: %v", res.Header)
		}
	}
}
