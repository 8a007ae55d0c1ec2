package kinds

import (
	"encoding/json"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"portico/internal/testing/kindtest"
	"portico/internal/testing/memstore"
	"portico/resource"
	"portico/resource/rest"
	"portico/resource/rest/handlers"
)

// The type converter for field ownership has every version of every kind.
func TestOwnershipKnowsEveryKind(t *testing.T) {
	for _, k := range All(Config{}) {
		converter, err := k.Ownership()
		if err != nil {
			t.Fatal(err)
		}
		for _, version := range k.Versions {
			gvk := k.GVK(version)
			u := &unstructured.Unstructured{}
			u.SetGroupVersionKind(gvk)
			obj, err := k.Codec.(rest.Versioned).ConvertTo(u, gvk.GroupVersion())
			if err != nil {
				t.Fatal(err)
			}
			if _, err := converter.ObjectToTyped(obj); err != nil {
				t.Errorf("%s: %v", gvk, err)
			}
		}
	}
}

// Fields of an event that are owned through one group have the names of that group.
func TestOwnersOfEvents(t *testing.T) {
	storage := memstore.New()
	var served []*rest.Resource
	for _, k := range All(Config{}) {
		served = append(served, &rest.Resource{Kind: k, Store: storage.Store(&k.Info)})
	}
	api := handlers.New(handlers.Config{Resources: served})
	send := func(method, path, contentType, body string) *metav1.PartialObjectMetadata {
		t.Helper()
		r := httptest.NewRequest(method, path, strings.NewReader(body))
		r.Header.Set("Content-Type", contentType)
		act := resource.ParseAction(r)
		act.User = &resource.User{Name: "alice"}
		w := httptest.NewRecorder()
		api.ServeHTTP(w, r.WithContext(resource.WithAction(r.Context(), act)))
		var meta metav1.PartialObjectMetadata
		if err := json.Unmarshal(w.Body.Bytes(), &meta); err != nil || w.Code >= 300 {
			t.Fatalf("%d: %s", w.Code, w.Body)
		}
		return &meta
	}
	send("POST", "/api/v1/namespaces/default/events?fieldManager=old", "application/json",
		`{"metadata":{"name":"e"},"involvedObject":{"namespace":"default","name":"x"},"message":"first","series":{"count":1,"lastObservedTime":"2026-01-02T03:04:05.000000Z"}}`)
	const path = "/apis/events.k8s.io/v1/namespaces/default/events/e"
	got := send("PATCH", path+"?fieldManager=new&force=true", "application/apply-patch+yaml",
		`{"apiVersion":"events.k8s.io/v1","kind":"Event","metadata":{"name":"e","labels":{"l":"1"}},"series":{"count":2,"lastObservedTime":"2026-01-02T03:04:05.000000Z"}}`)
	owned := func(manager, version, name string) bool {
		return slices.ContainsFunc(got.ManagedFields, func(e metav1.ManagedFieldsEntry) bool {
			return e.Manager == manager && e.APIVersion == version && strings.Contains(string(e.FieldsV1.GetRawBytes()), `"f:`+name+`"`)
		})
	}
	if !owned("new", "events.k8s.io/v1", "count") || !owned("old", "v1", "message") || owned("old", "v1", "count") {
		t.Errorf("%+v", got.ManagedFields)
	}
}

// The approver of a CertificateSigningRequest does not own its certificate, nor the signer its
// conditions.
func TestOwnersOfCertificateSigningRequests(t *testing.T) {
	k := kind(t, "certificatesigningrequests.certificates.k8s.io")
	all := kindtest.Objects(t, "testdata/objects", k.GVR("v1"))
	request := all[slices.IndexFunc(all, func(o map[string]any) bool { return kindtest.Dig(o, "status", "certificate") != nil })]
	kindtest.Put(request, []any{"status", "conditions"}, []any{map[string]any{"type": "Approved", "status": "True", "reason": "r"}})
	kindtest.Put(request, []any{"metadata", "labels"}, map[string]any{"l": "v"})
	s := kindtest.Serve(k, "v1")
	name, sub := "", ""
	for _, next := range []string{"approval", "status", ""} {
		w := s.Send(name, sub, kindtest.Encoded(request))
		var meta metav1.PartialObjectMetadata
		if err := json.Unmarshal(w.Body.Bytes(), &meta); err != nil || w.Code >= 300 {
			t.Fatalf("%s: %d: %s", sub, w.Code, w.Body)
		}
		for _, field := range []string{"conditions", "certificate"} {
			got := slices.ContainsFunc(meta.ManagedFields, func(e metav1.ManagedFieldsEntry) bool {
				return e.Subresource == sub && strings.Contains(string(e.FieldsV1.GetRawBytes()), `"f:`+field+`"`)
			})
			if want := sub == "approval" && field == "conditions" || sub == "status" && field == "certificate"; got != want {
				t.Errorf("%q: owns %s: %v: %v", sub, field, got, meta.ManagedFields)
			}
		}
		name, sub = kindtest.NameOf(request), next
	}
}
