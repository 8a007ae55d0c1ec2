package serve

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	auditv1 "k8s.io/apiserver/pkg/apis/audit/v1"

	"portico/resource"
	"portico/resource/audit"
	"portico/resource/authz"
	"portico/resource/response"
	"portico/resource/serve/filter"
)

// auditing returns a change of a configuration that audits by rules, and a function that
// reads the events.
func auditing(t testing.TB, rules string, change ...func(*audit.Options)) (func(*testConfig), func() []auditv1.Event) {
	t.Helper()
	dir := t.TempDir()
	o := audit.DefaultOptions()
	o.PolicyFile, o.Log.Path = filepath.Join(dir, "policy.yaml"), filepath.Join(dir, "audit.log")
	o.Log.MaxSize = 0 // rotation has a goroutine that does not end
	policy := "apiVersion: audit.k8s.io/v1\nkind: Policy\nrules:\n" + rules
	if err := os.WriteFile(o.PolicyFile, []byte(policy), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, f := range change {
		f(&o)
	}
	auditor, err := audit.Open(o, quiet())
	if err != nil {
		t.Fatal(err)
	}
	return func(c *testConfig) { c.Audit = auditor }, func() []auditv1.Event { return readEvents(t, o.Log.Path) }
}

func readEvents(t testing.TB, path string) (events []auditv1.Event) {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	for line := range bytes.Lines(text) {
		var e auditv1.Event
		if err := json.Unmarshal(line, &e); err != nil {
			t.Fatalf("%v: %s", err, line)
		}
		events = append(events, e)
	}
	return events
}

// told returns the compared parts of events, one line each.
func told(events []auditv1.Event) string {
	var lines []string
	for _, e := range events {
		line := fmt.Sprintf("%s %s %s %s", e.Stage, e.Verb, e.RequestURI, e.User.Username)
		if e.ImpersonatedUser != nil {
			line += " as " + e.ImpersonatedUser.Username
		}
		if s := e.ResponseStatus; s != nil {
			line += fmt.Sprintf(" %d", s.Code)
			if s.Reason != "" || s.Message != "" {
				line += fmt.Sprintf(" %s %q", s.Reason, s.Message)
			}
		}
		if d, ok := e.Annotations["authorization.k8s.io/decision"]; ok {
			line += " " + d + ":" + e.Annotations["authorization.k8s.io/reason"]
		}
		lines = append(lines, line)
	}
	return strings.Join(lines, "\n")
}

const metadata = "- level: Metadata\n"

// doAnything ends a request in the way that its query names.
func doAnything(w http.ResponseWriter, r *http.Request) {
	switch r.URL.Query().Get("container") {
	case "panic":
		panic("oh")
	case "abort":
		panic(http.ErrAbortHandler)
	case "cut":
		ok(w, r)
		panic(http.ErrAbortHandler)
	case "late":
		ok(w, r)
		panic("oh")
	case "notfound":
		response.WriteStatus(w, r, apierrors.NewNotFound(schema.GroupResource{Resource: "pods"}, "a"))
	case "long":
		response.WriteStatus(w, r, apierrors.NewBadRequest(strings.Repeat("x", 16<<10)))
	case "text":
		http.Error(w, "no Status", http.StatusBadGateway)
	case "wait":
		<-r.Context().Done()
	case "nothing":
	default:
		ok(w, r)
	}
}

// Every stage of a request has one event with the response that the client got, from the handler
// or from a filter.
func TestAuditStages(t *testing.T) {
	t.Parallel()
	says := authz.Func(func(_ context.Context, a *resource.Action) (authz.Decision, string, error) {
		switch a.Name {
		case "forbidden":
			return authz.NoOpinion, "no", nil
		case "unknown":
			return authz.NoOpinion, "", errors.New("unknown role")
		}
		return authz.Allow, "sure", nil
	})
	unauthenticated := func(r *http.Request) (*resource.User, bool, error) {
		switch scheme, token, _ := strings.Cut(r.Header.Get("Authorization"), " "); {
		case token == "slow":
			time.Sleep(2 * time.Minute)
			fallthrough
		case scheme != "" || r.Header.Get("User") == "none":
			return nil, false, errors.New("unknown user")
		}
		return byHeader(r)
	}
	const tooMany = `429 TooManyRequests "Too many requests, please try again later."`
	for _, tc := range []struct {
		method, path string
		want         string   // without RequestReceived and the path, one line each
		header       []string // of the request
	}{
		{"GET", "/a", "ResponseComplete get jane 200 allow:sure", nil},
		{"PUT", "/forbidden", `ResponseComplete update jane 403 Forbidden "pods \"forbidden\" is forbidden: User \"jane\" cannot update resource \"pods\" in API group \"\" in the namespace \"ns\": no" forbid:no`, nil},
		{"GET", "/unknown", "ResponseComplete get jane 500", nil},
		{"GET", "/a?container=notfound", "ResponseComplete get jane 404 NotFound \"pods \\\"a\\\" not found\" allow:sure", nil},
		{"GET", "/a?container=text", "ResponseComplete get jane 502 allow:sure", nil},
		{"GET", "/a?container=long", "ResponseComplete get jane 400 allow:sure", nil},
		{"GET", "/a?container=nothing", "ResponseComplete get jane 200  \"Connection closed early\" allow:sure", nil},
		{"GET", "/a?container=panic", "Panic get jane 500 InternalError \"APIServer panic'd: oh\" allow:sure", nil},
		{"GET", "/a?container=late", "Panic get jane 500 InternalError \"APIServer panic'd: oh\" allow:sure", nil},
		{"GET", "/a?container=abort", "ResponseComplete get jane 499  \"The client closed the connection before the response began\" allow:sure", nil},
		{"GET", "/a?container=cut", "ResponseComplete get jane 200  \"The response was cut off\" allow:sure", nil},
		{"GET", "/a?container=wait", "ResponseComplete get jane 504 Timeout \"" + timedOut + "\" allow:sure", nil},
		{"GET", "/a?container=again", "ResponseComplete get jane " + tooMany + "\nResponseComplete get jane 200 allow:sure", nil},
		{"GET", "/a", "ResponseComplete get jane as john 200 allow:sure", []string{"Impersonate-User", "john"}},
		{"GET", "?watch=1", "ResponseStarted watch jane 200 allow:sure\nResponseComplete watch jane 200 allow:sure", nil},
		{"GET", "?watch=1&container=cut", "ResponseStarted watch jane 200 allow:sure\nResponseComplete watch jane 200 allow:sure", nil},
		{"GET", "?watch=1&container=nothing", "ResponseStarted watch jane 200  \"Connection closed early\" allow:sure\nResponseComplete watch jane 200  \"Connection closed early\" allow:sure", nil},
		{"GET", "?watch=1&container=panic", "Panic watch jane 500 InternalError \"APIServer panic'd: oh\" allow:sure", nil},
		{"GET", "?watch=1&container=late", "ResponseStarted watch jane 200 allow:sure\nPanic watch jane 500 InternalError \"APIServer panic'd: oh\" allow:sure", nil},
		{"GET", "/secret", "", nil},
		// Without a user there is one event.
		{"GET", "/a?timeout=x", "ResponseStarted get  400  \"invalid timeout specified in the request URL\"", nil},
		{"GET", "/a", "ResponseStarted get  401  \"Authentication failed, no credentials provided\"", []string{"User", "none"}},
		{"GET", "/a", "ResponseStarted get  401  \"Authentication failed, attempted: bearer\"", []string{"Authorization", "Bearer x"}},
		{"GET", "/a", "ResponseStarted get  401  \"Authentication failed, attempted: basic\"", []string{"Authorization", "Basic YTpi"}},
		{"GET", "/a", "ResponseStarted get  401  \"Authentication failed, no credentials provided\"", []string{"Authorization", "Bearer "}},
		{"GET", "/a", "ResponseStarted get  504  \"Authentication failed, attempted: bearer\"", []string{"Authorization", "Bearer slow"}},
	} {
		t.Run(tc.method+" "+tc.path+strings.Join(tc.header, " "), func(t *testing.T) {
			t.Parallel()
			change, events := auditing(t, "- {level: None, resources: [{resources: [pods], resourceNames: [secret]}]}\n- {level: None, users: [john]}\n"+metadata)
			synctest.Test(t, func(t *testing.T) {
				var s *testServer
				s = newTestServer(t, func(w http.ResponseWriter, r *http.Request) {
					if r.URL.Query().Get("container") == "again" {
						do(s, "GET", r.URL.String())
					}
					doAnything(w, r)
				}, change, func(c *testConfig) {
					c.Authenticator, c.Authorizer, c.Impersonation, c.MaxInFlight = authenticate(unauthenticated), says, impersonated, 1
				})
				defer func() { _ = recover() }() // as the server does
				do(s, tc.method, pathPods+tc.path, tc.header...)
			})
			var got []string
			for line := range strings.Lines(strings.ReplaceAll(told(events()), " "+pathPods+tc.path, "")) {
				if !strings.HasPrefix(line, "RequestReceived ") {
					got = append(got, line)
				}
			}
			if got := strings.Join(got, ""); got != tc.want {
				t.Errorf("got\n%s\nwant\n%s", got, tc.want)
			}
			if all := events(); len(all) > 0 && (all[0].Stage == "RequestReceived") != strings.Contains(tc.want, "jane") {
				t.Errorf("the first event is %s", all[0].Stage)
			}
		})
	}
}

// If the gateway asks, the header of the response has the annotations of admission, whether or not the
// server has an audit log of its own, and replaces one that the handler set.
func TestReturnedAnnotations(t *testing.T) {
	t.Parallel()
	own, _ := auditing(t, "- level: Request\n")
	for name, change := range map[string]func(*testConfig){"alone": func(*testConfig) {}, "beside its own audit log": own} {
		s := newTestServer(t, func(w http.ResponseWriter, r *http.Request) {
			for key, value := range r.URL.Query() {
				audit.Annotate(r.Context(), key, value[0])
			}
			if r.Header.Get(audit.HeaderAnnotations) != "" {
				t.Error("the handler sees the header")
			}
			w.Header().Set(audit.HeaderAnnotations, `{"by":"handler"}`)
			ok(w, r)
		}, change, func(c *testConfig) { c.ReturnAnnotations = true })
		for query, want := range map[string]string{
			"":                                      "",
			"?a=b&c=d%0A":                           `{"a":"b","c":"d\n"}`,
			"?authorization.k8s.io/decision=allow":  "",
			"?b=c&a=" + strings.Repeat("x", 64<<10): `{"a":"(omitted: too long)","b":"c"}`,
			"?patch.webhook.admission.k8s.io/round_0=secret": "",
		} {
			got, err := base64.StdEncoding.DecodeString(do(s, "GET", pathPods+query, audit.HeaderAnnotations, "Metadata").Header().Get(audit.HeaderAnnotations))
			if err != nil || string(got) != want {
				t.Errorf("%s, %.20s: got %.100s, want %s (%v)", name, query, got, want, err)
			}
		}
		many := url.Values{}
		for i := range 5000 {
			many.Set(fmt.Sprintf("key-%014d", i), "v")
		}
		text, err := base64.StdEncoding.DecodeString(do(s, "GET", pathPods+"?"+many.Encode(), audit.HeaderAnnotations, "Metadata").Header().Get(audit.HeaderAnnotations))
		if n := strings.Count(string(text), "key-"); err != nil || n < 3000 || n > 3500 || !strings.Contains(string(text), `"audit.k8s.io/truncated":"true"`) {
			t.Errorf("%s: of 5000 annotations it returns %d (%v)", name, n, err)
		}
		if got := do(s, "GET", pathPods+"?patch.webhook.admission.k8s.io/round_0=patch", audit.HeaderAnnotations, "Request").Header().Get(audit.HeaderAnnotations); got == "" {
			t.Errorf("%s: no patch at level Request", name)
		}
		if got := do(s, "GET", pathPods+"?a=b").Header().Get(audit.HeaderAnnotations); got != `{"by":"handler"}` {
			t.Errorf("%s: not asked, it answers %s", name, got)
		}
	}
}

// slowClient takes a second for every part of a response.
type slowClient struct{ *httptest.ResponseRecorder }

func (c slowClient) Write(b []byte) (int, error) {
	time.Sleep(time.Second)
	return c.ResponseRecorder.Write(b)
}

// The event of a slow request has the times of its parts: authentication, those that handlers
// add, and writing the response. That of a fast one has none.
func TestAuditOfSlowParts(t *testing.T) {
	t.Parallel()
	change, events := auditing(t, completed)
	synctest.Test(t, func(t *testing.T) {
		s := newTestServer(t, func(w http.ResponseWriter, r *http.Request) {
			filter.AddWait(r.Context(), "mutating-webhook", time.Second)
			filter.AddPhase(r.Context(), "latency.portico.dev/upstream", time.Second)
			filter.AddPhase(r.Context(), "latency.portico.dev/upstream", time.Second)
			ok(w, r)
		}, change, func(c *testConfig) {
			c.Authenticator = authenticate(func(r *http.Request) (*resource.User, bool, error) {
				if r.Header.Get("Slow") != "" {
					time.Sleep(2 * time.Second)
				}
				return byHeader(r)
			})
		})
		do(s, "GET", pathPods)
		s.chain.ServeHTTP(slowClient{httptest.NewRecorder()}, request(t.Context(), "GET", pathPods, "Slow", "1"))
	})
	got := events()
	if len(got) != 2 {
		t.Fatalf("got %+v", got)
	}
	want := map[string]string{
		"apiserver.latency.k8s.io/total": "3s", "apiserver.latency.k8s.io/response-write": "1s", "apiserver.latency.k8s.io/authentication": "2s",
		"apiserver.latency.k8s.io/mutating-webhook": "1s", "latency.portico.dev/upstream": "2s",
	}
	if !maps.Equal(got[1].Annotations, want) || len(got[0].Annotations) != 0 {
		t.Errorf("a slow request: %v, a fast one: %v", got[1].Annotations, got[0].Annotations)
	}
}

// In strict mode a request that cannot be recorded is refused.
func TestAuditStrict(t *testing.T) {
	t.Parallel()
	for mode, want := range map[string]int{audit.ModeBlocking: 200, audit.ModeBlockingStrict: 500} {
		change, _ := auditing(t, metadata, func(o *audit.Options) { o.Log.Path, o.Log.Delivery.Mode = "/dev/full", mode })
		if got := do(newTestServer(t, ok, change), "GET", pathPods).Code; got != want {
			t.Errorf("%s: got %d, want %d", mode, got, want)
		}
	}
}

// Neither the log of failures and panics, nor the log at level debug, nor the audit log has
// credentials of a query.
func TestCredentialsInQueriesAreNotLogged(t *testing.T) {
	t.Parallel()
	var log bytes.Buffer
	audited, events := auditing(t, metadata)
	s := newTestServer(t, func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Query().Get("container") {
		case "panic":
			panic("oh")
		case "fail":
			w.WriteHeader(http.StatusInternalServerError)
		}
	}, audited, func(c *testConfig) {
		c.Logger = slog.New(slog.NewTextHandler(&log, &slog.HandlerOptions{Level: slog.LevelDebug}))
	})
	for _, how := range []string{"panic", "fail", "ok"} {
		do(s, "GET", pathPods+"?container="+how+"&access_token=hush&%74oken=hush&x=y")
	}
	for name, text := range map[string]string{"log": log.String(), "audit log": told(events())} {
		if strings.Contains(text, "hush") || strings.Count(text, "access_token=REDACTED&%74oken=REDACTED&x=REDACTED") < 3 {
			t.Errorf("%s:\n%s", name, text)
		}
	}
}

