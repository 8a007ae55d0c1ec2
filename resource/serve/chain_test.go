package serve

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptrace"
	"net/textproto"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"portico/resource"
	"portico/resource/authz"
	"portico/resource/serve/filter"
)

const pathPods = "/api/v1/namespaces/ns/pods"

func ok(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "ok") }

func TestAuditID(t *testing.T) {
	var forwarded string
	s := newTestServer(t, func(w http.ResponseWriter, r *http.Request) {
		forwarded = r.Header.Get("Audit-ID")
		w.Header().Set("Audit-ID", "of a backend") // a proxy copies what it gets
	})
	if got := do(s, "GET", "/", "Audit-ID", "mine").Header()["Audit-Id"]; len(got) != 1 || got[0] != "mine" || forwarded != "mine" {
		t.Errorf("got %q, forwarded %q", got, forwarded)
	}
	if got := do(s, "GET", "/").Header().Get("Audit-ID"); len(got) != 36 || forwarded != got {
		t.Errorf("got %q, forwarded %q", got, forwarded)
	}
}

func TestCacheControl(t *testing.T) {
	s := newTestServer(t, func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/own" {
			w.Header().Set("Cache-Control", "public")
		}
	})
	for path, want := range map[string]string{"/": "no-cache, private", "/own": "public"} {
		if got := strings.Join(do(s, "GET", path).Header().Values("Cache-Control"), "|"); got != want {
			t.Errorf("%s: got %q", path, got)
		}
	}
}

func TestPanic(t *testing.T) {
	s := newTestServer(t, func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/late":
			w.WriteHeader(200)
			_, _ = w.Write([]byte("begun"))
			http.NewResponseController(w).Flush()
			panic("late")
		case "/abort":
			panic(http.ErrAbortHandler)
		}
		panic("early")
	})
	w := do(s, "GET", "/early")
	if w.Code != 500 || w.Body.String() != "This request caused apiserver to panic. Look in the logs for details.\n" || w.Header().Get("Audit-Id") == "" {
		t.Errorf("got %d %v %q", w.Code, w.Header(), w.Body)
	}
	for _, path := range []string{"/late", "/abort"} {
		func() {
			defer func() {
				if got := recover(); got != http.ErrAbortHandler {
					t.Errorf("%s: panicked with %v", path, got)
				}
			}()
			do(s, "GET", path)
		}()
	}
	run(t, s)
	client := socketClient(t, strings.TrimPrefix(s.cfg.Listen[0].Address, unixPrefix), false)
	response, err := client.Get("http://portico/late")
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	if body, err := io.ReadAll(response.Body); err == nil || string(body) != "begun" {
		t.Errorf("got %q, %v; want a broken body", body, err)
	}
}

func TestCompleteness(t *testing.T) {
	complete := false
	s := newTestServer(t, func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/status" {
			w.Header().Set("Content-Type", "application/json")
			w.WriteHeader(404)
			return
		}
		NotFound(w, r)
	}, func(c *testConfig) { c.Complete = func() bool { return complete } })
	w := do(s, "GET", "/x")
	wantStatus(t, w.Body, 503, metav1.StatusReasonServiceUnavailable,
		"the request has been made before all known HTTP paths have been installed, please try again")
	if w.Code != 503 || w.Header().Get("Retry-After") != "5" || w.Header().Get("Content-Type") != "application/json" {
		t.Errorf("got %d %v", w.Code, w.Header())
	}
	if w := do(s, "GET", "/status"); w.Code != 404 {
		t.Errorf("a 404 about an object became %d", w.Code)
	}
	complete = true
	if w := do(s, "GET", "/x"); w.Code != 404 || w.Body.String() != "404 page not found\n" {
		t.Errorf("got %d %q", w.Code, w.Body)
	}
}

type failing struct{ err error }

func (f failing) Authenticate(*http.Request) (*resource.User, bool, error) { return nil, false, f.err }

func TestAuthenticate(t *testing.T) {
	for _, err := range []error{nil, errors.New("bad token")} {
		s := newTestServer(t, ok, func(c *testConfig) { c.Authenticator = failing{err} })
		w := do(s, "GET", "/")
		wantStatus(t, w.Body, 401, metav1.StatusReasonUnauthorized, "Unauthorized")
		if w.Code != 401 || w.Header().Get("Audit-Id") == "" || w.Header().Get("Cache-Control") == "" {
			t.Errorf("got %d %v", w.Code, w.Header())
		}
	}
	s := newTestServer(t, whoami)
	w := do(s, "GET", "/", "x-remote-user", "admin", "X_Remote_User", "admin", "Authorization", "Bearer x")
	if got := w.Body.String(); got != "jane " {
		t.Errorf("credentials reached the handler: %s", got)
	}
}

