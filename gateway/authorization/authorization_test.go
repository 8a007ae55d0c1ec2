package authorization

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	authorizationv1 "k8s.io/api/authorization/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"portico/internal/testing/await"
	"portico/resource"
	"portico/resource/authz"
)

// fixed is an engine that has one decision.
type fixed struct {
	decision authz.Decision
	reason   string
	err      error
}

func (f fixed) Authorize(context.Context, *resource.Action) (authz.Decision, string, error) {
	return f.decision, f.reason, f.err
}

func (f fixed) RulesFor(context.Context, *resource.User, string) ([]rbacv1.PolicyRule, bool, error) {
	return []rbacv1.PolicyRule{{Verbs: []string{"get"}}}, false, f.err
}

// hook is a webhook that answers as its handler says, and its kubeconfig.
type hook struct {
	kubeconfig string
	calls      atomic.Int64
	mu         sync.Mutex
	last       authorizationv1.SubjectAccessReviewSpec
}

// status answers with a status for each review.
func status(s authorizationv1.SubjectAccessReviewStatus) func(http.ResponseWriter, *http.Request) {
	return func(w http.ResponseWriter, _ *http.Request) {
		_ = json.NewEncoder(w).Encode(map[string]any{"apiVersion": "authorization.k8s.io/v1", "kind": "SubjectAccessReview", "status": s})
	}
}

func newHook(t *testing.T, answer http.HandlerFunc) *hook {
	t.Helper()
	h := &hook{kubeconfig: filepath.Join(t.TempDir(), "webhook.kubeconfig")}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		h.calls.Add(1)
		var review authorizationv1.SubjectAccessReview
		if err := json.NewDecoder(r.Body).Decode(&review); err != nil {
			t.Error(err)
		}
		h.mu.Lock()
		h.last = review.Spec
		h.mu.Unlock()
		answer(w, r)
	}))
	t.Cleanup(server.Close)
	write(t, h.kubeconfig, kubeconfig(server.URL))
	return h
}

func kubeconfig(url string) string {
	return fmt.Sprintf(`{"apiVersion":"v1","kind":"Config","clusters":[{"name":"w","cluster":{"server":%q}}],
"contexts":[{"name":"w","context":{"cluster":"w","user":"w"}}],"users":[{"name":"w"}],"current-context":"w"}`, url)
}

