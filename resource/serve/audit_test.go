package serve

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
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
	"k8s.io/klog/v2"

	"portico/resource"
	"portico/resource/audit"
	"portico/resource/authz"
	"portico/resource/response"
	"portico/resource/serve/filter"
)

// auditing has a server audited by rules, and returns what its log says.
func auditing(t testing.TB, rules string, change ...func(*audit.Options)) (func(*testConfig), func() []auditv1.Event) {
	t.Helper()
	dir := t.TempDir()
	o := audit.DefaultOptions()
	o.PolicyFile, o.Log.Path = filepath.Join(dir, "policy.yaml"), filepath.Join(dir, "audit.log")
	o.Log.MaxSize = 0 // what rotates has a goroutine that does not end
	policy := "apiVersion: audit.k8s.io/v1\nkind: Policy\nrules:\n" + rules
	if err := os.WriteFile(o.PolicyFile, []byte(policy), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, f := range change {
		f(&o)
	}
	klog.SetSlogLogger(quiet())
	auditor, err := audit.Open(o, quiet())
	if err != nil {
		t.Fatal(err)
	}
	return func(c *testConfig) { c.Audit = auditor }, func() []auditv1.Event { return readEvents(t, o.Log.Path) }
}

func readEvents(t testing.TB, path string) (events []auditv1.Event) {
	t.Helper()
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	for lines := bufio.NewReader(f); ; {
		line, err := lines.ReadBytes('\n')
		if errors.Is(err, io.EOF) {
			return events
		}
		var e auditv1.Event
		if err := json.Unmarshal(line, &e); err != nil {
			t.Fatalf("%v: %s", err, line)
		}
		events = append(events, e)
	}
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

func TestAuditStages(t *testing.T) {
	serve := func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Query().Get("do") {
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
		case "nothing":
		default:
			ok(w, r)
		}
	}
	says := authz.Func(func(_ context.Context, a *resource.Action) (authz.Decision, string, error) {
		switch a.Name {
		case "forbidden":
			return authz.NoOpinion, "no", nil
		case "unknown":
			return authz.NoOpinion, "", errors.New("nobody there")
		}
		return authz.Allow, "sure", nil
	})
	const received = "RequestReceived "
	for _, tc := range []struct{ method, path, want string }{
		{"GET", "/a", received + "get /a jane\nResponseComplete get /a jane 200 allow:sure"},
		{"PUT", "/forbidden", received + "update /forbidden jane\nResponseComplete update /forbidden jane 403 Forbidden " +
			`"pods \"forbidden\" is forbidden: User \"jane\" cannot update resource \"pods\" in API group \"\" in the namespace \"ns\": no" forbid:no`},
		{"GET", "/unknown", received + "get /unknown jane\nResponseComplete get /unknown jane 500"},
		{"GET", "/a?do=notfound", received + "get /a?do=notfound jane\nResponseComplete get /a?do=notfound jane 404 NotFound \"pods \\\"a\\\" not found\" allow:sure"},
		{"GET", "/a?do=text", received + "get /a?do=text jane\nResponseComplete get /a?do=text jane 502 allow:sure"},
		{"GET", "/a?do=long", received + "get /a?do=long jane\nResponseComplete get /a?do=long jane 400 allow:sure"},
		{"GET", "/a?do=nothing", received + "get /a?do=nothing jane\nResponseComplete get /a?do=nothing jane 200  \"Connection closed early\" allow:sure"},
		{"GET", "/a?do=panic", received + "get /a?do=panic jane\nPanic get /a?do=panic jane 500 InternalError \"APIServer panic'd: oh\" allow:sure"},
		{"GET", "/a?do=abort", received + "get /a?do=abort jane\nResponseComplete get /a?do=abort jane 499  \"The client closed the connection before the response began\" allow:sure"},
		{"GET", "/a?do=cut", received + "get /a?do=cut jane\nResponseComplete get /a?do=cut jane 200  \"The response was cut off\" allow:sure"},
		{"GET", "?watch=1", received + "watch ?watch=1 jane\nResponseStarted watch ?watch=1 jane 200 allow:sure\nResponseComplete watch ?watch=1 jane 200 allow:sure"},
		{"GET", "?watch=1&do=cut", received + "watch ?watch=1&do=cut jane\nResponseStarted watch ?watch=1&do=cut jane 200 allow:sure\nResponseComplete watch ?watch=1&do=cut jane 200 allow:sure"},
		{"GET", "?watch=1&do=nothing", received + "watch ?watch=1&do=nothing jane\nResponseStarted watch ?watch=1&do=nothing jane 200  \"Connection closed early\" allow:sure\nResponseComplete watch ?watch=1&do=nothing jane 200  \"Connection closed early\" allow:sure"},
		{"GET", "?watch=1&do=panic", received + "watch ?watch=1&do=panic jane\nPanic watch ?watch=1&do=panic jane 500 InternalError \"APIServer panic'd: oh\" allow:sure"},
		{"GET", "/a?do=late", received + "get /a?do=late jane\nPanic get /a?do=late jane 500 InternalError \"APIServer panic'd: oh\" allow:sure"},
		{"GET", "?watch=1&do=late", received + "watch ?watch=1&do=late jane\nResponseStarted watch ?watch=1&do=late jane 200 allow:sure\nPanic watch ?watch=1&do=late jane 500 InternalError \"APIServer panic'd: oh\" allow:sure"},
		{"GET", "/a?timeout=x", "ResponseStarted get /a?timeout=x  400  \"invalid timeout specified in the request URL\""},
		{"GET", "/secret", ""},
	} {
		t.Run(tc.method+" "+tc.path, func(t *testing.T) {
			change, events := auditing(t, "- {level: None, resources: [{resources: [pods], resourceNames: [secret]}]}\n"+metadata)
			s := newTestServer(t, serve, change, func(c *testConfig) { c.Authorizer = says })
			func() {
				defer func() { _ = recover() }() // as the server does
				do(s, tc.method, pathPods+tc.path)
			}()
			if got := strings.ReplaceAll(told(events()), pathPods, ""); got != tc.want {
				t.Errorf("got\n%s\nwant\n%s", got, tc.want)
			}
		})
	}
}

func TestAuditOfUnauthenticated(t *testing.T) {
	for shown, header := range map[string][]string{
		"Authentication failed, no credentials provided":  nil,
		"Authentication failed, attempted: bearer":        {"Authorization", "Bearer x"},
		"Authentication failed, attempted: basic":         {"Authorization", "Basic YTpi"},
		"Authentication failed, no credentials provided ": {"Authorization", "Bearer "},
	} {
		change, events := auditing(t, metadata)
		s := newTestServer(t, ok, change, func(c *testConfig) { c.Authenticator = failing{} })
		do(s, "GET", pathPods, header...)
		if got, want := told(events()), fmt.Sprintf("ResponseStarted list %s  401  %q", pathPods, strings.TrimSpace(shown)); got != want {
			t.Errorf("got %s, want %s", got, want)
		}
	}
}

// Events have both users, also where the impersonation is forbidden; the policy applies to the sender.
func TestAuditOfImpersonation(t *testing.T) {
	change, events := auditing(t, "- {level: Metadata, users: [jane]}\n")
	s := newTestServer(t, ok, change, func(c *testConfig) {
		c.Impersonation = func(next http.Handler) http.Handler {
			return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				as := *resource.ActionFrom(r.Context())
				as.User, as.Impersonator, as.ImpersonationConstraint = &resource.User{Name: "john", Groups: []string{"dev"}}, as.User, "impersonate:user-info"
				next.ServeHTTP(w, r.WithContext(resource.WithAction(r.Context(), &as)))
			})
		}
	})
	do(s, "GET", pathPods)
	got := events()
	if want := "RequestReceived list " + pathPods + " jane\nResponseComplete list " + pathPods + " jane as john 200"; told(got) != want {
		t.Errorf("got\n%s", told(got))
	}
	if last := got[len(got)-1]; last.AuthenticationMetadata == nil || last.AuthenticationMetadata.ImpersonationConstraint != "impersonate:user-info" ||
		!slices.Equal(last.ImpersonatedUser.Groups, []string{"dev"}) {
		t.Errorf("got %+v", last)
	}
}

