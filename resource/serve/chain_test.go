package serve

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptrace"
	"net/textproto"
	"strings"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"portico/resource"
	"portico/resource/authz"
)

// decide is an Authorizer with a fixed result.
func decide(d authz.Decision, reason string, err error) authz.Authorizer {
	return authz.Func(func(context.Context, *resource.Action) (authz.Decision, string, error) { return d, reason, err })
}

// A response has the Audit-ID of the request, or a new one, which the handler gets too, and
// Cache-Control unless the handler sets it.
func TestHeadersOfResponses(t *testing.T) {
	t.Parallel()
	var forwarded string
	s := newTestServer(t, func(w http.ResponseWriter, r *http.Request) {
		forwarded = r.Header.Get("Audit-ID")
		w.Header().Set("Audit-ID", "of a backend") // a proxy copies what it gets
		if r.URL.Path == "/own" {
			w.Header().Set("Cache-Control", "public")
		}
	})
	for path, cache := range map[string]string{"/": "no-cache, private", "/own": "public"} {
		h := do(s, "GET", path, "Audit-ID", "mine").Header()
		if got := strings.Join(h["Audit-Id"], "|"); got != "mine" || forwarded != "mine" {
			t.Errorf("%s: Audit-ID %q, forwarded %q", path, got, forwarded)
		}
		if got := strings.Join(h["Cache-Control"], "|"); got != cache {
			t.Errorf("%s: Cache-Control %q, want %q", path, got, cache)
		}
	}
	if got := do(s, "GET", "/").Header().Get("Audit-ID"); len(got) != 36 || forwarded != got {
		t.Errorf("Audit-ID %q, forwarded %q", got, forwarded)
	}
}