func write(t *testing.T, path, text string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

// file is an AuthorizationConfiguration of authorizers.
func file(authorizers ...string) string {
	return "apiVersion: apiserver.config.k8s.io/v1\nkind: AuthorizationConfiguration\nauthorizers:\n" + strings.Join(authorizers, "")
}

// hooked is a webhook in a file.
func hooked(name, kubeconfig, policy, timeout, more string) string {
	return fmt.Sprintf(`- type: Webhook
  name: %s
  webhook:
    timeout: %s
    authorizedTTL: 1m
    unauthorizedTTL: 1m
    subjectAccessReviewVersion: v1
    matchConditionSubjectAccessReviewVersion: v1
    failurePolicy: %s
    connectionInfo: {type: KubeConfigFile, kubeConfigFile: %s}
%s`, name, timeout, policy, kubeconfig, more)
}

const rbac = "- {type: RBAC, name: rbac}\n"

// of returns the Authorizer of a file with an RBAC engine.
func of(t *testing.T, text string, rbac authz.Engine) *Authorizer {
	t.Helper()
	path := filepath.Join(t.TempDir(), "authorization.yaml")
	write(t, path, text)
	a, err := New(Config{ConfigFile: path}, Engines{RBAC: rbac, Node: func() authz.Engine { return fixed{reason: "no relationship"} }}, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	return a
}

func action(user string) *resource.Action {
	return &resource.Action{
		User: &resource.User{Name: user, Groups: []string{"g"}}, Verb: "list", IsResource: true, Version: "v1", Resource: "pods", Namespace: "ns",
		Path: "/api/v1/namespaces/ns/pods",
	}
}

// The first authorizer that allows or denies decides, reasons name their authorizers, and
// system:masters is allowed before all.
func TestChain(t *testing.T) {
	t.Parallel()
	denies := newHook(t, status(authorizationv1.SubjectAccessReviewStatus{Denied: true, Reason: "never"}))
	allows := newHook(t, status(authorizationv1.SubjectAccessReviewStatus{Allowed: true, Reason: "sure"}))
	silent := newHook(t, status(authorizationv1.SubjectAccessReviewStatus{Reason: "unknown to me"}))
	both := newHook(t, status(authorizationv1.SubjectAccessReviewStatus{Allowed: true, Denied: true}))
	at := func(h *hook) string { return hooked("w", h.kubeconfig, "NoOpinion", "3s", "") }
	for name, c := range map[string]struct {
		text   string
		rbac   fixed
		want   authz.Decision
		reason string
		failed bool
	}{
		"a webhook denies before RBAC":       {at(denies) + rbac, fixed{decision: authz.Allow}, authz.Deny, "never", false},
		"RBAC allows before the webhook":     {rbac + at(denies), fixed{decision: authz.Allow, reason: "role"}, authz.Allow, "role", false},
		"a webhook allows":                   {rbac + at(allows), fixed{}, authz.Allow, "sure", false},
		"no opinion of either":               {at(silent) + rbac, fixed{reason: "no role"}, authz.NoOpinion, "w: unknown to me\nrbac: no role", false},
		"allowed and denied is denied":       {at(both) + rbac, fixed{decision: authz.Allow}, authz.Deny, "", true},
		"AlwaysAllow":                        {"- {type: AlwaysAllow, name: alwaysallow}\n", fixed{}, authz.Allow, "", false},
		"AlwaysDeny has no opinion":          {"- {type: AlwaysDeny, name: alwaysdeny}\n" + rbac, fixed{decision: authz.Allow}, authz.Allow, "", false},
		"AlwaysDeny alone":                   {"- {type: AlwaysDeny, name: alwaysdeny}\n", fixed{}, authz.NoOpinion, "alwaysdeny: Everything is forbidden.", false},
		"Node before RBAC":                   {"- {type: Node, name: node}\n" + rbac, fixed{}, authz.NoOpinion, "node: no relationship", false},
		"an error is passed on without help": {rbac, fixed{err: errors.New("broken")}, authz.NoOpinion, "", true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			a := of(t, file(c.text), c.rbac)
			got, reason, err := a.Authorize(t.Context(), action("u"))
			if got != c.want || reason != c.reason || (err != nil) != c.failed {
				t.Errorf("got %v %q %v", got, reason, err)
			}
			master := action("admin")
			master.User.Groups = []string{resource.GroupMasters}
			if got, _, err := a.Authorize(t.Context(), master); got != authz.Allow || err != nil {
				t.Errorf("system:masters: %v %v", got, err)
			}
		})
	}
}

// A webhook that does not answer, answers nonsense or too much counts as its failure policy says,
// within a bounded time.
func TestFailingWebhooks(t *testing.T) {
	t.Parallel()
	for name, answer := range map[string]http.HandlerFunc{
		"slow":    func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() },
		"garbage": func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte("{]")) },
		"403":     func(w http.ResponseWriter, _ *http.Request) { http.Error(w, "no", http.StatusForbidden) },
		"503":     func(w http.ResponseWriter, _ *http.Request) { http.Error(w, "no", http.StatusServiceUnavailable) },
		"a kind of another group": func(w http.ResponseWriter, _ *http.Request) {
			_, _ = w.Write([]byte(`{"apiVersion":"v1","kind":"Pod","status":{"allowed":true}}`))
		},
		"100 MB": func(w http.ResponseWriter, _ *http.Request) {
			_, _ = w.Write([]byte(`{"apiVersion":"authorization.k8s.io/v1","kind":"SubjectAccessReview","status":{"allowed":true,"reason":"`))
			for line := []byte(strings.Repeat("x", 1<<20)); ; {
				if _, err := w.Write(line); err != nil {
					return
				}
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			h := newHook(t, answer)
			for policy, want := range map[string]authz.Decision{"Deny": authz.Deny, "NoOpinion": authz.Allow} {
				a := of(t, file(hooked("w", h.kubeconfig, policy, "300ms", ""), rbac), fixed{decision: authz.Allow})
				begun := time.Now()
				got, _, err := a.Authorize(t.Context(), action("u"))
				if got != want || (err != nil) != (want == authz.Deny) || apierrors.IsServiceUnavailable(err) {
					t.Errorf("%s: got %v, %v", policy, got, err)
				}
				await.Bar(t, policy, time.Since(begun), 20*time.Second)
			}
		})
	}
}

