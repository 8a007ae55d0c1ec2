package rest

import (
	"fmt"
	"runtime"
	"slices"
	"strings"
	"testing"
)

// deriveError derives from a document with a resource and more members, and returns the error.
func deriveError(more string) error {
	_, err := Derive(Config{Group: "g", Version: "v"}, []byte(`{"openapi":"3.0.0","paths":{"/pets":{"get":{}}}`+more+`}`))
	return err
}

// The error says what is wrong with a document.
func TestBadDocuments(t *testing.T) {
	for text, want := range map[string]string{
		``:                    "decode",
		`null`:                "not OpenAPI 3",
		`[]`:                  "not OpenAPI 3",
		`<html>`:              "must be JSON",
		`openapi: 3.0.0`:      "must be JSON; YAML is not read",
		`{"openapi":`:         "decode",
		`{"openapi":3}`:       "not OpenAPI 3",
		`{"swagger":"2.0"}`:   "OpenAPI 2",
		`{"openapi":"2.0"}`:   "not OpenAPI 3",
		`{"openapi":"3.0.0"}`: "it has no paths",
		`{"openapi":"3.1.0","paths":{"/":{"get":{}}}}`:                                 "names no resource",
		`{"openapi":"3.0.0","paths":[]}`:                                               "it has no paths",
		`{"openapi":"3.0.0","paths":{"pets":{"get":{}}}}`:                              "not below",
		`{"openapi":"3.0.0","paths":{"/` + strings.Repeat("x", 999) + `":{"get":{}}}}`: "…",
	} {
		_, err := Derive(Config{Group: "g", Version: "v"}, []byte(text))
		if err == nil || !strings.Contains(err.Error(), want) || len(err.Error()) > 500 {
			t.Errorf("%.60s: %.600v, want %q", text, err, want)
		}
	}
}

// A document is bounded in size, depth and number of values.
func TestBounds(t *testing.T) {
	nested := func(depth int) string {
		return `,"x":` + strings.Repeat(`[`, depth-1) + strings.Repeat(`]`, depth-1)
	}
	for name, tc := range map[string]struct{ fits, not, want string }{
		"size":   {`,"x":"` + strings.Repeat("x", MaxDocument-100) + `"`, `,"x":"` + strings.Repeat("x", MaxDocument) + `"`, "larger than"},
		"depth":  {nested(maxDepth), nested(maxDepth + 1), "nested more than"},
		"values": {`,"x":[0` + strings.Repeat(",0", maxValues-100) + `]`, `,"x":[0` + strings.Repeat(",0", maxValues) + `]`, "values"},
	} {
		if err := deriveError(tc.fits); err != nil {
			t.Errorf("%s within the bound: %v", name, err)
		}
		if err := deriveError(tc.not); err == nil || !strings.Contains(err.Error(), tc.want) {
			t.Errorf("%s above the bound: %v", name, err)
		}
	}
}

// Resources beyond MaxResources, and reasons beyond maxLeftOut, are counted.
func TestTooManyResources(t *testing.T) {
	var paths []string
	for i := range MaxResources + maxLeftOut + 7 {
		paths = append(paths, fmt.Sprintf(`"/r%05d":{"get":{}}`, i))
	}
	api := derive(t, Config{}, `{"openapi":"3.0.0","paths":{`+strings.Join(paths, ",")+`}}`)
	if n := len(api.Resources.Legacy); n != MaxResources {
		t.Errorf("%d resources", n)
	}
	if len(api.LeftOut) != maxLeftOut || api.Omitted != 7 || !strings.Contains(api.LeftOut[0].Reason, "more than") {
		t.Errorf("%d left out and %d more: %v", len(api.LeftOut), api.Omitted, api.LeftOut[0])
	}
	if s := api.Summary(); !strings.Contains(s, "no resource: 57, ") {
		t.Errorf("summary %q", s)
	}
}

// An API has no document if it is too large to publish.
func TestTooLargeToPublish(t *testing.T) {
	text := `{"openapi":"3.0.0","paths":{"/pets":{"get":{"description":"` + strings.Repeat("x", MaxPublished) + `"}}}}`
	api := derive(t, Config{}, text)
	if api.Document != nil || len(api.Resources.Legacy) != 1 || len(api.LeftOut) != 1 || !strings.Contains(api.LeftOut[0].Reason, "larger than") {
		t.Errorf("%d bytes published, %v", len(api.Document), api.LeftOut)
	}
}

