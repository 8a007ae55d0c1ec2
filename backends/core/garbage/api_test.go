package garbage

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/rest"

	"portico/resource"
)

// staleMapper knows a version that was withdrawn until it is reset.
type staleMapper struct{ meta.RESTMapper }

func newStaleMapper() *staleMapper { return &staleMapper{mapperOf("v2")} }

func (m *staleMapper) Reset() { m.RESTMapper = mapperOf("v1") }

func mapperOf(version string) meta.RESTMapper {
	gv := schema.GroupVersion{Group: "example.com", Version: version}
	m := meta.NewDefaultRESTMapper([]schema.GroupVersion{gv})
	m.Add(gv.WithKind("Widget"), meta.RESTScopeNamespace)
	return m
}

// A version that is no longer served does not make its objects absent: requests fail with an
// error that is tried again, then for a version that is served.
func TestWithdrawnVersion(t *testing.T) {
	t.Parallel()
	web := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !strings.HasPrefix(r.URL.Path, "/apis/example.com/v1/") {
			http.NotFound(w, r)
			return
		}
		w.Header().Set("Content-Type", runtime.ContentTypeJSON)
		switch {
		case strings.HasSuffix(r.URL.Path, "/widgets"):
			fmt.Fprint(w, `{"apiVersion":"meta.k8s.io/v1","kind":"PartialObjectMetadataList","metadata":{},"items":[]}`)
			return
		case strings.HasSuffix(r.URL.Path, "/absent"):
			http.NotFound(w, r)
			return
		}
		fmt.Fprint(w, `{"apiVersion":"meta.k8s.io/v1","kind":"PartialObjectMetadata","metadata":{"name":"w","namespace":"n","uid":"1","resourceVersion":"1"}}`)
	}))
	t.Cleanup(web.Close)
	header := &resource.Header{APIVersion: "example.com/v1", Kind: "Widget", Namespace: "n", Name: "w", UID: "1", Revision: 1}
	for name, request := range map[string]func(API) error{
		"get": func(api API) error {
			_, err := api.Get(t.Context(), Ref{APIVersion: "example.com/v1", Kind: "Widget", Namespace: "n", Name: "w", UID: "1"})
			return err
		},
		"delete": func(api API) error { return api.Delete(t.Context(), header, metav1.DeletePropagationBackground) },
		"patch":  func(api API) error { return api.Patch(t.Context(), header, []byte(`{}`)) },
	} {
		api := NewAPI(metadata.NewForConfigOrDie(&rest.Config{Host: web.URL}), newStaleMapper())
		if err := request(api); err == nil || apierrors.IsNotFound(err) {
			t.Errorf("%s with a stale mapper: %v", name, err)
		}
		if err := request(api); err != nil {
			t.Errorf("%s again: %v", name, err)
		}
		_, err := api.Get(t.Context(), Ref{APIVersion: "example.com/v1", Kind: "Widget", Namespace: "n", Name: "absent", UID: "1"})
		if !apierrors.IsNotFound(err) {
			t.Errorf("an absent object of a server whose 404 is no Status: %v", err)
		}
	}
}
