package handlers

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	goruntime "runtime"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/applyconfigurations"

	"portico/resource"
	"portico/resource/rest/resttest"
)

// BenchmarkWrite is what ownership costs, as a ratio of the same writes without
// it: creation and an update of one field.
func BenchmarkWrite(b *testing.B) {
	for _, tracked := range []bool{false, true} {
		for _, verb := range []string{"create", "patch", "apply"} {
			if verb == "apply" && !tracked {
				continue
			}
			b.Run(fmt.Sprintf("%s/tracked=%t", verb, tracked), func(b *testing.B) { benchWrite(b, verb, tracked) })
		}
	}
}

func benchWrite(b *testing.B, verb string, tracked bool) {
	bench := newWriteBench(b)
	if tracked {
		bench.configMaps.Ownership = builtinOwners
		if _, err := builtinOwners(); err != nil {
			b.Fatal(err)
		}
	}
	body, err := json.Marshal(bare("a"))
	if err != nil {
		b.Fatal(err)
	}
	do := func(method, path, contentType, body string, want int) {
		r := httptest.NewRequest(method, path, strings.NewReader(body))
		r.Header.Set("Content-Type", contentType)
		act := resource.ParseAction(r)
		act.User = &resource.User{Name: "alice"}
		w := httptest.NewRecorder()
		bench.api.ServeHTTP(w, r.WithContext(resource.WithAction(context.Background(), act)))
		if w.Code != want {
			b.Fatalf("code %d: %s", w.Code, w.Body)
		}
	}
	do("POST", inDefault+"configmaps", runtime.ContentTypeJSON, string(body), http.StatusCreated)
	b.ReportAllocs()
	i := 0
	for b.Loop() {
		i++
		switch verb {
		case "create":
			do("POST", inDefault+"configmaps", runtime.ContentTypeJSON, strings.Replace(string(body), `"a"`, fmt.Sprintf(`"a%d"`, i), 1), http.StatusCreated)
		case "patch":
			do("PATCH", configMapA, mergePatch, fmt.Sprintf(`{"data":{"n":"%d"}}`, i), http.StatusOK)
		case "apply":
			do("PATCH", configMapA+"?fieldManager=m", applyPatch, cmIntent(fmt.Sprintf(`,"metadata":{"name":"a"},"data":{"n":"%d"}`, i)), http.StatusOK)
		}
	}
}

// What the schema of the built-in kinds costs the process that first needs it.
func TestCostOfBuiltinOwnership(t *testing.T) {
	var before, after goruntime.MemStats
	goruntime.GC()
	goruntime.ReadMemStats(&before)
	start := time.Now()
	converter := applyconfigurations.NewTypeConverter(resttest.CoreScheme())
	took := time.Since(start)
	goruntime.GC()
	goruntime.ReadMemStats(&after)
	kept := int64(after.HeapAlloc) - int64(before.HeapAlloc)
	t.Logf("%v, %d KB of garbage, %d KB kept", took, (after.TotalAlloc-before.TotalAlloc)>>10, kept>>10)
	// It is made once in a process, and perhaps was by another test.
	if kept > 15<<20 {
		t.Errorf("%d MB are kept", kept>>20)
	}
	goruntime.KeepAlive(converter)
}
