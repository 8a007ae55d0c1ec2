package crd

import (
	"fmt"
	"net/http"
	"reflect"
	"slices"
	"strings"
	"testing"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"

	"portico/internal/testing/memstore"
)

// asTable is the media type of a Table.
const asTable = "application/json;as=Table;v=v1;g=meta.k8s.io"

// withColumns returns a definition of chains, which preserve all fields, with a column of each path.
func withColumns(paths ...string) *apiextensionsv1.CustomResourceDefinition {
	crd := wide("chains", "example.com", 1, 0, 0)
	v := &crd.Spec.Versions[0]
	v.Schema.OpenAPIV3Schema.XPreserveUnknownFields = new(true)
	for i, path := range paths {
		v.AdditionalPrinterColumns = append(v.AdditionalPrinterColumns,
			apiextensionsv1.CustomResourceColumnDefinition{Name: fmt.Sprint("C", i), Type: "string", JSONPath: path})
	}
	return crd
}

// A definition with a column that cannot be evaluated within bounds is rejected with its field. One that is stored can be
// changed elsewhere, and its objects are listed, with a cell that says so.
func TestColumnsThatMultiply(t *testing.T) {
	t.Parallel()
	union := strings.Repeat("['a','a','a','a','a','a','a','a','a','a']", 8)
	kept := memstore.New()
	plant(t, kept, withColumns(".spec"+union, "..a..a..a..a", ".spec.n", "."+strings.Repeat("@", 1_000_000)))
	s := over(t, kept)
	const path = "/apis/example.com/v1/namespaces/default/chains"
	chain := strings.Repeat(`{"a":`, 100) + `1` + strings.Repeat("}", 100)
	s.must(t, "POST", path, "application/json", `{"apiVersion":"example.com/v1","kind":"Kchains","metadata":{"name":"c"},"spec":`+strings.Replace(chain, "{", `{"n":7,`, 1)+`}`)
	list := s.must(t, "GET", path, "", "", "Accept", asTable)
	if got, want := at(list["rows"].([]any)[0], "cells"), []any{"c", "<invalid>", "<invalid>", "7", "<invalid>"}; !reflect.DeepEqual(got, want) {
		t.Errorf("cells %v, want %v", got, want)
	}
	const stored = definitionPath + "/chains.example.com"
	s.must(t, "PATCH", stored, mergePatch, `{"spec":{"names":{"categories":["all"]}}}`)
	for _, tc := range []struct{ method, path, contentType, body, field, text string }{
		{"PATCH", stored, "application/json-patch+json", `[{"op":"replace","path":"/spec/versions/0/additionalPrinterColumns/2/jsonPath","value":"..b..b"}]`, "[2].jsonPath", `must have at most one ".."`},
		{"POST", definitionPath, "", jsonOf(t, withColumns(".spec.n", ".spec"+union)), "[1].jsonPath", "multiplied, are 100000000 and may be 100"},
		{"POST", definitionPath, "", jsonOf(t, withColumns("."+strings.Repeat("@", 1_000_000))), "[0].jsonPath", "must have at most 4096 bytes"},
		{"POST", definitionPath, "", jsonOf(t, withColumns(slices.Repeat([]string{".spec.n"}, maxColumns+1)...)), "", "must have at most 100 items"},
	} {
		a := s.send(t, tc.method, tc.path, tc.contentType, tc.body)
		if st := a.status(t); a.code != http.StatusUnprocessableEntity || !strings.Contains(st.Message, "spec.versions[0].additionalPrinterColumns"+tc.field+":") || !strings.Contains(st.Message, tc.text) {
			t.Errorf("%.200s: %d %.400s", tc.body, a.code, a.body)
		}
	}
}
