package proxy

import (
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"portico/apiservice/backend"
	"portico/discovery/rest"
)

// A path prefix that may be stored can be used.
func FuzzPathPrefix(f *testing.F) {
	for _, seed := range []string{
		"/", "/api/v3", "/a/", "/a//b", "//a", "/a/./b", "/a/../b", "/...", "/a%20b", "/a,b", "/a?b", "/a#b", "/é", "/~a_b-c.d", "a",
		"/" + strings.Repeat("a", 255), "/" + strings.Repeat("a", 256), "/a;b", "/a:b", "/a@b", "/a b", "/\x00", "/\xff", "/٣",
	} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, prefix string) {
		if prefix == "" {
			return // the document says it
		}
		errs := backend.Validate(&backend.Backend{ObjectMeta: metav1.ObjectMeta{Name: "b"}, Spec: backend.Spec{
			Endpoints: []backend.Endpoint{{URL: "https://a"}}, REST: &backend.REST{Group: "a", Version: "v1", PathPrefix: prefix},
		}})
		if err := rest.CheckPathPrefix(prefix); len(errs) == 0 && err != nil {
			t.Errorf("it may be stored, but %v", err)
		} else if err == nil && len(errs) > 0 && (prefix == "/" || !strings.HasSuffix(prefix, "/")) {
			t.Errorf("it could be used, but %v", errs)
		}
	})
}
