package kinds

import (
	"context"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"portico/internal/testing/kindtest"
	"portico/internal/testing/memstore"
	"portico/resource"
	"portico/resource/rest"
	"portico/resource/rest/handlers"
)

// served is a version of a kind, served from memory.
type served struct {
	kind    *rest.Kind
	version string
	memory  *memstore.Storage
	store   resource.Store
	api     http.Handler
}

func serve(k *rest.Kind, version string) *served {
	memory := memstore.New()
	store := memory.Store(&k.Info)
	api := handlers.New(handlers.Config{Resources: []*rest.Resource{{Kind: k, Store: store}}})
	return &served{k, version, memory, store, api}
}

// put stores an object as it is.
func (s *served) put(t *testing.T, name string, body []byte) {
	t.Helper()
	obj, _, err := s.kind.Codec.Decode(body, runtime.ContentTypeJSON, s.kind.GVK(s.version), false)
	if err != nil {
		t.Fatal(err)
	}
	typed, key := obj.(rest.Object), resource.Key{Name: name}
	if s.kind.Strategy.Default != nil {
		s.kind.Strategy.Default(typed)
	}
	kindtest.Identify(typed)
	typed.SetResourceVersion("")
	if s.kind.Namespaced {
		key.Namespace = "default"
		typed.SetNamespace(key.Namespace)
	}
	o, err := s.kind.Codec.EncodeStored(typed)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.store.Create(context.Background(), key, o, 0); err != nil {
		t.Fatal(err)
	}
}

// send sends an object to the collection (name "") or to an object or its subresource.
func (s *served) send(name, sub string, body []byte) *httptest.ResponseRecorder {
	path := "/apis/" + s.kind.Group
	if s.kind.Group == "" {
		path = "/api"
	}
	path += "/" + s.version
	if s.kind.Namespaced {
		path += "/namespaces/default"
	}
	method := http.MethodPost
	path += "/" + s.kind.Resource
	if name != "" {
		method = http.MethodPut
		path = strings.TrimSuffix(path+"/"+name+"/"+sub, "/")
	}
	r := httptest.NewRequest(method, path+"?fieldManager=m", strings.NewReader(string(body)))
	r.Header.Set("Content-Type", runtime.ContentTypeJSON)
	act := resource.ParseAction(r)
	act.User = &resource.User{Name: "admin"}
	w := httptest.NewRecorder()
	s.api.ServeHTTP(w, r.WithContext(resource.WithAction(r.Context(), act)))
	return w
}

// write sends an object as send does and returns the causes of the refusal, as recorded. It
// fails if the write is not refused or if anything is stored.
func (s *served) write(t *testing.T, what, name, sub string, body []byte) []kindtest.Cause {
	t.Helper()
	before := s.memory.Revision()
	w := s.send(name, sub, body)
	if s.memory.Revision() != before {
		t.Errorf("%s: something is stored", what)
	}
	var status metav1.Status
	if err := json.Unmarshal(w.Body.Bytes(), &status); err != nil || w.Code != http.StatusUnprocessableEntity || status.Details == nil {
		t.Errorf("%s: %d: %.400s", what, w.Code, w.Body)
		return nil
	}
	var causes []kindtest.Cause
	for _, c := range status.Details.Causes {
		causes = append(causes, kindtest.Cause{Field: c.Field, Reason: string(c.Type), Message: c.Message})
	}
	return causes
}

// refuse sends a write with these errors and fails if the server does not refuse it with them.
func (s *served) refuse(t *testing.T, c kindtest.Case, sub string, want []string) {
	t.Helper()
	var body map[string]any
	if err := json.Unmarshal(c.Body(), &body); err != nil {
		t.Fatal(err)
	}
	name := ""
	if c.Old != nil {
		name = kindtest.NameOf(body)
		if _, err := s.store.Get(t.Context(), resource.Key{Namespace: s.namespace(), Name: name}, resource.At{}); err != nil {
			s.put(t, name, c.Old)
		}
		o, err := s.store.Get(t.Context(), resource.Key{Namespace: s.namespace(), Name: name}, resource.At{})
		if err != nil {
			t.Fatal(err)
		}
		kindtest.Put(body, []any{"metadata", "resourceVersion"}, strconv.FormatInt(o.Revision, 10))
	}
	var got []string
	for _, cause := range kindtest.Sorted(s.write(t, c.Name, name, sub, kindtest.Encoded(body))) {
		got = append(got, cause.Field+": "+cause.Reason)
	}
	if got = slices.Compact(got); !slices.Equal(got, want) {
		t.Errorf("%s\n\tgot  %v\n\twant %v", c.Name, got, want)
	}
}

func (s *served) namespace() string {
	if s.kind.Namespaced {
		return "default"
	}
	return ""
}

// Wrong metadata is refused for every kind, with the path of each cause.
func TestRefusesWrongMetadata(t *testing.T) {
	long := strings.Repeat("a", 300)
	for name, c := range map[string]struct {
		path  []any
		value any
		field string
	}{
		"name":            {[]any{"name"}, "A b!", "metadata.name"},
		"slash":           {[]any{"name"}, "a/b", "metadata.name"},
		"label":           {[]any{"labels", "A b!"}, "x", "metadata.labels"},
		"long label":      {[]any{"labels", "a"}, long, "metadata.labels"},
		"annotation":      {[]any{"annotations", "a/b/c"}, "x", "metadata.annotations"},
		"annotations":     {[]any{"annotations", "a"}, strings.Repeat("a", 300_000), "metadata.annotations"},
		"finalizer":       {[]any{"finalizers"}, []any{"A b!"}, "metadata.finalizers"},
		"owner":           {[]any{"ownerReferences"}, []any{map[string]any{}}, "metadata.ownerReferences[0].name"},
		"two controllers": {[]any{"ownerReferences"}, []any{controller("a"), controller("b")}, "metadata.ownerReferences"},
	} {
		for _, k := range slices.DeleteFunc(allKinds(), (*rest.Kind).Virtual) {
			version := k.Versions[0]
			if name == "name" && k.Strategy.ValidateName != nil && len(k.Strategy.ValidateName("A b!", false)) == 0 {
				continue
			}
			body := kindtest.Clone(kindtest.Objects(t, filepath.Join("testdata", "objects"), k.GVR(version))[0])
			body = kindtest.Put(body, append([]any{"metadata"}, c.path...), c.value)
			what := k.Resource + ": " + name
			got := serve(k, version).write(t, what, "", "", kindtest.Encoded(body))
			if !slices.ContainsFunc(got, func(cause kindtest.Cause) bool { return cause.Field == c.field }) {
				t.Errorf("%s: no cause at %s: %v", what, c.field, got)
			}
		}
	}
}

func controller(name string) map[string]any {
	return map[string]any{"apiVersion": "v1", "kind": "Pod", "name": name, "uid": name, "controller": true}
}
