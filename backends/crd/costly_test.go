package crd

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"

	"portico/internal/testing/memstore"
	"portico/resource"
)

// alternatives returns a definition with so many alternatives for each item of the list s.
func alternatives(n int) *apiextensionsv1.CustomResourceDefinition {
	item := apiextensionsv1.JSONSchemaProps{Type: "string", AnyOf: []apiextensionsv1.JSONSchemaProps{}}
	for i := range n {
		item.AnyOf = append(item.AnyOf, apiextensionsv1.JSONSchemaProps{Pattern: fmt.Sprintf("(x|y)*z%dq$", i)})
	}
	item.AnyOf = append(item.AnyOf, apiextensionsv1.JSONSchemaProps{Pattern: "^xy"})
	crd := wide("alts", "example.com", 1, 0, 0)
	v := &crd.Spec.Versions[0]
	v.Subresources = &apiextensionsv1.CustomResourceSubresources{Status: &apiextensionsv1.CustomResourceSubresourceStatus{}}
	list := apiextensionsv1.JSONSchemaProps{Type: "array", Items: &apiextensionsv1.JSONSchemaPropsOrArray{Schema: &item}}
	v.Schema = &apiextensionsv1.CustomResourceValidation{OpenAPIV3Schema: &apiextensionsv1.JSONSchemaProps{
		Type: "object", Properties: map[string]apiextensionsv1.JSONSchemaProps{
			"n": {Type: "integer"}, "s": list, "status": {Type: "object", Properties: map[string]apiextensionsv1.JSONSchemaProps{"s": list}},
		},
	}}
	return crd
}

func alternative(name string, items int) string {
	list := `"s":["xyxyxyxyxyxy"` + strings.Repeat(`,"xyxyxyxyxyxy"`, items-1) + `]`
	return `{"apiVersion":"example.com/v1","kind":"Kalts","metadata":{"name":"` + name + `"},` + list + `,"status":{` + list + `}}`
}

// Every way to write an object that takes too long to validate is a 422 with the field. A stored one can be read, relabeled,
// made smaller and deleted.
func TestObjectsThatAreCostlyToValidate(t *testing.T) {
	t.Parallel()
	const path = "/apis/example.com/v1/namespaces/default/alts"
	kept := memstore.New()
	plant(t, kept, alternatives(3000))
	put(t, kept.Store(&resource.Info{Group: "example.com", Versions: []string{"v1"}, Resource: "alts", Kind: "Kalts", Namespaced: true, Path: "example.com/alts"}), strings.Replace(alternative("stored", 20_000), `"name"`, `"namespace":"default","uid":"u","creationTimestamp":"2026-01-01T00:00:00Z","generation":1,"name"`, 1))
	s := over(t, kept)
	s.must(t, "POST", path, "application/json", alternative("small", 20))
	costly := alternative("costly", 20_000)
	list := costly[strings.Index(costly, `"s":`):strings.Index(costly, `,"status"`)]
	for _, tc := range []struct{ method, path, contentType, body, field string }{
		{"POST", path, "application/json", costly, "s["},
		{"POST", path + "?dryRun=All", "application/json", costly, "s["},
		{"PATCH", path + "/costly?fieldManager=m", applyPatch, costly, "s["},
		{"PATCH", path + "/small", mergePatch, "{" + list + "}", "s["},
		{"PATCH", path + "/small/status", mergePatch, `{"status":{` + list + "}}", "status.s["},
		{"PATCH", path + "/stored", mergePatch, `{"n":1}`, "s["},
	} {
		a := s.send(t, tc.method, tc.path, tc.contentType, tc.body)
		if st := a.status(t); a.code != http.StatusUnprocessableEntity || len(st.Details.Causes) != 1 ||
			!strings.Contains(st.Details.Causes[0].Field, tc.field) || !strings.Contains(st.Message, "takes more than 150000000 steps") {
			t.Errorf("%s %s: %d %.300s", tc.method, tc.path, a.code, a.body)
		}
	}
	s.must(t, "GET", path+"/stored", "", "")
	s.must(t, "PATCH", path+"/stored", mergePatch, `{"metadata":{"labels":{"a":"b"}}}`)
	s.must(t, "PATCH", path+"/stored/status", mergePatch, `{"status":null}`)
	s.must(t, "PATCH", path+"/stored", mergePatch, `{"s":["xy"]}`)
	s.must(t, "DELETE", path+"/stored", "", "")
}
