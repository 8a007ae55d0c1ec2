package filter

import (
	"net/http"
	"net/http/httptest"
	"reflect"
	"strings"
	"testing"
)

func TestWarnings(t *testing.T) {
	send := func(texts ...string) []string {
		w := httptest.NewRecorder()
		newChain(t, func(_ http.ResponseWriter, r *http.Request) {
			for _, text := range texts {
				AddWarning(r.Context(), text)
			}
		}).ServeHTTP(w, httptest.NewRequest("GET", "/", nil))
		return w.Header()["Warning"]
	}
	long := func(c string, n int) string { return strings.Repeat(c, n) }
	line := func(text string) string { return `299 - "` + text + `"` }
	for _, c := range []struct {
		name  string
		texts []string
		want  []string
	}{
		{"none", nil, nil},
		{"empty", []string{""}, nil},
		{"twice", []string{"a", "b", "a"}, []string{line("a"), line("b")}},
		{"escaped", []string{"say \"hi\" \\ \r\nbye\x7f\xff"}, []string{"299 - \"say \\\"hi\\\" \\\\ bye\uFFFD\""}},
		{"fits", []string{long("ä", 4096)}, []string{line(long("ä", 4096))}},
		{"cut", []string{"x", long("ä", 4096), "y"}, []string{line("x"), line(long("ä", 256)), line("y")}},
	} {
		if got := send(c.texts...); !reflect.DeepEqual(got, c.want) {
			t.Errorf("%s: got %q", c.name, got)
		}
	}
	var many []string
	for i := range 100 {
		many = append(many, long(string(rune('!'+i)), 300))
	}
	if got := send(many...); len(got) != maxWarningsTotal/maxWarningCut {
		t.Errorf("%d of 100 long warnings were sent", len(got))
	}
	AddWarning(t.Context(), "outside of a chain")
}
