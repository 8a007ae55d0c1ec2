package patch

import (
	"runtime"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/types"
)

func TestPatchedDepth(t *testing.T) {
	deep := func(n int) string { return strings.Repeat(`{"a":`, n) + "1" + strings.Repeat("}", n) }
	for n, ok := range map[int]bool{maxDepth - 2: true, maxDepth - 1: false} {
		patch, err := Parse(types.JSONPatchType, []byte(`[{"op":"copy","from":"/x","path":"/y/z"}]`), nil, false)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := patch.Apply([]byte(`{"x":` + deep(n) + `,"y":{}}`)); (err == nil) != ok {
			t.Errorf("%d levels: %v", n, err)
		}
	}
}

// A patch library that decodes level by level takes minutes and gigabytes.
func TestDeepMergeIsLinear(t *testing.T) {
	patch := strings.Repeat(`{"a":`, maxDepth-1) + `"` + strings.Repeat("x", 1<<20) + `"` + strings.Repeat("}", maxDepth-1)
	doc, err := Parse(types.MergePatchType, []byte(patch), nil, true)
	if err != nil {
		t.Fatal(err)
	}
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	if _, err := doc.Apply([]byte(`{"a":{"b":1}}`)); err != nil {
		t.Fatal(err)
	}
	runtime.ReadMemStats(&after)
	if used := (after.TotalAlloc - before.TotalAlloc) >> 20; used > 64 {
		t.Errorf("%d MB were allocated", used)
	}
}