// References that lead in a circle, to themselves or to nothing end.
func TestCircles(t *testing.T) {
	api := derive(t, Config{}, `{"openapi":"3.0.0",
	 "paths":{
	  "/as":{"get":{"responses":{"200":{"$ref":"#/components/responses/A"}}},"post":{"requestBody":{"$ref":"#/components/requestBodies/A"}}},
	  "/bs":{"get":{"responses":{"200":{"description":"","content":{"application/json":{"schema":{"$ref":"#/components/schemas/A"}}}}}}},
	  "/cs/{id}":{"get":{"responses":{"200":{"description":"","content":{"application/json":{"schema":{"$ref":"#/components/schemas/C"}}}}}}},
	  "/ds/{id}":{"get":{"responses":{"200":{"description":"","content":{"application/json":{"schema":{"$ref":"#/components/schemas/Gone"}}}}}}}},
	 "components":{
	  "responses":{"A":{"$ref":"#/components/responses/B"},"B":{"$ref":"#/components/responses/A"}},
	  "requestBodies":{"A":{"$ref":"#/components/requestBodies/A"}},
	  "schemas":{"A":{"$ref":"#/components/schemas/B"},"B":{"$ref":"#/components/schemas/A"},"C":{"$ref":"#/components/schemas/C"}}}}`)
	want := `[as A "a" create,list bs B "b" list cs C "c" get ds D "d" get]`
	if got := fmt.Sprint(listing(api)); got != want {
		t.Errorf("got %s", got)
	}
	readable(t, api.Document)
}

// A document within the bounds takes at most 256 MiB.
func TestCost(t *testing.T) {
	text := []byte(`{"openapi":"3.0.0","paths":{"/pets":{"get":{}}},"components":{"schemas":{"A":{"oneOf":[{}` + strings.Repeat(",{}", (maxValues-100)/2) + `]}}}}`)
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	if _, err := Derive(Config{Group: "g", Version: "v"}, text); err != nil {
		t.Fatal(err)
	}
	runtime.ReadMemStats(&after)
	if used := after.TotalAlloc - before.TotalAlloc; used > 256<<20 {
		t.Errorf("%d MiB were allocated", used>>20)
	}
}

// Every API has valid and unique names, and a document that clients can read.
func FuzzDerive(f *testing.F) {
	f.Add([]byte(shop), "")
	f.Add([]byte(`{"openapi":"3.0.0","paths":{"/pets/{id}/toys/":{"get":{"responses":{"200":null}}}}}`), "/")
	f.Add([]byte(`{"openapi":"3.0.0","paths":{"/a":{"post":{"requestBody":{"content":{"application/json":null}}}}},"components":{"schemas":{"A":{"items":true,"allOf":[null,{"type":["null"]}]}}}}`), "/a")
	f.Fuzz(func(t *testing.T, data []byte, prefix string) {
		api, err := Derive(Config{Group: "g", Version: "v", PathPrefix: prefix}, data)
		if err != nil {
			return
		}
		if n := len(api.Resources.Legacy); n == 0 || n > MaxResources {
			t.Errorf("%d resources", n)
		}
		kinds, singulars := map[string]string{}, map[string]string{}
		for _, r := range api.Resources.Legacy {
			name, _, isSub := strings.Cut(r.Name, "/")
			if (segment{text: name}).named("resource") != nil || r.Kind == "" || len(r.Verbs) == 0 || r.Namespaced {
				t.Errorf("resource %+v", r)
			}
			if isSub {
				continue
			}
			if kinds[r.Kind] != "" || r.SingularName != "" && singulars[r.SingularName] != "" {
				t.Errorf("%s and another are %s or %s", r.Name, r.Kind, r.SingularName)
			}
			kinds[r.Kind], singulars[r.SingularName] = r.Name, r.Name
			if slices.Contains(r.Verbs, "watch") {
				t.Errorf("%s has the verb watch", r.Name)
			}
		}
		if api.Document != nil {
			readable(t, api.Document)
		}
		if !plainPath(api.PathPrefix) {
			t.Errorf("prefix %q", api.PathPrefix)
		}
	})
}
