package handlers

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"portico/resource/rest/resttest"
)

// cached returns the handler of a bench with a watch cache and 5,000 objects of 3.5 KB, stored as
// JSON (kind Secret, instead of a custom resource).
func cached(b *testing.B) http.Handler {
	b.Helper()
	bench, _ := newCachedBench(b)
	bench.secrets.Codec = resttest.Untyped{Codec: bench.secrets.Codec}
	for i := range 5000 {
		obj := resttest.Secret(fmt.Sprintf("s-%06d", i))
		obj.StringData = map[string]string{"text": strings.Repeat("0123456789", 328)}
		bench.put(bench.secrets, obj)
	}
	return bench.Config.Handler
}

// BenchmarkList is LIST of 5,000 objects of 3.5 KB through the handler alone.
func BenchmarkList(b *testing.B) {
	h := cached(b)
	r, w := httptest.NewRequest("GET", "/api/v1/secrets", nil), &resttest.Discard{}
	b.ReportAllocs()
	for b.Loop() {
		*w = resttest.Discard{}
		h.ServeHTTP(w, r)
	}
	b.SetBytes(w.Bytes)
}

// BenchmarkGet is one object of 3.5 KB, through the handler alone.
func BenchmarkGet(b *testing.B) {
	h := cached(b)
	for _, query := range []string{"", "?resourceVersion=0"} {
		b.Run("query "+query, func(b *testing.B) {
			r, w := httptest.NewRequest("GET", inDefault+"secrets/s-002500"+query, nil), &resttest.Discard{}
			b.ReportAllocs()
			for b.Loop() {
				*w = resttest.Discard{}
				h.ServeHTTP(w, r)
			}
			if w.Code != http.StatusOK || w.Bytes < 3000 {
				b.Fatalf("code %d, %d bytes", w.Code, w.Bytes)
			}
		})
	}
}
