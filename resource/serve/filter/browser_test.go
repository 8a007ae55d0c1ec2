package filter

import (
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"portico/resource"
)

// nobody authenticates no request.
type nobody struct{}

func (nobody) Authenticate(*http.Request) (*resource.User, bool, error) { return nil, false, nil }

// An allowed origin gets the headers with every response, a 401 too, whatever the handler sets, and a
// preflight is answered without credentials. Another origin gets none.
func TestOrigins(t *testing.T) {
	t.Parallel()
	handler := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Access-Control-Allow-Methods", "none")
	})
	for _, c := range []struct {
		about, pattern, method, origin string
		known, allowed                 bool
		code                           int
	}{
		{"allowed", `^https://example\.com$`, "GET", "https://example.com", true, true, 200},
		{"expression", `//.*\.example\.com(:|$)`, "GET", "https://a.example.com:8443", true, true, 200},
		{"preflight", `^https://example\.com$`, "OPTIONS", "https://example.com", false, true, 204},
		{"without a user", `^https://example\.com$`, "GET", "https://example.com", false, true, 401},
		{"another origin", `^https://example\.com$`, "GET", "https://example.com.evil.org", true, false, 200},
		{"preflight of another origin", `^https://example\.com$`, "OPTIONS", "https://evil.org", false, false, 401},
		{"no origin", `^https://example\.com$`, "OPTIONS", "", false, false, 401},
		{"no origins", "", "OPTIONS", "https://example.com", false, false, 401},
	} {
		t.Run(c.about, func(t *testing.T) {
			t.Parallel()
			cfg := Config{Handler: handler, Authenticator: nobody{}, Logger: slog.New(slog.DiscardHandler)}
			if c.known {
				cfg.Authenticator = asJane{}
			}
			if c.pattern != "" {
				cfg.Browser.AllowedOrigins = []string{`^https://other\.example\.org$`, c.pattern}
			}
			chain, err := New(cfg)
			if err != nil {
				t.Fatal(err)
			}
			r, w := httptest.NewRequest(c.method, pathPods, nil), httptest.NewRecorder()
			if c.origin != "" {
				r.Header.Set("Origin", c.origin)
			}
			chain.ServeHTTP(w, r)
			if w.Code != c.code {
				t.Errorf("status %d, want %d", w.Code, c.code)
			}
			want := map[string]string{"Origin": "", "Methods": ""}
			if c.known {
				want["Methods"] = "none"
			}
			if c.allowed {
				want = map[string]string{
					"Origin": c.origin, "Methods": "POST, GET, OPTIONS, PUT, DELETE, PATCH", "Credentials": "true",
					"Headers": "Content-Type, Content-Length, Accept-Encoding, X-CSRF-Token, Authorization, X-Requested-With, If-Modified-Since",
				}
			}
			for name, value := range want {
				if got := w.Header().Get("Access-Control-Allow-" + name); got != value {
					t.Errorf("Access-Control-Allow-%s: %q, want %q", name, got, value)
				}
			}
			if got := w.Header().Get("Access-Control-Expose-Headers"); (got == "Date") != c.allowed {
				t.Errorf("Access-Control-Expose-Headers: %q", got)
			}
		})
	}
}

// Strict-Transport-Security is in every response, unless the server has set it.
func TestStrictTransport(t *testing.T) {
	t.Parallel()
	for _, own := range []string{"", "max-age=1"} {
		handler := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			if own != "" {
				w.Header().Set(headerHSTS, own)
			}
		})
		cfg := Config{Handler: handler, Authenticator: asJane{}, Logger: slog.New(slog.DiscardHandler)}
		cfg.Browser.StrictTransport = []string{"max-age=31536000", "includeSubDomains"}
		chain, err := New(cfg)
		if err != nil {
			t.Fatal(err)
		}
		w := httptest.NewRecorder()
		chain.ServeHTTP(w, httptest.NewRequest("GET", pathPods, nil))
		want := own
		if own == "" {
			want = "max-age=31536000; includeSubDomains"
		}
		if got := w.Header().Values(headerHSTS); strings.Join(got, "|") != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
}

