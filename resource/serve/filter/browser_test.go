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
