package metrics

import (
	"net/http/httptest"
	"testing"

	"portico/resource"
)

// User names other than a few well-known ones share two label values.
func TestUserLabel(t *testing.T) {
	for name, want := range map[string]string{"admin": "admin", "kubelet": "kubelet", "jane@example.com": "email_id", "jane": "other", "": "other"} {
		if got := userLabel(name); got != want {
			t.Errorf("%q has the label %s, want %s", name, got, want)
		}
	}
}

func BenchmarkAnswered(b *testing.B) {
	m := New()
	r := httptest.NewRequest("GET", "/api/v1/namespaces/ns/pods/p", nil)
	a := resource.ParseAction(r)
	b.ReportAllocs()
	for b.Loop() {
		m.Answered(r, a, Response{Code: 200, Took: 1})
	}
}
