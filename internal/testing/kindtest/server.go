package kindtest

import (
	"context"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
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

// Prepare returns the body of a case with what an update needs: the server has the old object,
// and the body its resourceVersion. name is that of the object, "" for a creation.
func (s *Server) Prepare(t testing.TB, c Case) (name string, body []byte) {
	t.Helper()
	body = c.Body()
	if c.Old == nil {
		return "", body
	}
	var object map[string]any
	if err := json.Unmarshal(body, &object); err != nil {
		t.Fatal(err)
	}
	key := resource.Key{Name: NameOf(object)}
	if s.kind.Namespaced {
		key.Namespace = "default"
	}
	o, err := s.store.Get(t.Context(), key, resource.At{})
	if err != nil {
		o = s.put(t, key, c.Old)
	}
	Put(object, []any{"metadata", "resourceVersion"}, strconv.FormatInt(o.Revision, 10))
	return key.Name, Encoded(object)
}

// put stores an object as it is.
func (s *Server) put(t testing.TB, key resource.Key, body []byte) *resource.Object {
	t.Helper()
	obj, _, err := s.kind.Codec.Decode(body, runtime.ContentTypeJSON, s.kind.GVK(s.version), false)
	if err != nil {
		t.Fatal(err)
	}
	typed := obj.(rest.Object)
	if s.kind.Strategy.Default != nil {
		s.kind.Strategy.Default(typed)
	}
	Identify(typed)
	typed.SetResourceVersion("")
	typed.SetNamespace(key.Namespace)
	o, err := s.kind.Codec.EncodeStored(typed)
	if err != nil {
		t.Fatal(err)
	}
	if o, err = s.store.Create(t.Context(), key, o, 0); err != nil {
		t.Fatal(err)
	}
	return o
}

// Send sends an object to the collection (name "") or to an object or its subresource.
func (s *Server) Send(name, sub string, body []byte) *httptest.ResponseRecorder {
	return s.send(name, sub, "fieldManager=m", body)
}

func (s *Server) send(name, sub, query string, body []byte) *httptest.ResponseRecorder {
	method := http.MethodPost
	if name != "" {
		method = http.MethodPut
	}
	return s.request(method, name, sub, query, runtime.ContentTypeJSON, body)
}

// Apply sends an object as a forced apply patch.
func (s *Server) Apply(name string, body []byte) *httptest.ResponseRecorder {
	return s.request(http.MethodPatch, name, "", "fieldManager=m&force=true", string(types.ApplyYAMLPatchType), body)
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

func (s *Server) request(method, name, sub, query, contentType string, body []byte) *httptest.ResponseRecorder {
	path := "/apis/" + s.kind.Group
	if s.kind.Group == "" {
		path = "/api"
	}
	path += "/" + s.version
	if s.kind.Namespaced {
		path += "/namespaces/default"
	}
	path += "/" + s.kind.Resource
	if name != "" {
		path = strings.TrimSuffix(path+"/"+name+"/"+sub, "/")
	}
	r := httptest.NewRequest(method, path+"?"+query, strings.NewReader(string(body)))
	r.Header.Set("Content-Type", contentType)
	act := resource.ParseAction(r)
	act.User = &resource.User{Name: "admin"}
	w := httptest.NewRecorder()
	s.api.ServeHTTP(w, r.WithContext(resource.WithAction(context.Background(), act)))
	return w
}

// CausesOf returns the causes of a refusal, unsorted. It fails if the response is another one.
func CausesOf(t testing.TB, what string, w *httptest.ResponseRecorder) []Cause {
	t.Helper()
	status := refusal(w)
	if status == nil {
		t.Errorf("%s: %d: %.400s", what, w.Code, w.Body)
		return nil
	}
	var causes []Cause
	for _, c := range status.Details.Causes {
		causes = append(causes, Cause{Field: c.Field, Reason: string(c.Type), Message: c.Message})
	}
	return causes
}

// refusal returns the Status of a response that refuses an invalid object, nil for another
// response.
func refusal(w *httptest.ResponseRecorder) *metav1.Status {
	var status metav1.Status
	if err := json.Unmarshal(w.Body.Bytes(), &status); err != nil || w.Code != http.StatusUnprocessableEntity || status.Details == nil {
		return nil
	}
	return &status
}

// MetadataOutcome returns the outcome of a case of [MetadataCases], with the causes in
// metadata. Nothing is stored.
func (s *Server) MetadataOutcome(t testing.TB, c Case) Outcome {
	t.Helper()
	name, body := s.Prepare(t, c)
	w := s.send(name, "", "dryRun=All", body)
	switch w.Code {
	case http.StatusCreated, http.StatusOK, http.StatusConflict: // what exists already is valid
		return c.Outcome(Of(s.kind, s.version, ""))
	case http.StatusBadRequest:
		return Outcome{Undecodable: true}
	}
	causes := CausesOf(t, c.Name, w)
	var sent struct{ Metadata metav1.ObjectMeta }
	if err := json.Unmarshal(body, &sent); err != nil {
		t.Fatal(err)
	}
	if base := sent.Metadata.GenerateName; sent.Metadata.Name == "" && base != "" {
		for i := range causes {
			causes[i].Message = strings.ReplaceAll(causes[i].Message, refusal(w).Details.Name, Generated(base))
		}
	}
	return Outcome{Refused: true, Causes: Sorted(causes)}
}