// What kube-apiserver refuses is refused.
func TestBrowserIsChecked(t *testing.T) {
	t.Parallel()
	for _, pattern := range []string{"", "example.com", `//example\.com`, "example.com$", `.*`, `^https://(example$`} {
		if err := (&Browser{AllowedOrigins: []string{pattern}}).Check(); err == nil || !strings.Contains(err.Error(), "--cors-allowed-origins") {
			t.Errorf("%q: %v", pattern, err)
		}
	}
	for _, pattern := range []string{`^https://example\.com$`, `//example\.com(:|$)`, `^http://localhost:`} {
		if err := (&Browser{AllowedOrigins: []string{pattern}}).Check(); err != nil {
			t.Errorf("%q: %v", pattern, err)
		}
	}
	for directive, ok := range map[string]bool{
		"max-age=31536000": true, "includeSubDomains": true, "preload": true,
		"": false, " ": false, "max-age": false, "maxage=1": false, "max-age=1=2": false, "includesubdomains": false,
	} {
		if err := (&Browser{StrictTransport: []string{directive}}).Check(); (err == nil) != ok {
			t.Errorf("%q: %v", directive, err)
		}
	}
}

// A write, and an upgrade of any method, that a browser sends for a page of another origin is a 403 before authentication,
// unless the origin is allowed. Reads pass, and so does what is sent by other clients or by the server's own pages.
func TestCrossOriginRequests(t *testing.T) {
	t.Parallel()
	const other, friend = "https://other.example.org", "https://friend.example.com"
	for _, c := range []struct {
		about, method, origin, site string
		upgrade                     bool
		code                        int
	}{
		{"another client", "POST", "", "", false, 401},
		{"another client that upgrades", "GET", "", "", true, 401},
		{"its own page", "POST", "https://example.com", "same-origin", false, 401},
		{"its own page, in an old browser", "DELETE", "https://example.com", "", false, 401},
		{"its own page behind a proxy that changes the host", "POST", other, "same-origin", false, 401},
		{"a WebSocket client that names the host", "GET", "http://example.com", "", true, 401},
		{"an address that the user has typed", "POST", "", "none", false, 401},
		{"an allowed origin", "POST", friend, "cross-site", false, 401},
		{"an allowed origin that upgrades", "GET", friend, "", true, 401},
		{"a read", "GET", other, "cross-site", false, 401},
		{"a preflight", "OPTIONS", other, "cross-site", false, 401},
		{"a write", "POST", other, "cross-site", false, 403},
		{"a write of a page of the same site", "PUT", other, "same-site", false, 403},
		{"a write, in an old browser", "PATCH", other, "", false, 403},
		{"a write of a page in a sandbox", "POST", "null", "", false, 403},
		{"a write without an origin", "DELETE", "", "cross-site", false, 403},
		{"a method that there is not", "PURGE", other, "", false, 403},
		{"an upgrade", "GET", other, "cross-site", true, 403},
		{"an upgrade, in a browser that says the origin only", "GET", other, "", true, 403},
		{"an upgrade of another port of the host", "GET", "https://example.com:8443", "", true, 403},
		{"a preflight that upgrades", "OPTIONS", other, "", true, 403},
	} {
		t.Run(c.about, func(t *testing.T) {
			t.Parallel()
			chain, err := New(Config{
				Handler: http.NotFoundHandler(), Authenticator: nobody{}, Logger: slog.New(slog.DiscardHandler),
				Browser: Browser{AllowedOrigins: []string{`^https://friend\.example\.com$`}},
			})
			if err != nil {
				t.Fatal(err)
			}
			r, w := httptest.NewRequest(c.method, pathPods, nil), httptest.NewRecorder()
			for name, value := range map[string]string{"Origin": c.origin, "Sec-Fetch-Site": c.site} {
				if value != "" {
					r.Header.Set(name, value)
				}
			}
			if c.upgrade {
				r.Header.Set("Connection", "keep-alive, Upgrade")
				r.Header.Set("Upgrade", "websocket")
			}
			chain.ServeHTTP(w, r)
			if w.Code != c.code || !strings.Contains(w.Body.String(), `"kind":"Status"`) {
				t.Errorf("%d %s, want a Status with %d", w.Code, w.Body, c.code)
			}
			// A server behind a gateway has another host, and does not check again.
			chain.cfg.ManyUsers, w = true, httptest.NewRecorder()
			if chain.ServeHTTP(w, r); w.Code != 401 {
				t.Errorf("behind a gateway: %d %s, want 401", w.Code, w.Body)
			}
		})
	}
}