// A webhook gets the selectors of a request, also those that cannot be parsed in part, and its
// decisions are kept by them, unless they are long.
func TestSelectors(t *testing.T) {
	t.Parallel()
	h := newHook(t, status(authorizationv1.SubjectAccessReviewStatus{Allowed: true}))
	a := of(t, file(hooked("w", h.kubeconfig, "Deny", "3s", "")), fixed{})
	ask := func(fields, labels string) (spec *authorizationv1.ResourceAttributes, called bool) {
		act := action("u")
		act.FieldSelector, act.LabelSelector = fields, labels
		before := h.calls.Load()
		if got, _, err := a.Authorize(t.Context(), act); got != authz.Allow {
			t.Fatal(got, err)
		}
		h.mu.Lock()
		defer h.mu.Unlock()
		return h.last.ResourceAttributes, h.calls.Load() > before
	}
	spec, _ := ask("spec.nodeName=n,status.phase!=Failed", "a in (b,c),!d")
	f, l := spec.FieldSelector, spec.LabelSelector
	if f == nil || len(f.Requirements) != 2 || f.Requirements[0].Key != "spec.nodeName" || f.Requirements[0].Operator != "In" || f.Requirements[1].Operator != "NotIn" {
		t.Errorf("field selector: %+v", f)
	}
	if l == nil || len(l.Requirements) != 2 || len(l.Requirements[0].Values) != 2 || l.Requirements[1].Operator != "DoesNotExist" {
		t.Errorf("label selector: %+v", l)
	}
	if _, called := ask("spec.nodeName=n,status.phase!=Failed", "a in (b,c),!d"); called {
		t.Error("a decision was not kept")
	}
	if spec, called := ask("spec.nodeName=m", ""); !called || spec.FieldSelector.Requirements[0].Values[0] != "m" {
		t.Error("a decision was used for another selector")
	}
	if spec, _ := ask("a", "a in"); spec.FieldSelector != nil || spec.LabelSelector != nil {
		t.Errorf("selectors that cannot be parsed: %+v", spec)
	}
	long := "a!=" + strings.Repeat("x", 12000)
	ask(long, "")
	if _, called := ask(long, ""); !called {
		t.Error("a decision about a long selector was kept")
	}
}

// Match conditions decide whether a webhook is asked, and an error of one counts as a failure of the
// webhook.
func TestMatchConditions(t *testing.T) {
	t.Parallel()
	h := newHook(t, status(authorizationv1.SubjectAccessReviewStatus{Denied: true}))
	for name, c := range map[string]struct {
		condition, policy string
		want              authz.Decision
	}{
		"true":                  {"request.user == 'u'", "Deny", authz.Deny},
		"false":                 {"request.user == 'v'", "Deny", authz.Allow},
		"of a selector":         {"!has(request.resourceAttributes.fieldSelector)", "Deny", authz.Deny},
		"an error, Deny":        {"request.nonResourceAttributes.path == '/'", "Deny", authz.Deny},
		"an error, NoOpinion":   {"request.nonResourceAttributes.path == '/'", "NoOpinion", authz.Allow},
		"no resource attribute": {"has(request.nonResourceAttributes)", "Deny", authz.Allow},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			a := of(t, file(hooked("w", h.kubeconfig, c.policy, "3s", "    matchConditions: [{expression: \""+c.condition+"\"}]\n"), rbac), fixed{decision: authz.Allow})
			if got, _, err := a.Authorize(t.Context(), action("u")); got != c.want {
				t.Errorf("got %v, %v", got, err)
			}
		})
	}
}