func TestAuthorize(t *testing.T) {
	says := func(d authz.Decision, err error) func(*testConfig) {
		return func(c *testConfig) {
			c.Authorizer = authz.Func(func(context.Context, *resource.Action) (authz.Decision, string, error) { return d, "because", err })
		}
	}
	w := do(newTestServer(t, ok, says(authz.NoOpinion, nil)), "GET", pathPods)
	wantStatus(t, w.Body, 403, metav1.StatusReasonForbidden,
		`pods is forbidden: User "jane" cannot list resource "pods" in API group "" in the namespace "ns": because`)
	if w.Code != 403 || w.Header().Get("X-Content-Type-Options") != "nosniff" {
		t.Errorf("got %d %v", w.Code, w.Header())
	}
	w = do(newTestServer(t, ok, says(authz.NoOpinion, errors.New("no roles"))), "GET", "/x?<y>")
	if w.Code != 500 || w.Body.String() != "Internal Server Error: \"/x?&lt;y&gt;\": no roles\n" {
		t.Errorf("got %d %q", w.Code, w.Body)
	}
	if w = do(newTestServer(t, ok, says(authz.Allow, errors.New("in part"))), "GET", "/"); w.Code != 200 {
		t.Errorf("got %d", w.Code)
	}
}

// Impersonation gets the real user and sets the user of authorization.
func TestImpersonationIsBetween(t *testing.T) {
	s := newTestServer(t, ok, func(c *testConfig) {
		c.Impersonation = func(next http.Handler) http.Handler {
			return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				action := resource.ActionFrom(r.Context())
				action.User = &resource.User{Name: "as-" + action.User.Name}
				next.ServeHTTP(w, r)
			})
		}
		c.Authorizer = authz.Func(func(context.Context, *resource.Action) (authz.Decision, string, error) {
			return authz.NoOpinion, "", nil
		})
	})
	wantStatus(t, do(s, "GET", "/x").Body, 403, metav1.StatusReasonForbidden, `forbidden: User "as-jane" cannot get path "/x"`)
}

// A handler can stream, and take over its connection, through all the filters
// and the router.
func TestStreamAndHijack(t *testing.T) {
	step := make(chan struct{})
	resources := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Upgrade") == "" {
			for i := range 3 {
				fmt.Fprintf(w, "%d\n", i)
				w.(http.Flusher).Flush()
				<-step
			}
			return
		}
		conn, rw, err := http.NewResponseController(w).Hijack()
		if err != nil {
			http.Error(w, err.Error(), 500)
			return
		}
		defer conn.Close()
		fmt.Fprintf(rw, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: echo\r\nAudit-Id: %s\r\n\r\n", w.Header().Get("Audit-Id"))
		_ = rw.Flush()
		_, _ = io.Copy(conn, rw)
	})
	s := newTestServer(t, NewRouter(Routes{Resources: resources}).ServeHTTP)
	run(t, s)
	path := strings.TrimPrefix(s.cfg.Listen[0].Address, unixPrefix)
	for _, h2 := range []bool{false, true} {
		response, err := socketClient(t, path, h2).Get("http://portico" + pathPods + "?watch=1")
		if err != nil {
			t.Fatal(err)
		}
		lines := bufio.NewReader(response.Body)
		for i := range 3 {
			if line, err := lines.ReadString('\n'); line != fmt.Sprintf("%d\n", i) {
				t.Fatalf("h2 %v: got %q, %v", h2, line, err)
			}
			step <- struct{}{}
		}
		_ = response.Body.Close()
	}
	conn, err := net.Dial("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	fmt.Fprintf(conn, "GET %s/x/exec HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\nUpgrade: echo\r\nAudit-ID: mine\r\n\r\n", pathPods)
	reader := bufio.NewReader(conn)
	response, err := http.ReadResponse(reader, nil)
	if err != nil || response.StatusCode != 101 || response.Header.Get("Audit-Id") != "mine" {
		t.Fatalf("got %v, %v", response, err)
	}
	fmt.Fprint(conn, "hello\n")
	if line, err := reader.ReadString('\n'); line != "hello\n" {
		t.Errorf("got %q, %v", line, err)
	}
}

// Informational responses reach the client, with their own header; the final one
// has the warnings that were there before.
func TestInformationalResponse(t *testing.T) {
	s := newTestServer(t, NewRouter(Routes{Resources: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		filter.AddWarning(r.Context(), "said before")
		w.Header().Set("Link", "</early>")
		w.WriteHeader(http.StatusEarlyHints)
		clear(w.Header()) // as httputil.ReverseProxy does
		w.WriteHeader(http.StatusCreated)
	})}).ServeHTTP)
	run(t, s)
	for _, query := range []string{"", "?watch=1"} {
		var hints []string
		trace := &httptrace.ClientTrace{Got1xxResponse: func(code int, h textproto.MIMEHeader) error {
			hints = append(hints, fmt.Sprint(code, h.Get("Link")))
			return nil
		}}
		r, err := http.NewRequestWithContext(httptrace.WithClientTrace(t.Context(), trace), "GET", "http://portico"+pathPods+query, nil)
		if err != nil {
			t.Fatal(err)
		}
		response, err := socketClient(t, strings.TrimPrefix(s.cfg.Listen[0].Address, unixPrefix), true).Do(r)
		if err != nil {
			t.Fatal(err)
		}
		_ = response.Body.Close()
		if got := response.Header["Warning"]; len(got) != 1 || got[0] != `299 - "said before"` {
			t.Errorf("%q: warnings %q", query, got)
		}
		if response.StatusCode != 201 || len(hints) != 1 || hints[0] != "103</early>" || response.Header.Get("Link") != "" || response.Header.Get("Audit-Id") == "" {
			t.Errorf("%q: got %d %v, before that %q", query, response.StatusCode, response.Header, hints)
		}
	}
}
