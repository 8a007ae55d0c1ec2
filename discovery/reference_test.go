package discovery

import "testing"

func TestReferenceName(t *testing.T) {
	t.Parallel()
	const prefix = "#/components/schemas/"
	for ref, want := range map[string]string{
		prefix + "Widget":                        "Widget",
		prefix + "github.com~1example~1a.Widget": "github.com/example/a.Widget",
		prefix + "a~0b~01":                       "a~b~1",
		prefix + "a%2Fb%7E1c":                    "a/b/c",
		prefix + "a%20b":                         "a b",
		prefix + "100%":                          "100%",
	} {
		if got, ok := ReferenceName(ref, prefix); !ok || got != want {
			t.Errorf("%s: %q, %t, want %q", ref, got, ok, want)
		}
	}
	if _, ok := ReferenceName("#/definitions/Widget", prefix); ok {
		t.Error("a reference without the prefix has a name")
	}
}
