package authorization

import (
	"context"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"

	authorizationv1 "k8s.io/api/authorization/v1"

	"portico/resource/authz"
)

// While the file changes again and again, every request is decided by one whole configuration.
func TestReloadUnderLoad(t *testing.T) {
	t.Parallel()
	denies := newHook(t, status(authorizationv1.SubjectAccessReviewStatus{Denied: true, Reason: "hook"}))
	a := of(t, file(rbac), fixed{decision: authz.Allow, reason: "role"})
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var asking sync.WaitGroup
	var allowed, denied atomic.Int64
	for range 8 {
		asking.Go(func() {
			for ctx.Err() == nil {
				switch got, reason, err := a.Authorize(t.Context(), action("u")); {
				case got == authz.Allow && reason == "role" && err == nil:
					allowed.Add(1)
				case got == authz.Deny && reason == "hook" && err == nil:
					denied.Add(1)
				default:
					t.Errorf("got %v %q %v", got, reason, err)
					cancel()
				}
				if rules, incomplete, err := a.RulesFor(t.Context(), action("u").User, "ns"); len(rules) != 1 || incomplete != (err != nil) {
					t.Errorf("got %v %v %v", rules, incomplete, err)
					cancel()
				}
			}
		})
	}
	hooked := file(hooked("w", denies.kubeconfig, "Deny", "30s", ""), rbac)
	for round := 0; ctx.Err() == nil && (round < 50 || allowed.Load() == 0 || denied.Load() == 0); round++ {
		if err := a.reload([]byte([]string{hooked, file(rbac)}[round%2])); err != nil {
			t.Error(err)
		}
		if err := a.reload([]byte("nonsense")); err == nil {
			t.Error("nonsense is accepted")
		}
		for was := allowed.Load() + denied.Load(); ctx.Err() == nil && allowed.Load()+denied.Load() == was; {
			runtime.Gosched()
		}
	}
	cancel()
	asking.Wait()
}