func TestAuditOfTooMany(t *testing.T) {
	change, events := auditing(t, "- {level: Metadata, omitStages: [RequestReceived]}\n")
	var s *testServer
	s = newTestServer(t, func(w http.ResponseWriter, r *http.Request) {
		do(s, "GET", pathPods+"/x")
		ok(w, r)
	}, change, func(c *testConfig) { c.MaxInFlight = 1 })
	do(s, "GET", pathPods)
	want := "ResponseComplete get " + pathPods + "/x" + ` jane 429 TooManyRequests "Too many requests, please try again later."` +
		"\nResponseComplete list " + pathPods + " jane 200"
	if got := told(events()); got != want {
		t.Errorf("got %s", got)
	}
}

// Events have the response that the client got, also that of the deadline.
func TestAuditOfDeadline(t *testing.T) {
	change, events := auditing(t, "- {level: Metadata, omitStages: [RequestReceived]}\n")
	synctest.Test(t, func(t *testing.T) {
		s := newTestServer(t, func(w http.ResponseWriter, r *http.Request) { <-r.Context().Done() }, change, func(c *testConfig) { c.RequestTimeout = time.Second })
		do(s, "GET", pathPods)
	})
	got := events()
	if want := "ResponseComplete list " + pathPods + ` jane 504 Timeout "Timeout: request did not complete within the allotted timeout"`; told(got) != want {
		t.Errorf("got %s", told(got))
	}
	if total := got[0].Annotations["apiserver.latency.k8s.io/total"]; total != "1s" {
		t.Errorf("it took %q", total)
	}
}

