package cli

import "testing"

func TestShellQuote(t *testing.T) {
	for s, want := range map[string]string{"/a/b-c.d": "/a/b-c.d", "/my data": "'/my data'", "/it's": `'/it'\''s'`, "/$HOME": "'/$HOME'"} {
		if got := ShellQuote(s); got != want {
			t.Errorf("%q: got %s", s, got)
		}
	}
}

// A number has its noun in the singular or the plural.
func TestPlural(t *testing.T) {
	for want, c := range map[string]struct {
		n    int
		noun string
	}{"1 definition": {1, "definition"}, "0 warnings": {0, "warning"}, "2 authorities": {2, "authority"}, "2 keys": {2, "key"}, "2 gateways": {2, "gateway"}, "2 statuses": {2, "status"}} {
		if got := Plural(c.n, c.noun); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}
