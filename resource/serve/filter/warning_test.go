package filter

import (
	"net/http"
	"net/http/httptest"
	"reflect"
	"strings"
	"testing"
	"unicode"
	"unicode/utf8"

	utilnet "k8s.io/apimachinery/pkg/util/net"
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
		{"escaped", []string{"say \"hi\" \\ \r\nbye\x7f"}, []string{`299 - "say \"hi\" \\ bye"`}},
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

// FuzzWarningHeader checks that whatever the text, the header is one that
// clients of the Kubernetes family read back, without control characters.
func FuzzWarningHeader(f *testing.F) {
	for _, seed := range []string{"", "plain", `"`, `\`, `\"`, "a\r\nX-Evil: 1", "ä\u2028", "\xff\xfe", "\u0085", `", 299 - "x`} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		header := warningHeader(text)
		if !utf8.ValidString(header) || strings.ContainsFunc(header, unicode.IsControl) {
			t.Fatalf("%q: header %q", text, header)
		}
		read, errs := utilnet.ParseWarningHeaders([]string{header})
		if len(errs) > 0 || len(read) != 1 || read[0].Code != 299 || read[0].Agent != "-" {
			t.Fatalf("%q: header %q is read as %+v, %v", text, header, read, errs)
		}
		want := strings.Map(func(c rune) rune {
			if unicode.IsControl(c) {
				return -1
			}
			return c
		}, text)
		if read[0].Text != want {
			t.Fatalf("%q came back as %q", text, read[0].Text)
		}
	})
}
