package serve

import (
	"io"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Config.Ahead makes deadlines earlier, by at most a tenth.
func TestDeadlineAhead(t *testing.T) {
	for _, tt := range []struct {
		ahead, asked, want time.Duration
	}{
		{0, time.Minute, time.Minute},
		{time.Second, time.Minute, 59 * time.Second},
		{time.Second, 30 * time.Second, 29 * time.Second},
		{time.Second, 10 * time.Second, 9 * time.Second},
		{time.Second, time.Second, 900 * time.Millisecond},
		{time.Second, 20 * time.Millisecond, 18 * time.Millisecond},
	} {
		synctest.Test(t, func(t *testing.T) {
			var got time.Duration
			s := newTestServer(t, func(_ http.ResponseWriter, r *http.Request) {
				deadline, _ := r.Context().Deadline()
				got = time.Until(deadline)
			}, func(c *testConfig) { c.Ahead = tt.ahead })
			if do(s, "GET", pathPods+"?timeout="+tt.asked.String()); got != tt.want {
				t.Errorf("%v ahead of %v: %v", tt.ahead, tt.asked, got)
			}
		})
	}
}

// One server behind the other, and one deadline: what the inner one has to say
// reaches the client, whole, whatever the outer one would have said.
func TestInnerAnswerIsWhole(t *testing.T) {
	t.Parallel()
	inner := newTestServer(t, func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() },
		func(c *testConfig) { c.Ahead = time.Second })
	run(t, inner)
	behind := socketClient(t, strings.TrimPrefix(inner.cfg.Listen[0].Address, unixPrefix), false)
	bothProtocols(t, func(w http.ResponseWriter, r *http.Request) {
		req, err := http.NewRequestWithContext(r.Context(), r.Method, "http://portico"+r.URL.RequestURI(), nil)
		if err != nil {
			t.Error(err)
			return
		}
		res, err := behind.Do(req)
		if err != nil {
			t.Errorf("the inner server: %v", err)
			return
		}
		defer res.Body.Close()
		w.Header().Set("X-Inner", "1")
		w.WriteHeader(res.StatusCode)
		_ = http.NewResponseController(w).Flush()
		if _, err := io.Copy(w, res.Body); err != nil {
			t.Errorf("the inner answer: %v", err)
		}
	}, func(t *testing.T, c *http.Client) {
		response, body := get(t, c, "http://portico"+pathPods+"?timeout=4s")
		if response.Header.Get("X-Inner") == "" {
			t.Error("the outer server answered")
		}
		wantStatus(t, strings.NewReader(body), 504, metav1.StatusReasonTimeout, timedOut)
	})
}
