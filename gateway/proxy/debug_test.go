package proxy

import (
	"context"
	"net/http"
	"regexp"
	"testing"

	"portico/resource"
	"portico/resource/authz"
)

// The permission for debug headers is checked once for each request.
func TestDebugPermissionIsCheckedOnce(t *testing.T) {
	o, _, _ := observe(t, func(http.ResponseWriter, *http.Request) {})
	asked, inner := 0, o.cfg.Authorizer
	o.cfg.Authorizer = authz.Func(func(ctx context.Context, a *resource.Action) (authz.Decision, string, error) {
		asked++
		return inner.Authorize(ctx, a)
	})
	for _, path := range []string{"/apis", things} {
		for user, allowed := range map[string]bool{"admin": true, "jane": false} {
			asked = 0
			h := o.do("GET", path, "Test-User", user, "X-Portico-Debug", "1").Header()
			if got := h["X-Portico-Backend"] != nil; asked != 1 || got != allowed {
				t.Errorf("%s for %s: asked %d times, shown %v", path, user, asked, got)
			}
		}
	}
}

// Answers that the gateway makes itself have debug headers for users that may see them.
func TestDebugHeadersOfOwnAnswers(t *testing.T) {
	o, _, _ := observe(t, func(http.ResponseWriter, *http.Request) {})
	timing := regexp.MustCompile(`^gateway;dur=\d+\.\d{3}$`)
	for path, want := range map[string]struct {
		code int
		who  string
	}{
		"/apis":                                 {200, "gateway"},
		"/apis/down.example.com/v1/things":      {503, `gateway; apiservice="v1.down.example.com"`},
		"/apis/g.example.com/v1/things?watch=x": {200, ""}, // sent on
	} {
		for user, allowed := range map[string]bool{"admin": true, "jane": false} {
			o.asked.Store(0)
			h := o.do("GET", path, "Test-User", user, "X-Portico-Debug", "1")
			if n := o.asked.Load(); n != 1 {
				t.Errorf("%s: asked %d times what %s may", path, n, user)
			}
			who, dur := h.Header().Get("X-Portico-Backend"), h.Header().Get("Server-Timing")
			switch {
			case h.Code != want.code:
				t.Errorf("%s: %d", path, h.Code)
			case !allowed && (who != "" || dur != ""):
				t.Errorf("%s shows %s: %q %q", path, user, who, dur)
			case allowed && want.who != "" && (who != want.who || !timing.MatchString(dur)):
				t.Errorf("%s: %q %q, want %q", path, who, dur, want.who)
			case allowed && want.who == "" && (who == "" || timing.MatchString(dur)):
				t.Errorf("%s was sent on: %q %q", path, who, dur)
			}
		}
		if h := o.do("GET", path, "Test-User", "admin").Header(); h.Get("X-Portico-Backend") != "" || h.Get("Server-Timing") != "" {
			t.Errorf("%s shows unasked: %v", path, h)
		}
	}
}
