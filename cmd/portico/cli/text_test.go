package cli

import "testing"

func TestShellQuote(t *testing.T) {
	for s, want := range map[string]string{"/a/b-c.d": "/a/b-c.d", "/my data": "'/my data'", "/it's": `'/it'\''s'`, "/$HOME": "'/$HOME'"} {
		if got := ShellQuote(s); got != want {
			t.Errorf("%q: got %s", s, got)
		}
	}
}