// slowClient takes a second for every part of an answer.
type slowClient struct{ *httptest.ResponseRecorder }

func (c slowClient) Write(b []byte) (int, error) {
	time.Sleep(time.Second)
	return c.ResponseRecorder.Write(b)
}

// A slow request's event says what handlers say of its parts, and how long its client
// took to take the answer.
func TestAuditOfSlowParts(t *testing.T) {
	change, events := auditing(t, "- {level: Metadata, omitStages: [RequestReceived]}\n")
	synctest.Test(t, func(t *testing.T) {
		s := newTestServer(t, func(w http.ResponseWriter, r *http.Request) {
			filter.AddWait(r.Context(), "mutating-webhook", time.Second)
			filter.AddPhase(r.Context(), "latency.portico.dev/upstream", time.Second)
			filter.AddPhase(r.Context(), "latency.portico.dev/upstream", time.Second)
			ok(w, r)
		}, change)
		do(s, "GET", pathPods)
		s.Handler().ServeHTTP(slowClient{httptest.NewRecorder()}, httptest.NewRequest("GET", pathPods, nil))
	})
	got := events()
	if len(got) != 2 {
		t.Fatalf("got %+v", got)
	}
	want := map[string]string{
		"apiserver.latency.k8s.io/total": "1s", "apiserver.latency.k8s.io/response-write": "1s",
		"apiserver.latency.k8s.io/mutating-webhook": "1s", "latency.portico.dev/upstream": "2s",
	}
	if !maps.Equal(got[1].Annotations, want) || len(got[0].Annotations) != 0 {
		t.Errorf("a slow one: %v, a fast one: %v", got[1].Annotations, got[0].Annotations)
	}
}

