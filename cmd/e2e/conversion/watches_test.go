package conversion

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"portico/cmd/e2e"
)

// 300 watches of a converted version cost one call of the webhook for each change, and each of
// them has every change. How long reads of the version take is logged, beside those of the stored
// one.
func TestWatchesShareConversions(t *testing.T) {
	t.Parallel()
	const watches, changes = 300, 20
	up, hook := e2e.Install(t, t.TempDir()), newWebhook(t)
	hook.StartTLS()
	s := define(t, up, "watches.example.com", hook)
	for i := range 100 {
		s.must(t, http.MethodPost, s.path("v1beta1", ""), s.body("v1beta1", fmt.Sprintf("h-%d", i), host{"a.example.org", 80, 1}))
	}
	s.compareReads(t)

	ctx, end := context.WithCancel(t.Context())
	defer end()
	events := make([]<-chan host, watches)
	for i := range events {
		events[i] = s.watch(t, ctx, "v1")
	}
	stored := s.watch(t, ctx, "v1beta1")
	hook.calls.Store(0)
	hook.objects.Store(0)
	var took, tookAll, tookStored []time.Duration
	for i := range changes {
		want := host{"a.example.org", int64(81 + i), 1}
		began := time.Now()
		s.must(t, http.MethodPatch, s.path("v1beta1", "h-7"), `{"spec":`+want.spec("v1beta1")+`}`, "Content-Type: application/merge-patch+json")
		for j, from := range append([]<-chan host{stored}, events...) {
			if got := <-from; got != want {
				t.Fatalf("watch %d: got %v, want %v", j-1, got, want)
			}
			switch j {
			case 0:
				tookStored = append(tookStored, time.Since(began))
			case 1:
				took = append(took, time.Since(began))
			}
		}
		tookAll = append(tookAll, time.Since(began))
	}
	if calls, objects := hook.calls.Load(), hook.objects.Load(); calls != changes || objects != changes {
		t.Errorf("%d changes for %d watches took %d calls for %d objects", changes, watches, calls, objects)
	}
	metrics := up.Metrics(t, "crd")
	for _, want := range []string{
		`apiserver_conversion_webhook_request_total{failure_type="",result="success"} `,
		`apiserver_conversion_webhook_duration_seconds_count{failure_type="",result="success"} `,
		`apiserver_crd_conversion_webhook_duration_seconds_count{crd_name="hosts.watches.example.com",from_version="v1beta1",succeeded="true",to_version="v1"} `,
		`apiextensions_apiserver_validation_ratcheting_seconds_count `,
	} {
		if !strings.Contains(metrics, want) {
			t.Errorf("no metric %s", want)
		}
	}
	t.Logf("a change is in a watch of the stored version after %v, of another after %v, in all %d of that after %v",
		median(tookStored), median(took), watches, median(tookAll))
}

// compareReads logs how long reads take in the stored version and in another.
func (s *hosts) compareReads(t *testing.T) {
	t.Helper()
	const rounds = 200
	for _, name := range []string{"h-7", ""} {
		took := map[string][]time.Duration{}
		for range rounds {
			for _, v := range []string{"v1beta1", "v1"} {
				began := time.Now()
				s.must(t, http.MethodGet, s.path(v, name), "")
				took[v] = append(took[v], time.Since(began))
			}
		}
		converted, stored := median(took["v1"]), median(took["v1beta1"])
		t.Logf("GET %q: %v in the stored version, %v in another: %.2f", name, stored, converted, float64(converted)/float64(stored))
	}
}

func median(all []time.Duration) time.Duration { return percentile(all, 50) }

func percentile(all []time.Duration, n int) time.Duration {
	all = slices.Sorted(slices.Values(all))
	return all[min(len(all)*n/100, len(all)-1)]
}
