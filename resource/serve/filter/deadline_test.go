package filter

import (
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"
)

// sleepyContext has not ended although its deadline has passed.
type sleepyContext struct{ context.Context }

func (sleepyContext) Deadline() (time.Time, bool) { return time.Now().Add(-time.Millisecond), true }

// A response after the deadline is a 504, also if the context has not ended yet.
func TestContextIsLate(t *testing.T) {
	c := newChain(t, ok)
	for name, react := range map[string]func(){"returns": func() {}, "aborts": func() { panic(http.ErrAbortHandler) }} {
		t.Run(name, func(t *testing.T) {
			h := c.open(c.deadline(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
				if _, err := io.WriteString(w, "late"); err == nil {
					t.Error("the handler may still write")
				}
				react()
			})))
			out := httptest.NewRecorder()
			h.ServeHTTP(out, httptest.NewRequest("GET", "/x", nil).WithContext(sleepyContext{t.Context()}))
			if out.Code != http.StatusGatewayTimeout || !strings.Contains(out.Body.String(), `"reason":"Timeout"`) {
				t.Errorf("got %d %s", out.Code, out.Body)
			}
		})
	}
}
