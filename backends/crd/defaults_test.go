package crd

import (
	"fmt"
	"runtime"
	"strings"
	"testing"

	"portico/internal/testing/await"

	"sigs.k8s.io/yaml"
)

// swellingPath has objects with a default in each item.
const swellingPath = "/apis/example.com/v1/namespaces/default/swellings"

func swellings(q string) string {
	return `
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: swellings.example.com}
spec:
  group: example.com
  scope: Namespaced
  names: {plural: swellings, kind: Swelling}
  versions:
  - name: v1
    served: true
    storage: true
    schema:
      openAPIV3Schema:
        type: object
        properties:
          n: {type: integer}
          p:
            type: array
            items:
              type: object
              properties:
                q: ` + q + `
`
}

func swelling(items int) string {
	return `{"apiVersion":"example.com/v1","kind":"Swelling","metadata":{"name":"a"},"p":[` + strings.Repeat("{},", items-1) + `{}]}`
}

// allocated returns how many megabytes a call allocates.
func allocated(do func()) uint64 {
	var start, end runtime.MemStats
	runtime.ReadMemStats(&start)
	do()
	runtime.ReadMemStats(&end)
	return (end.TotalAlloc - start.TotalAlloc) >> 20
}

// Defaults that would make a small body large are rejected before they are added.
func TestDefaultsAreBounded(t *testing.T) {
	text := `{type: string, default: "` + strings.Repeat("x", 20_000) + `"}`
	for name, q := range map[string]string{
		"a text":           text,
		"a text below":     `{type: object, default: {}, properties: {r: ` + text + `}}`,
		"lists in each":    `{type: array, default: [` + strings.Repeat("{},", 500) + `{}], items: {type: object, properties: {r: {type: string, default: abcdefgh}}}}`,
		"a text in a map":  `{type: object, default: {a: {}, b: {}}, additionalProperties: {type: object, properties: {r: ` + text + `}}}`,
		"a text in a list": `{type: array, default: [{}, {}], items: {type: object, properties: {r: ` + text + `}}}`,
		"a long name":      `{type: object, default: {}, properties: {? ` + strings.Repeat("x", 20_000) + ` : {type: integer, default: 1}}}`,
		"numbers":          `{type: object, default: {}, properties: {a: {type: integer, default: 1}, b: {type: integer, default: 1}}}`,
	} {
		t.Run(name, func(t *testing.T) {
			s := running(t)
			s.install(t, swellings(q))
			for _, sent := range []struct{ method, target, contentType, body string }{
				{"POST", swellingPath, "application/json", swelling(15_000)},
				{"POST", swellingPath, "application/yaml", swelling(15_000)},
				{"POST", swellingPath + "?dryRun=All&fieldValidation=Strict", "application/json", swelling(15_000)},
				{"PATCH", swellingPath + "/a?fieldManager=m", applyPatch, swelling(15_000)},
			} {
				var a answer
				if used := allocated(func() { a = s.send(t, sent.method, sent.target, sent.contentType, sent.body) }); used > 192 {
					t.Errorf("%s %s: %d MB were allocated", sent.method, sent.contentType, used)
				}
				if a.code != 413 || !strings.Contains(a.status(t).Message, "the defaults of the schema add more than 1048576 bytes to the object, with p[") {
					t.Errorf("%s %s: got %d %.300s", sent.method, sent.contentType, a.code, a.body)
				}
			}
			s.must(t, "POST", swellingPath, "application/json", swelling(3))
		})
	}
}

// A stored object that new defaults would make too large is served without them, and can be
// made smaller and deleted.
func TestDefaultsOfStoredAreBounded(t *testing.T) {
	s := running(t)
	s.install(t, swellings("{type: string}"))
	s.must(t, "POST", swellingPath, "application/json", swelling(60_000))
	crd := s.must(t, "GET", definitionPath+"/swellings.example.com", "", "")
	revision := at(crd, "metadata", "resourceVersion").(string)
	changed := strings.Replace(swellings(`{type: string, default: "`+strings.Repeat("x", 20_000)+`"}`), "swellings.example.com}", `swellings.example.com, resourceVersion: "`+revision+`"}`, 1)
	s.must(t, "PUT", definitionPath+"/swellings.example.com", "", changed)
	await.Until(t, "the schema is in use", func() bool {
		a := s.send(t, "POST", swellingPath+"?dryRun=All", "application/json", strings.Replace(swelling(1), `"a"`, `"b"`, 1))
		return strings.Contains(string(a.body), "xxxx")
	})
	for _, path := range []string{swellingPath + "/a", swellingPath} {
		var a answer
		if used := allocated(func() { a = s.send(t, "GET", path, "", "") }); used > 192 || a.code != 200 || len(a.body) > 1<<20 {
			t.Errorf("%s: %d, %d bytes, %d MB were allocated", path, a.code, len(a.body), used)
		}
	}
	if a := s.send(t, "PATCH", swellingPath+"/a", "application/merge-patch+json", `{"n":1}`); a.code != 413 && a.code != 422 {
		t.Errorf("a change got %d %.300s", a.code, a.body)
	}
	s.must(t, "PATCH", swellingPath+"/a", "application/merge-patch+json", `{"p":[{}]}`)
	if a := s.send(t, "DELETE", swellingPath+"/a", "", ""); a.code != 200 {
		t.Errorf("deletion got %d %.300s", a.code, a.body)
	}
}

// Defaults are not looked for in more objects, times the properties of their schema, than the bound allows: a body is
// rejected, and a stored object is served without them.
func TestPropertiesTimesObjectsAreBounded(t *testing.T) {
	t.Parallel()
	s := running(t)
	var properties strings.Builder
	for i := range 5000 {
		fmt.Fprintf(&properties, "p%d: {type: integer}, ", i)
	}
	s.install(t, swellings("{type: integer, default: 1}"))
	s.must(t, "POST", swellingPath, "application/json", swelling(1500))
	s.must(t, "PATCH", definitionPath+"/swellings.example.com", "application/json-patch+json",
		`[{"op":"add","path":"/spec/versions/0/schema/openAPIV3Schema/properties/p/items/properties","value":`+jsonOf(t, yamlOf(t, "{"+properties.String()+"q: {type: integer, default: 2}}"))+`}]`)
	await.Until(t, "the schema is in use", func() bool {
		a := s.send(t, "POST", swellingPath+"?dryRun=All", "application/json", strings.Replace(swelling(1), `"a"`, `"b"`, 1))
		return strings.Contains(string(a.body), `"q":2`)
	})
	a := s.send(t, "POST", swellingPath, "application/json", strings.Replace(swelling(1500), `"a"`, `"b"`, 1))
	if a.code != 413 || !strings.Contains(a.status(t).Message, "the properties that the schema has for each object are more than 5000000 in all objects together, with p[") {
		t.Errorf("%d %.300s", a.code, a.body)
	}
	if a := s.send(t, "GET", swellingPath+"/a", "", ""); a.code != 200 {
		t.Errorf("the stored object: %d %.300s", a.code, a.body)
	}
	s.must(t, "PATCH", swellingPath+"/a", "application/merge-patch+json", `{"p":[{}]}`)
}

func yamlOf(t *testing.T, text string) (out any) {
	t.Helper()
	if err := yaml.Unmarshal([]byte(text), &out); err != nil {
		t.Fatal(err)
	}
	return out
}
