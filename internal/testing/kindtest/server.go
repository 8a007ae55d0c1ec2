package kindtest

import (
	"bytes"
	"context"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"portico/internal/testing/memstore"
	"portico/resource"
	"portico/resource/rest"
	"portico/resource/rest/handlers"
)

// Server serves a version of a kind from memory.
type Server struct {
	kind    *rest.Kind
	version string
	memory  *memstore.Storage
	store   resource.Store
	api     http.Handler
}

// Serve returns a server of a version of a kind.
func Serve(k *rest.Kind, version string) *Server {
	memory := memstore.New()
	store := memory.Store(&k.Info)
	api := handlers.New(handlers.Config{Resources: []*rest.Resource{{Kind: k, Store: store}}})
	return &Server{k, version, memory, store, api}
}

// Revision returns the revision of the storage, which every write increases.
func (s *Server) Revision() int64 { return s.memory.Revision() }

// Apply sends an object as a forced apply patch.
func (s *Server) Apply(name string, body []byte) *httptest.ResponseRecorder {
	return s.request(http.MethodPatch, name, "?fieldManager=m&force=true", string(types.ApplyYAMLPatchType), body)
}

// Send creates an object, or updates the one of a name, or its subresource sub.
func (s *Server) Send(name, sub string, body []byte) *httptest.ResponseRecorder {
	method := http.MethodPut
	if name == "" {
		method = http.MethodPost
	}
	return s.request(method, strings.TrimSuffix(name+"/"+sub, "/"), "", "application/json", body)
}

// request sends a request. The status of one that panics is 500.
func (s *Server) request(method, name, query, contentType string, body []byte) (w *httptest.ResponseRecorder) {
	path := "/apis/" + s.kind.Group
	if s.kind.Group == "" {
		path = "/api"
	}
	path += "/" + s.version
	if s.kind.Namespaced {
		path += "/namespaces/default"
	}
	path = strings.TrimSuffix(path+"/"+s.kind.Resource+"/"+name, "/")
	r := httptest.NewRequest(method, path+query, bytes.NewReader(body))
	r.Header.Set("Content-Type", contentType)
	act := resource.ParseAction(r)
	act.User = &resource.User{Name: "admin"}
	w = httptest.NewRecorder()
	defer func() { // as the filters of a server
		if recover() != nil {
			w = httptest.NewRecorder()
			w.WriteHeader(http.StatusInternalServerError)
		}
	}()
	s.api.ServeHTTP(w, r.WithContext(resource.WithAction(context.Background(), act)))
	return w
}

// Backdate makes the times in managedFields of an object a day older, so that a write that records them again is seen. It
// reports whether the object has any.
func (s *Server) Backdate(t testing.TB, name string) bool {
	t.Helper()
	key := resource.Key{Name: name}
	if s.kind.Namespaced {
		key.Namespace = "default"
	}
	found := false
	_, err := rest.Modify(t.Context(), &rest.Resource{Kind: s.kind, Store: s.store}, key, func(obj rest.Object) error {
		entries := obj.GetManagedFields()
		for i := range entries {
			if entries[i].Time != nil {
				found = true
				entries[i].Time = &metav1.Time{Time: entries[i].Time.AddDate(0, 0, -1)}
			}
		}
		obj.SetManagedFields(entries)
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return found
}