// A slow request's event says how long authentication took; a fast one's does not.
func TestAuditOfSlowAuthentication(t *testing.T) {
	change, events := auditing(t, "- {level: Metadata, omitStages: [RequestReceived]}\n")
	synctest.Test(t, func(t *testing.T) {
		do(newTestServer(t, ok, change, func(c *testConfig) { c.Authenticator = slowJane{} }), "GET", pathPods)
		do(newTestServer(t, ok, change), "GET", pathPods)
	})
	got := events()
	if len(got) != 2 || got[0].Annotations["apiserver.latency.k8s.io/authentication"] != "2s" || got[1].Annotations["apiserver.latency.k8s.io/authentication"] != "" {
		t.Errorf("got %+v", got)
	}
}

// slowJane authenticates every request as jane, after a delay.
type slowJane struct{ asJane }

func (j slowJane) Authenticate(r *http.Request) (*resource.User, bool, error) {
	time.Sleep(2 * time.Second)
	return j.asJane.Authenticate(r)
}

// A request that is refused after its deadline has one event, with the 504.
func TestAuditOfLateRefusal(t *testing.T) {
	change, events := auditing(t, metadata)
	synctest.Test(t, func(t *testing.T) {
		s := newTestServer(t, ok, change, func(c *testConfig) { c.Authenticator, c.RequestTimeout = slowlyFailing{}, time.Second })
		do(s, "GET", pathPods, "Authorization", "Bearer x")
	})
	if got, want := told(events()), "ResponseStarted list "+pathPods+`  504  "Authentication failed, attempted: bearer"`; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}

// slowlyFailing finds no user, after a delay.
type slowlyFailing struct{}

func (slowlyFailing) Authenticate(*http.Request) (*resource.User, bool, error) {
	time.Sleep(2 * time.Second)
	return nil, false, errors.New("nobody")
}

// The last events of a watch that ends with the server, and of one that the client ends, are written
// before Run returns, also in batch mode.
func TestAuditOfWatches(t *testing.T) {
	change, events := auditing(t, "- {level: Metadata, omitStages: [RequestReceived]}\n", func(o *audit.Options) { o.Log.Delivery.Mode = audit.ModeBatch })
	s := newTestServer(t, func(w http.ResponseWriter, r *http.Request) {
		w.WriteHeader(200)
		_ = http.NewResponseController(w).Flush()
		<-r.Context().Done()
	}, change)
	if err := s.Listen(); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- s.Run(ctx) }()
	client := socketClient(t, strings.TrimPrefix(s.cfg.Listen[0].Address, unixPrefix), false)
	for _, name := range []string{"a", "b"} {
		watching, leave := context.WithCancel(t.Context())
		defer leave()
		r, err := http.NewRequestWithContext(watching, "GET", "http://x"+pathPods+"?watch=1&name="+name, nil)
		if err != nil {
			t.Fatal(err)
		}
		w, err := client.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		if name == "a" {
			leave()
		}
		defer w.Body.Close()
	}
	cancel()
	if err := <-ended; err != nil {
		t.Fatal(err)
	}
	var lines []string
	for _, line := range strings.Split(told(events()), "\n") {
		stage, _, _ := strings.Cut(line, " ")
		_, name, _ := strings.Cut(line, "name=")
		lines = append(lines, name+" "+stage)
	}
	slices.Sort(lines)
	if got, want := strings.Join(lines, ", "), "a jane 200 ResponseComplete, a jane 200 ResponseStarted, b jane 200 ResponseComplete, b jane 200 ResponseStarted"; got != want {
		t.Errorf("got %s", got)
	}
}

// In strict mode a request that cannot be recorded is refused.
func TestAuditStrict(t *testing.T) {
	full := func(mode string) func(*audit.Options) {
		return func(o *audit.Options) { o.Log.Path, o.Log.MaxSize, o.Log.Delivery.Mode = "/dev/full", 0, mode }
	}
	for mode, want := range map[string]int{audit.ModeBlocking: 200, audit.ModeBlockingStrict: 500} {
		change, _ := auditing(t, metadata, full(mode))
		if got := do(newTestServer(t, ok, change), "GET", pathPods).Code; got != want {
			t.Errorf("%s: got %d", mode, got)
		}
	}
}
