package crd

import (
	"fmt"
	"testing"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"portico/internal/testing/await"
	"portico/internal/testing/memstore"
)

// The objects of a stored definition with preserveUnknownFields keep unknown fields, whatever
// its schema; such a definition cannot be created.
func TestStoredDefinitionsThatPreserve(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct{ schema, invalid string }{
		"structural": {
			`,"schema":{"openAPIV3Schema":{"type":"object","properties":{"spec":{"type":"object","properties":{"size":{"type":"integer"}}}}}}`,
			`{"spec":{"size":"x"}}`,
		},
		"not structural": {
			`,"schema":{"openAPIV3Schema":{"properties":{"spec":{"required":["size"],"properties":{"size":{"minimum":1}}}}}}`,
			`{"spec":{"size":0}}`,
		},
		"none": {"", ""},
	} {
		t.Run(name, func(t *testing.T) { testPreserving(t, c.schema, c.invalid) })
	}
	definition := definitionWith(`{"type":"object"}`)
	if a := running(t).send(t, "POST", definitionPath, "application/json", definition[:len(definition)-2]+`,"preserveUnknownFields":true}}`); a.code != 422 {
		t.Errorf("a new one got %d %s", a.code, a.body)
	}
}

func testPreserving(t *testing.T, versionSchema, invalid string) {
	kept := memstore.New()
	const names = `{"plural":"olds","kind":"Old","singular":"old","listKind":"OldList"}`
	put(t, kept.Store(&DefinitionKind().Info), `{"apiVersion":"apiextensions.k8s.io/v1","kind":"CustomResourceDefinition","metadata":{"name":"olds.example.com","uid":"u"},
		"spec":{"group":"example.com","scope":"Namespaced","preserveUnknownFields":true,"names":`+names+`,
		"versions":[{"name":"v1","served":true,"storage":true`+versionSchema+`}]},
		"status":{"storedVersions":["v1"],"acceptedNames":`+names+`,"conditions":[{"type":"NamesAccepted","status":"True"},{"type":"Established","status":"True"}]}}`)
	s := over(t, kept)
	gr := schema.GroupResource{Group: "example.com", Resource: "olds"}
	await.Until(t, "it is served", func() bool { return s.served.Load().byGR[gr] != nil })
	const path = "/apis/example.com/v1/namespaces/default/olds"
	put(t, kept.Store(&s.served.Load().byGR[gr].rows["v1"].Kind.Info),
		`{"apiVersion":"example.com/v1","kind":"Old","metadata":{"name":"a","namespace":"default","uid":"u","creationTimestamp":null},"spec":{"size":1,"junk":{"deep":[true]}},"more":null}`)
	await.Until(t, "its object is there", func() bool { return s.send(t, "GET", path+"/a", "", "").code == 200 })

	whole := func(got map[string]any, when string) {
		t.Helper()
		more, has := got["more"]
		if fmt.Sprint(at(got, "spec", "junk", "deep")) != "[true]" || !has || more != nil {
			t.Errorf("%s: %v", when, got)
		}
	}
	whole(s.must(t, "GET", path+"/a", "", ""), "read")
	whole(s.must(t, "PATCH", path+"/a?fieldValidation=Strict", "application/merge-patch+json", `{"metadata":{"labels":{"a":"b"}}}`), "patched")
	whole(s.must(t, "PATCH", path+"/a?fieldManager=m", "application/apply-patch+yaml",
		`{"apiVersion":"example.com/v1","kind":"Old","metadata":{"name":"a"},"spec":{"size":1,"applied":{"x":1}}}`), "applied")
	whole(s.must(t, "GET", path+"/a", "", ""), "read again")
	whole(s.must(t, "POST", path+"?fieldValidation=Strict", "application/json",
		`{"apiVersion":"example.com/v1","kind":"Old","metadata":{"name":"b"},"spec":{"size":1,"junk":{"deep":[true]}},"more":null}`), "created")
	if invalid == "" {
		return
	}
	body := `{"apiVersion":"example.com/v1","kind":"Old","metadata":{"name":"c"},` + invalid[1:]
	if a := s.send(t, "POST", path, "application/json", body); a.code != 422 {
		t.Errorf("an invalid one got %d %s", a.code, a.body)
	}
}
