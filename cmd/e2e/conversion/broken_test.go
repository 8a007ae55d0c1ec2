package conversion

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"portico/cmd/e2e"
	"portico/internal/testing/await"
)

// Whatever a webhook does, requests that need it get a Status that names it, within memory bounds,
// others are answered as before, and the definition can be deleted.
func TestBrokenWebhooks(t *testing.T) {
	up, hook := e2e.Install(t, t.TempDir()), newWebhook(t)
	hook.StartTLS()
	s := define(t, up, "broken.example.com", hook)
	at := host{"a.example.org", 80, 1}
	for i := range 20 {
		s.must(t, http.MethodPost, s.path("v1beta1", ""), s.body("v1beta1", fmt.Sprintf("h-%d", i), at))
	}
	e2e.Define(t, e2e.DynamicClient(t, up.Config(t)), "other.example.com")
	release := make(chan struct{})
	before := s.neighbours(t, time.Second)
	t.Logf("%-14s neighbours: median %v, p99 %v", "works:", median(before), percentile(before, 99))
	for _, c := range []struct {
		name   string
		answer http.HandlerFunc
		want   string
	}{
		{"other UID", changed(`"uid":"`, `"uid":"x`), "expected response.uid="},
		{"too few", changed(`"convertedObjects":[`, `"convertedObjects":[],"others":[`), "returned 0 objects"},
		{"other kind", changed(`"kind":"Host"`, `"kind":"Guest"`), "invalid kind (expected Host, received Guest)"},
		{"other name", changed(`"name":"h-`, `"name":"x-`), "must have the same name"},
		{"100 MB", func(w http.ResponseWriter, _ *http.Request) {
			chunk := make([]byte, 1<<20)
			for range 100 {
				if _, err := w.Write(chunk); err != nil {
					return
				}
			}
		}, "the response has more than"},
		{"hangs", func(http.ResponseWriter, *http.Request) { <-release }, "64 calls have not been answered yet"},
	} {
		hook.answer.Store(&c.answer)
		stop := s.flood(t, c.name, c.want)
		meanwhile := s.neighbours(t, time.Second)
		memory := s.memory(t)
		stop()
		t.Logf("%-14s neighbours: median %v, p99 %v; the CRD server has %d MB", c.name+":", median(meanwhile), percentile(meanwhile, 99), memory>>20)
		if memory > maxMemory {
			t.Errorf("%s: the CRD server has %d MB", c.name, memory>>20)
		}
	}
	close(release)
	hook.Close() // it is away
	if code, answer := up.Do(t, http.MethodGet, s.path("v1", "h-0"), ""); code != http.StatusInternalServerError || !strings.Contains(answer, "conversion webhook for "+s.group) {
		t.Errorf("away: %d %s", code, answer)
	}
	s.must(t, http.MethodDelete, definitions+"/hosts."+s.group, "")
	e2e.Eventually(t, "the definition is gone", func() error {
		if code, body := up.Do(t, http.MethodGet, definitions+"/hosts."+s.group, ""); code != http.StatusNotFound {
			return fmt.Errorf("%d %s", code, body)
		}
		return nil
	})
}

// maxMemory bounds the anonymous memory of the CRD server while a webhook misbehaves: it may read
// 64 responses of 8 MiB at a time.
const maxMemory = 1 << 30

// changed answers as a webhook does, with a text replaced.
func changed(old, with string) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		review, err := convert(r)
		if err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		answer := httptest.NewRecorder()
		_ = json.NewEncoder(answer).Encode(review) // to memory
		_, _ = w.Write([]byte(strings.ReplaceAll(answer.Body.String(), old, with)))
	}
}

// flood keeps up to 80 requests in flight that need the webhook until stop is called. One of them
// must be answered with the text.
func (s *hosts) flood(t *testing.T, name, want string) (stop func()) {
	t.Helper()
	const clients, pause = 80, 100 * time.Millisecond
	answers := make(chan string, clients)
	ctx, end := context.WithCancel(t.Context())
	var all sync.WaitGroup
	for i := range clients {
		method, path, body := http.MethodGet, s.path("v1", fmt.Sprintf("h-%d", i%20)), ""
		if i < 70 { // each needs a call of its own
			method, path, body = http.MethodPost, s.path("v1", ""), s.body("v1", fmt.Sprintf("h-new-%d", i), host{"a.example.org", 80, 1})
		}
		all.Go(func() {
			for tick := time.NewTicker(pause); ctx.Err() == nil; {
				_, answer, err := e2e.Ask(ctx, s.client, method, s.Endpoint+path, body)
				select {
				case answers <- fmt.Sprint(answer, err):
				default:
				}
				select {
				case <-ctx.Done():
				case <-tick.C:
				}
			}
		})
	}
	stop = func() { end(); all.Wait() }
	deadline := time.After(await.Patience())
	for {
		select {
		case answer := <-answers:
			if strings.Contains(answer, want) {
				return stop
			}
		case <-deadline:
			stop()
			t.Fatalf("%s: no answer has %q", name, want)
		}
	}
}

// neighbours sends requests that need no webhook for a time, and returns how long each took.
func (s *hosts) neighbours(t *testing.T, lasts time.Duration) (took []time.Duration) {
	t.Helper()
	paths := []string{s.path("v1beta1", "h-1"), s.path("v1beta1", ""), "/apis/other.example.com/v1/widgets", "/api/v1/namespaces/default/configmaps"}
	for end := time.Now().Add(lasts); time.Now().Before(end); {
		for _, path := range paths {
			began := time.Now()
			s.must(t, http.MethodGet, path, "")
			took = append(took, time.Since(began))
		}
		began := time.Now()
		s.must(t, http.MethodPatch, s.path("v1beta1", "h-2"), fmt.Sprintf(`{"spec":{"size":%d}}`, len(took)), "Content-Type: application/merge-patch+json")
		took = append(took, time.Since(began))
	}
	return took
}

// memory returns the anonymous memory of the CRD server in bytes.
func (s *hosts) memory(t *testing.T) int {
	t.Helper()
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", s.Child(t, "crd")))
	if err != nil {
		t.Fatal(err)
	}
	_, rest, _ := strings.Cut(string(status), "RssAnon:")
	kilobytes, err := strconv.Atoi(strings.Fields(rest)[0])
	if err != nil {
		t.Fatal(err)
	}
	return kilobytes << 10
}