// A panic is a 500, or cuts the response off if that has begun.
func TestPanic(t *testing.T) {
	t.Parallel()
	s := newTestServer(t, func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/late":
			_, _ = w.Write([]byte("begun"))
			_ = http.NewResponseController(w).Flush()
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
	s.start(t)
	for path, begun := range map[string]string{"/late": "begun", "/abort": ""} {
		response, err := s.client(t, false).Get("http://portico" + path)
		if err != nil && begun == "" {
			continue
		}
		if err != nil {
			t.Fatal(err)
		}
		defer response.Body.Close()
		if body, err := io.ReadAll(response.Body); err == nil || string(body) != begun {
			t.Errorf("%s: got %q, %v; want a broken body", path, body, err)
		}
	}
}

// Until the server is complete, a 404 of an unknown path is a 503; one of an object is not.
func TestCompleteness(t *testing.T) {
	t.Parallel()
	complete := false
	s := newTestServer(t, func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/status" {
			w.Header().Set("Content-Type", "application/json")
			w.WriteHeader(404)
			return
		}
		http.NotFound(w, r)
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

// A request without a user is a 401. Credentials do not reach the handler.
func TestAuthenticate(t *testing.T) {
	t.Parallel()
	for _, err := range []error{nil, errors.New("bad token")} {
		w := do(newTestServer(t, ok, func(c *testConfig) { c.Authenticator = failing(err) }), "GET", "/")
		wantStatus(t, w.Body, 401, metav1.StatusReasonUnauthorized, "Unauthorized")
		if w.Code != 401 || w.Header().Get("Audit-Id") == "" || w.Header().Get("Cache-Control") == "" {
			t.Errorf("got %d %v", w.Code, w.Header())
		}
	}
	w := do(newTestServer(t, whoami), "GET", "/", "x-remote-user", "admin", "X_Remote_User", "admin", "Authorization", "Bearer x")
	if got := w.Body.String(); got != "jane " {
		t.Errorf("credentials reached the handler: %s", got)
	}
}

// Config.Refuse answers requests before authentication, of every path.
func TestRefuseBeforeAuthentication(t *testing.T) {
	t.Parallel()
	s := newTestServer(t, func(http.ResponseWriter, *http.Request) { t.Error("a refused request is handled") }, func(c *testConfig) {
		c.Authenticator = authenticate(func(*http.Request) (*resource.User, bool, error) {
			t.Error("a refused request is authenticated")
			return nil, false, nil
		})
		c.Refuse = func(*http.Request) error { return apierrors.NewBadRequest("no") }
	})
	for _, path := range []string{"/api/v1/pods", "/healthz", "/api/v1/pods?watch=1"} {
		w := do(s, "GET", path)
		if w.Code != 400 {
			t.Errorf("%s: got %d", path, w.Code)
		}
		wantStatus(t, w.Body, 400, metav1.StatusReasonBadRequest, "no")
	}
}

// A request is a 403 unless it is allowed, also with an error, and any other error is a 500.
// The user of authorization is the impersonated one.
func TestAuthorize(t *testing.T) {
	t.Parallel()
	server := func(d authz.Decision, err error) *testServer {
		return newTestServer(t, ok, func(c *testConfig) { c.Authorizer, c.Impersonation = decide(d, "because", err), impersonated })
	}
	w := do(server(authz.NoOpinion, nil), "GET", pathPods)
	wantStatus(t, w.Body, 403, metav1.StatusReasonForbidden,
		`pods is forbidden: User "jane" cannot list resource "pods" in API group "" in the namespace "ns": because`)
	if w.Code != 403 || w.Header().Get("X-Content-Type-Options") != "nosniff" {
		t.Errorf("got %d %v", w.Code, w.Header())
	}
	wantStatus(t, do(server(authz.Deny, nil), "GET", "/x", "Impersonate-User", "john").Body, 403, metav1.StatusReasonForbidden,
		`forbidden: User "john" cannot get path "/x": because`)
	w = do(server(authz.NoOpinion, errors.New("no roles")), "GET", "/x?<y>")
	if w.Code != 500 || w.Body.String() != "Internal Server Error: \"/x?&lt;y&gt;\": no roles\n" {
		t.Errorf("got %d %q", w.Code, w.Body)
	}
	if w = do(server(authz.Allow, errors.New("in part")), "GET", "/"); w.Code != 200 {
		t.Errorf("got %d", w.Code)
	}
}

// A handler can stream through all filters and the router.
func TestStream(t *testing.T) {
	t.Parallel()
	step := make(chan struct{})
	s := newTestServer(t, NewRouter(Routes{Resources: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		for i := range 3 {
			fmt.Fprintf(w, "%d\n", i)
			w.(http.Flusher).Flush()
			<-step
		}
	})}).ServeHTTP)
	s.start(t)
	for _, h2 := range []bool{false, true} {
		response, err := s.client(t, h2).Get("http://portico" + pathPods + "?watch=1")
		if err != nil {
			t.Fatal(err)
		}
		defer response.Body.Close()
		lines := bufio.NewReader(response.Body)
		for i := range 3 {
			if line, err := lines.ReadString('\n'); line != fmt.Sprintf("%d\n", i) {
				t.Fatalf("h2 %v: got %q, %v", h2, line, err)
			}
			step <- struct{}{}
		}
	}
}

// Informational responses of a handler are not sent. The final one has its own header.
func TestInformationalResponse(t *testing.T) {
	t.Parallel()
	s := newTestServer(t, NewRouter(Routes{Resources: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Link", "</early>")
		w.WriteHeader(http.StatusEarlyHints)
		clear(w.Header()) // as httputil.ReverseProxy does
		w.WriteHeader(http.StatusCreated)
	})}).ServeHTTP)
	s.start(t)
	for _, query := range []string{"", "?watch=1"} {
		trace := &httptrace.ClientTrace{Got1xxResponse: func(code int, _ textproto.MIMEHeader) error {
			t.Errorf("%q: got %d", query, code)
			return nil
		}}
		response, err := s.client(t, true).Do(clientRequest(httptrace.WithClientTrace(t.Context(), trace), "http://portico"+pathPods+query))
		if err != nil {
			t.Fatal(err)
		}
		_ = response.Body.Close()
		if response.StatusCode != 201 || response.Header.Get("Link") != "" || response.Header.Get("Audit-Id") == "" {
			t.Errorf("%q: got %d %v", query, response.StatusCode, response.Header)
		}
	}
}