// Rules are those of all authorizers, and incomplete with a webhook.
func TestRulesFor(t *testing.T) {
	t.Parallel()
	h := newHook(t, status(authorizationv1.SubjectAccessReviewStatus{}))
	a := of(t, file(hooked("w", h.kubeconfig, "Deny", "3s", ""), rbac), fixed{})
	rules, incomplete, err := a.RulesFor(t.Context(), action("u").User, "ns")
	if len(rules) != 1 || !incomplete || err == nil {
		t.Errorf("got %v %v %v", rules, incomplete, err)
	}
	a = of(t, file("- {type: AlwaysAllow, name: alwaysallow}\n", rbac), fixed{})
	rules, incomplete, err = a.RulesFor(t.Context(), action("u").User, "ns")
	if len(rules) != 3 || incomplete || err != nil {
		t.Errorf("got %v %v %v", rules, incomplete, err)
	}
}

// Files and flags that are wrong are refused with what is wrong.
func TestWrongConfigurations(t *testing.T) {
	t.Parallel()
	h := newHook(t, status(authorizationv1.SubjectAccessReviewStatus{}))
	good := hooked("w", h.kubeconfig, "Deny", "3s", "")
	for want, text := range map[string]string{
		"authorizers: Required":                       file(),
		"ABAC is not supported":                       file("- {type: ABAC, name: abac}\n"),
		"use KubeConfigFile":                          file(strings.Replace(good, "{type: KubeConfigFile, kubeConfigFile: "+h.kubeconfig+"}", "{type: InClusterConfig}", 1)),
		`Unsupported value: "Unknown"`:                file("- {type: Unknown, name: unknown}\n"),
		"Duplicate value":                             file(rbac, rbac),
		"expected name rbac for authorizer RBAC":      file("- {type: RBAC, name: other}\n"),
		"webhook: Required":                           file("- {type: Webhook, name: w}\n"),
		"must be > 0s and <= 30s":                     file(hooked("w", h.kubeconfig, "Deny", "31s", "")),
		"failurePolicy":                               file(hooked("w", h.kubeconfig, "Maybe", "3s", "")),
		"must be an absolute path":                    file(hooked("w", "relative", "Deny", "3s", "")),
		"no such file":                                file(hooked("w", "/none/here", "Deny", "3s", "")),
		"matchConditions[0].expression":               file(hooked("w", h.kubeconfig, "Deny", "3s", "    matchConditions: [{expression: \"request.\"}]\n")),
		`unknown field "authorizer"`:                  "apiVersion: apiserver.config.k8s.io/v1\nkind: AuthorizationConfiguration\nauthorizer: []\n",
		`no kind "AuthorizationConfiguration"`:        "apiVersion: apiserver.config.k8s.io/v2\nkind: AuthorizationConfiguration\n",
		"subjectAccessReviewVersion: Unsupported":     file(strings.Replace(good, "subjectAccessReviewVersion: v1\n    match", "subjectAccessReviewVersion: v2\n    match", 1)),
		"webhook: Invalid value":                      file("- {type: RBAC, name: rbac, webhook: {}}\n"),
		"authorizers[1].name: Duplicate value: \"w\"": file(good, good),
	} {
		path := filepath.Join(t.TempDir(), "authorization.yaml")
		write(t, path, text)
		if err := (&Config{ConfigFile: path}).Check(); err == nil || !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), "--authorization-config") {
			t.Errorf("got %v, want %q", err, want)
		}
	}
	for want, modes := range map[string][]string{
		"ABAC is not supported":               {"ABAC"},
		`"Rbac" is not a valid mode`:          {"Rbac"},
		"RBAC is given twice":                 {"RBAC", "RBAC"},
		"--authorization-webhook-config-file": {"Webhook"},
	} {
		if err := (&Config{Modes: modes}).Check(); err == nil || !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), "--authorization-mode") {
			t.Errorf("got %v, want %q", err, want)
		}
	}
	if err := (&Config{Modes: []string{"Webhook"}, WebhookConfigFile: h.kubeconfig, WebhookVersion: "v3"}).Check(); err == nil {
		t.Error("v3 is not refused")
	}
	for _, version := range []string{"v1", "v1beta1"} {
		c := Config{Modes: []string{"Node", "RBAC", "Webhook", "AlwaysAllow", "AlwaysDeny"}, WebhookConfigFile: h.kubeconfig, WebhookVersion: version}
		if err := c.Check(); err != nil {
			t.Error(err)
		}
	}
	for _, version := range []string{"v1", "v1beta1", "v1alpha1"} {
		path := filepath.Join(t.TempDir(), "authorization.yaml")
		write(t, path, strings.Replace(file(rbac, good), "k8s.io/v1\n", "k8s.io/"+version+"\n", 1))
		if err := (&Config{ConfigFile: path}).Check(); err != nil {
			t.Error(err)
		}
	}
}

