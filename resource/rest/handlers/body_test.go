package handlers

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"
)

// Errors for a YAML body list a bounded number of duplicate fields.
func TestBoundDuplicates(t *testing.T) {
	for n, ok := range map[int]bool{1: true, maxDuplicates: true, maxDuplicates + 1: false, 50_000: false} {
		err := yaml.UnmarshalStrict([]byte("{a: b,"+strings.Repeat("a: b,", n)+"}"), &map[string]any{})
		got := boundDuplicates(err).Error()
		if (got == err.Error()) != ok || strings.Count(got, "\n") > maxDuplicates+1 || !strings.Contains(got, "line 1: key \"a\" already set in map") {
			t.Errorf("%d: %.200s", n, got)
		}
		if more := fmt.Sprintf("and %d more", n-maxDuplicates); !ok && !strings.Contains(got, more) {
			t.Errorf("%d: %q is missing", n, more)
		}
	}
	if other := errors.New(strings.Repeat("\n", 1000)); boundDuplicates(other) != other {
		t.Error("another error was shortened")
	}
}
