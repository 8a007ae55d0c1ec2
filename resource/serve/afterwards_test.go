package serve

import (
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
)

// What is left to do is done once the handler has returned, before anything is told of
// the request; and let go of where a filter panics on the way.
func TestAfterwards(t *testing.T) {
	const watch = "/api/v1/pods?watch=true"
	var steps []string
	ask := func(path string, handler http.HandlerFunc) *httptest.ResponseRecorder {
		t.Helper()
		steps = nil
		w := httptest.NewRecorder()
		newTestServer(t, handler).Handler().ServeHTTP(w, httptest.NewRequest("GET", path, nil))
		return w
	}
	rest := func(w http.ResponseWriter) {
		if w == nil {
			steps = append(steps, "dropped")
			return
		}
		steps = append(steps, "rest")
		_, _ = io.WriteString(w, " rest")
	}
	w := ask(watch, func(w http.ResponseWriter, r *http.Request) {
		if !Afterwards(r.Context(), rest) {
			t.Error("there is a chain")
		}
		_, _ = io.WriteString(w, "head")
		steps = append(steps, "handler")
	})
	if w.Body.String() != "head rest" || !slices.Equal(steps, []string{"handler", "rest"}) {
		t.Errorf("%q, %q", w.Body, steps)
	}
	ask(watch, func(_ http.ResponseWriter, r *http.Request) {
		Afterwards(r.Context(), rest)
		panic("on the way back")
	})
	if !slices.Equal(steps, []string{"dropped"}) {
		t.Errorf("after a panic: %q", steps)
	}
	w = ask(watch, func(w http.ResponseWriter, r *http.Request) {
		Afterwards(r.Context(), func(w http.ResponseWriter) { panic("at the end") })
	})
	if w.Code != http.StatusInternalServerError || !strings.Contains(w.Body.String(), "panic") {
		t.Errorf("a panic at the end: %d %s", w.Code, w.Body)
	}
	if Afterwards(t.Context(), rest) {
		t.Error("there is no chain")
	}
}