// The file is read again when it changes; a wrong one, or one that leaves out or adds an engine,
// changes nothing. Requests are decided all the while.
func TestReload(t *testing.T) {
	t.Parallel()
	h := newHook(t, status(authorizationv1.SubjectAccessReviewStatus{Denied: true}))
	path := filepath.Join(t.TempDir(), "authorization.yaml")
	write(t, path, file(rbac))
	a, err := New(Config{ConfigFile: path}, Engines{RBAC: fixed{decision: authz.Allow}}, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- a.Run(ctx, "test") }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
	})
	decides := func(want authz.Decision) {
		t.Helper()
		for deadline := time.Now().Add(await.Patience()); ; time.Sleep(time.Millisecond) {
			got, _, err := a.Authorize(t.Context(), action("u"))
			switch {
			case got == want:
				return
			case err != nil || got == authz.NoOpinion:
				t.Fatalf("got %v, %v", got, err)
			case time.Now().After(deadline):
				t.Fatalf("still %v", got)
			}
		}
	}
	decides(authz.Allow)
	hooked := file(hooked("w", h.kubeconfig, "Deny", "3s", ""), rbac)
	for range 5 {
		write(t, path, hooked)
		decides(authz.Deny)
		write(t, path, file(rbac))
		decides(authz.Allow)
	}
	for _, wrong := range []string{
		"nonsense", file(), file("- {type: AlwaysDeny, name: alwaysdeny}\n"), file("- {type: Node, name: node}\n", rbac),
	} {
		if err := a.reloadFor(t, path, wrong); err == nil {
			t.Errorf("accepted: %s", wrong)
		}
		decides(authz.Allow)
	}
	if !slices.Equal(kindsOf(a), []string{"RBAC"}) {
		t.Errorf("got %v", kindsOf(a))
	}
}

// reloadFor parses a file as Run does, without putting it into force.
func (a *Authorizer) reloadFor(t *testing.T, _, text string) error {
	t.Helper()
	b := &Authorizer{cfg: a.cfg, engines: a.engines, log: a.log, compiler: a.compiler, required: a.required, loaded: a.loaded}
	return b.reload([]byte(text))
}

func kindsOf(a *Authorizer) (kinds []string) {
	for _, l := range *a.current.Load() {
		kinds = append(kinds, l.kind)
	}
	return kinds
}