// The request log and the audit log have the impersonated user and the impersonator; if
// impersonation is forbidden, the sender.
func TestLogsOfImpersonation(t *testing.T) {
	t.Parallel()
	log := &ends{}
	change, events := auditing(t, completed)
	s := newTestServer(t, ok, change, func(c *testConfig) { c.AccessLog, c.Impersonation = log, impersonated })
	for _, as := range []string{"", "john", "root"} {
		do(s, "GET", pathPods, "Impersonate-User", as)
	}
	name := func(u *resource.User) string {
		if u == nil {
			return ""
		}
		return u.Name
	}
	var got []string
	for _, end := range log.all {
		got = append(got, fmt.Sprintf("{%s %s %d}", name(end.Action.User), name(end.Action.Impersonator), end.Code))
	}
	if want := []string{"{jane  200}", "{john jane 200}", "{jane  403}"}; !slices.Equal(got, want) {
		t.Errorf("request log: got %q, want %q", got, want)
	}
	all := events()
	if want := strings.ReplaceAll("ResponseComplete list P jane 200\nResponseComplete list P jane as john 200\nResponseComplete list P jane 403", "P", pathPods); told(all) != want {
		t.Fatalf("audit log: got\n%s\nwant\n%s", told(all), want)
	}
	if e := all[1]; e.AuthenticationMetadata == nil || e.AuthenticationMetadata.ImpersonationConstraint != "impersonate:user-info" ||
		!slices.Equal(e.ImpersonatedUser.Groups, []string{"dev"}) {
		t.Errorf("got %+v", e)
	}
}
