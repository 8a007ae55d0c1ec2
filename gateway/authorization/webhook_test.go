package authorization

import (
	"context"
	"net/http"
	"strings"
	"testing"
	"time"

	authorizationv1 "k8s.io/api/authorization/v1"

	"portico/internal/testing/await"
	"portico/resource"
	"portico/resource/authz"
)

// A reason is cut, whatever its answer repeats, so that the decisions that are kept are bounded.
func TestLongReasons(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("\u20ac", 60<<10) // 3 bytes each, and no multiple of them is maxReason
	for _, version := range []string{"v1", "v1beta1"} {
		for want, s := range map[authz.Decision]authorizationv1.SubjectAccessReviewStatus{
			authz.Allow:     {Allowed: true, Reason: long, EvaluationError: strings.Repeat("e", 8<<10)},
			authz.Deny:      {Denied: true, Reason: long},
			authz.NoOpinion: {Reason: long},
		} {
			h := newHook(t, func(w http.ResponseWriter, r *http.Request) {
				status(s)(replacing{w, "authorization.k8s.io/v1", "authorization.k8s.io/" + version}, r)
			})
			text := strings.Replace(file(hooked("w", h.kubeconfig, "Deny", "3s", "")), "subjectAccessReviewVersion: v1", "subjectAccessReviewVersion: "+version, 1)
			a := of(t, text, fixed{})
			got, reason, err := a.Authorize(t.Context(), action("u"))
			reason = strings.TrimPrefix(reason, "w: ")
			if got != want || err != nil || len(reason) > maxReason || !strings.HasPrefix(long, reason) || len(reason) < maxReason-3 {
				t.Errorf("%s: got %v with a reason of %d bytes, %v", version, got, len(reason), err)
			}
			if again, kept, err := a.Authorize(t.Context(), action("u")); again != want || err != nil || strings.TrimPrefix(kept, "w: ") != reason || h.calls.Load() != 1 {
				t.Errorf("%s: then %v with a reason of %d bytes, %v, after %d calls", version, again, len(kept), err, h.calls.Load())
			}
		}
	}
}

// replacing replaces a text of a response.
type replacing struct {
	http.ResponseWriter
	old, now string
}

func (r replacing) Write(p []byte) (int, error) {
	_, err := r.ResponseWriter.Write([]byte(strings.Replace(string(p), r.old, r.now, 1)))
	return len(p), err
}

// Decisions about long requests and about users with long identities are not kept: 8,192 of any
// length would be.
func TestLongRequestsAreNotKept(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("x", maxKept)
	for name, change := range map[string]func(*resource.Action){
		"group":          func(act *resource.Action) { act.User.Groups = []string{"g", long} },
		"many groups":    func(act *resource.Action) { act.User.Groups = strings.Split(strings.Repeat("group,", 2000), ",") },
		"user":           func(act *resource.Action) { act.User.Name = long },
		"uid":            func(act *resource.Action) { act.User.UID = long },
		"extra key":      func(act *resource.Action) { act.User.Extra = map[string][]string{long: nil} },
		"extra value":    func(act *resource.Action) { act.User.Extra = map[string][]string{"k": {"v", long}} },
		"name":           func(act *resource.Action) { act.Name = long },
		"field selector": func(act *resource.Action) { act.FieldSelector = "a=" + long },
		"label selector": func(act *resource.Action) { act.LabelSelector = "a in (" + strings.Repeat("x,", maxKept) + "y)" },
	} {
		for _, isResource := range []bool{true, false} {
			if !isResource && (name == "name" || strings.HasSuffix(name, "selector")) {
				continue
			}
			h := newHook(t, status(authorizationv1.SubjectAccessReviewStatus{Allowed: true}))
			a := of(t, file(hooked("w", h.kubeconfig, "Deny", "3s", "")), fixed{})
			act := action("u")
			if act.IsResource = isResource; !isResource {
				act.Path = "/version"
			}
			ask := func(calls int64) {
				t.Helper()
				for range 2 {
					if got, _, err := a.Authorize(t.Context(), act); got != authz.Allow || err != nil {
						t.Fatal(got, err)
					}
				}
				if h.calls.Load() != calls {
					t.Errorf("%s, resource %v: %d calls, want %d", name, isResource, h.calls.Load(), calls)
				}
			}
			ask(1)
			change(act)
			ask(3)
			h.mu.Lock()
			if at := h.last.NonResourceAttributes; !isResource && (at == nil || at.Path != "/version") {
				t.Errorf("%s: got %+v", name, at)
			}
			h.mu.Unlock()
		}
	}
}

// A call ends with the context of its request, in and between attempts. An answer that asks for it is
// tried five times, a call that timed out only once.
func TestCallsEnd(t *testing.T) {
	t.Parallel()
	slow := func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() }
	busy := func(w http.ResponseWriter, _ *http.Request) { http.Error(w, "busy", http.StatusTooManyRequests) }
	for name, c := range map[string]struct {
		answer  http.HandlerFunc
		timeout string
		request time.Duration
		calls   int64
	}{
		"slow: ended by the request": {slow, "30s", 200 * time.Millisecond, 1},
		"busy: ended by the request": {busy, "30s", 200 * time.Millisecond, 1},
		"slow: ended by its timeout": {slow, "200ms", await.Patience(), 1},
		"busy five times":            {busy, "30s", await.Patience(), 5},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			h := newHook(t, c.answer)
			a := of(t, file(hooked("w", h.kubeconfig, "Deny", c.timeout, "")), fixed{})
			ctx, cancel := context.WithTimeout(t.Context(), c.request)
			defer cancel()
			begun := time.Now()
			got, _, err := a.Authorize(ctx, action("u"))
			if got != authz.Deny || err == nil || h.calls.Load() != c.calls {
				t.Errorf("got %v, %v and %d calls", got, err, h.calls.Load())
			}
			await.Bar(t, name, time.Since(begun), 10*time.Second) // less than the webhook would take
		})
	}
}

// A webhook that redirects has failed, also if it allows at the other URL.
func TestWebhookThatRedirects(t *testing.T) {
	t.Parallel()
	allows := status(authorizationv1.SubjectAccessReviewStatus{Allowed: true})
	h := newHook(t, func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/elsewhere" {
			allows(w, r)
			return
		}
		http.Redirect(w, r, "/elsewhere", http.StatusTemporaryRedirect)
	})
	got, _, err := of(t, file(hooked("w", h.kubeconfig, "Deny", "30s", "")), fixed{}).Authorize(t.Context(), action("u"))
	if got != authz.Deny || err == nil || !strings.Contains(err.Error(), "redirects are not followed") || h.calls.Load() != 1 {
		t.Errorf("got %v, %v after %d calls", got, err, h.calls.Load())
	}
}
