package crd

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"reflect"
	"slices"
	"strings"
	"testing"

	"portico/internal/testing/await"
	"portico/internal/testing/memstore"
)

func TestCreateReadWrite(t *testing.T) {
	t.Parallel()
	s := running(t)
	s.install(t, widgets)
	made := s.must(t, "POST", widgetPath, "", widget("a", "{size: small, junk: 1}"))
	if at(made, "spec", "replicas") != 1.0 || at(made, "spec", "junk") != nil || at(made, "metadata", "generation") != 1.0 {
		t.Errorf("created as %v", made)
	}
	got := s.must(t, "GET", widgetPath+"/a", "", "")
	if !reflect.DeepEqual(made, got) {
		t.Errorf("read %v, created %v", got, made)
	}
	changed := s.must(t, "PATCH", widgetPath+"/a", "application/merge-patch+json", `{"spec":{"size":"large"},"status":{"phase":"x"}}`)
	if at(changed, "spec", "size") != "large" || at(changed, "status") != nil || at(changed, "metadata", "generation") != 2.0 {
		t.Errorf("patched to %v", changed)
	}
	stated := s.must(t, "PATCH", widgetPath+"/a/status", "application/merge-patch+json", `{"metadata":{"labels":{"a":"b"}},"spec":{"size":"small"},"status":{"phase":"x"}}`)
	if at(stated, "spec", "size") != "large" || at(stated, "status", "phase") != "x" || at(stated, "metadata", "labels") != nil || at(stated, "metadata", "generation") != 2.0 {
		t.Errorf("status patched to %v", stated)
	}
	jsonPatched := s.must(t, "PATCH", widgetPath+"/a", "application/json-patch+json", `[{"op":"add","path":"/spec/color","value":"red"}]`)
	if at(jsonPatched, "spec", "color") != "red" {
		t.Errorf("patched to %v", jsonPatched)
	}
	// A body without unknown fields gets defaults, too. A creationTimestamp of null counts as missing.
	made = s.must(t, "POST", widgetPath, "application/json",
		`{"apiVersion":"example.com/v1","kind":"Widget","metadata":{"name":"b","creationTimestamp":null},"spec":{"size":"small"}}`)
	if at(made, "spec", "replicas") != 1.0 || at(made, "metadata", "creationTimestamp") == nil {
		t.Errorf("created as %v", made)
	}
	if a := s.send(t, "PATCH", widgetPath+"/a", "application/strategic-merge-patch+json", `{}`); a.code != 415 {
		t.Errorf("a strategic merge patch got %d %s", a.code, a.body)
	}
	if a := s.send(t, "PUT", widgetPath+"/none", "", widget("none", "{size: small}")); a.code != 404 && a.code != 422 {
		t.Errorf("an update of nothing got %d %s", a.code, a.body)
	}
	if a := s.send(t, "DELETE", widgetPath+"/a", "", ""); a.code != 200 {
		t.Errorf("deletion got %d %s", a.code, a.body)
	}
	if a := s.send(t, "GET", widgetPath+"/a", "", ""); a.code != 404 {
		t.Errorf("after deletion %d %s", a.code, a.body)
	}
}

func TestInvalidRequestsAreRejected(t *testing.T) {
	t.Parallel()
	s := running(t)
	s.install(t, widgets)
	s.must(t, "POST", widgetPath, "", widget("a", "{size: small}"))
	for name, test := range map[string]struct {
		method, path, contentType, body string
		code                            int
		message                         string
	}{
		"missing field": {"POST", widgetPath, "", widget("b", "{}"), 422, `Widget.example.com "b" is invalid: [spec.size: Required value, <nil>: Invalid value: null: some validation rules were not checked because the object was invalid`},
		"enum":          {"POST", widgetPath, "", widget("b", "{size: odd}"), 422, `spec.size: Unsupported value: "odd": supported values: "small", "large", "huge"`},
		"rule":          {"POST", widgetPath, "", widget("b", "{size: huge, replicas: 2}"), 422, `spec: Invalid value: huge widgets stand alone`},
		"type":          {"POST", widgetPath, "", widget("b", "{size: 1}"), 422, `spec.size: Invalid value: "integer": spec.size in body must be of type string: "integer"`},
		"list map":      {"POST", widgetPath, "", widget("b", "{size: small, ports: [{port: 1}, {port: 1}]}"), 422, `spec.ports[1]: Duplicate value: {"port":1}`},
		"strict":        {"POST", widgetPath + "?fieldValidation=Strict", "", widget("b", "{size: small, junk: 1}"), 400, `strict decoding error: unknown field "spec.junk"`},
		"kind":          {"POST", widgetPath, "", "{apiVersion: example.com/v1, kind: Gadget, metadata: {name: b}}", 422, `Gadget.example.com "b" is invalid: kind: Invalid value: "Gadget": must be Widget`},
		"version":       {"POST", widgetPath, "", "{apiVersion: example.com/v2, kind: Widget, metadata: {name: b}}", 400, "the API version in the data (example.com/v2) does not match the expected API version (example.com/v1)"},
		"metadata":      {"POST", widgetPath, "", "{apiVersion: example.com/v1, kind: Widget, metadata: {name: b, labels: 1}}", 400, "labels"},
		"no revision":   {"PUT", widgetPath + "/a", "", widget("a", "{size: small}"), 422, "metadata.resourceVersion: Invalid value: 0: must be specified for an update"},
		"namespace":     {"POST", "/apis/example.com/v1/namespaces/nowhere/widgets", "", widget("b", "{size: small}"), 404, `namespaces "nowhere" not found`},
		"going":         {"POST", "/apis/example.com/v1/namespaces/going/widgets", "", widget("b", "{size: small}"), 403, "unable to create new content in namespace going because it is being terminated"},
		"other version": {"GET", "/apis/example.com/v3/namespaces/default/widgets", "", "", 404, ""},
		"cluster path":  {"GET", "/apis/example.com/v1/widgets/a", "", "", 404, ""},
		"create in all": {"POST", "/apis/example.com/v1/widgets", "", widget("b", "{size: small}"), 404, ""},
		"delete in all": {"DELETE", "/apis/example.com/v1/widgets", "", "", 404, ""},
		"field":         {"GET", widgetPath + "?fieldSelector=spec.color%3Dred", "", "", 400, "field label not supported: spec.color"},
	} {
		t.Run(name, func(t *testing.T) {
			a := s.send(t, test.method, test.path, test.contentType, test.body)
			if a.code != test.code || test.message != "" && !strings.Contains(a.status(t).Message, test.message) {
				t.Errorf("got %d %s", a.code, a.body)
			}
		})
	}
}

func TestObjectsAreServedInEveryVersion(t *testing.T) {
	t.Parallel()
	s := running(t)
	s.install(t, widgets)
	s.must(t, "POST", widgetPath, "", widget("a", "{size: small, color: red}"))
	old := "/apis/example.com/v1beta1/namespaces/default/widgets"
	a := s.send(t, "GET", old+"/a", "", "")
	if got := a.object(t); got["apiVersion"] != "example.com/v1beta1" || at(got, "spec", "color") != nil || at(got, "spec", "replicas") != 1.0 {
		t.Errorf("read as v1beta1: %s", a.body)
	}
	// A write through a version drops the fields that only other versions have.
	made := s.must(t, "POST", old, "", "{apiVersion: example.com/v1beta1, kind: Widget, metadata: {name: b}, spec: {size: odd}}")
	if made["apiVersion"] != "example.com/v1beta1" || at(made, "spec", "replicas") != 2.0 {
		t.Errorf("made through v1beta1: %v", made)
	}
	got := s.must(t, "GET", widgetPath+"/b", "", "")
	if got["apiVersion"] != "example.com/v1" || at(got, "spec", "size") != "odd" {
		t.Errorf("read as v1: %v", got)
	}
	list := s.must(t, "GET", old, "", "")
	if list["apiVersion"] != "example.com/v1beta1" || list["kind"] != "WidgetList" || len(list["items"].([]any)) != 2 {
		t.Errorf("listed as v1beta1: %v", list)
	}
}

// A new default shows on reading, without a write.
func TestDefaultsOnReading(t *testing.T) {
	t.Parallel()
	s := running(t)
	def := s.install(t, widgets)
	before := s.must(t, "POST", widgetPath, "", widget("a", "{size: small, color: red}"))
	s.must(t, "PATCH", "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/"+at(def, "metadata", "name").(string), "application/json-patch+json",
		`[{"op":"add","path":"/spec/versions/0/schema/openAPIV3Schema/properties/spec/properties/shape","value":{"type":"string","default":"round"}},
		  {"op":"remove","path":"/spec/versions/0/schema/openAPIV3Schema/properties/spec/properties/color"}]`)
	await.Until(t, "the new default is read", func() bool {
		return at(s.must(t, "GET", widgetPath+"/a", "", ""), "spec", "shape") == "round"
	})
	got := s.must(t, "GET", widgetPath+"/a", "", "")
	if at(got, "spec", "color") != nil || at(got, "metadata", "resourceVersion") != at(before, "metadata", "resourceVersion") {
		t.Errorf("read %v", got)
	}
	list := s.must(t, "GET", widgetPath, "", "")
	if at(list["items"].([]any)[0], "spec", "shape") != "round" {
		t.Errorf("listed %v", list)
	}
}

func TestSelectableFields(t *testing.T) {
	t.Parallel()
	s := running(t)
	s.install(t, widgets)
	for i, size := range []string{"small", "large", "small"} {
		s.must(t, "POST", widgetPath, "", widget(fmt.Sprintf("w%d", i), "{size: "+size+"}"))
	}
	list := s.must(t, "GET", widgetPath+"?fieldSelector=spec.size%3Dsmall", "", "")
	if n := len(list["items"].([]any)); n != 2 {
		t.Errorf("%d small widgets", n)
	}
}

func TestColumnsOfADefinition(t *testing.T) {
	t.Parallel()
	s := running(t)
	s.install(t, widgets)
	s.must(t, "POST", widgetPath, "", widget("a", "{size: small, replicas: 3}"))
	table := s.must(t, "GET", widgetPath, "", "", "Accept", "application/json;as=Table;v=v1;g=meta.k8s.io")
	var names []string
	for _, c := range table["columnDefinitions"].([]any) {
		names = append(names, at(c, "name").(string))
	}
	cells := at(table["rows"].([]any)[0], "cells")
	if !slices.Equal(names, []string{"Name", "Size", "Replicas"}) || !reflect.DeepEqual(cells, []any{"a", "small", 3.0}) {
		t.Errorf("columns %v, cells %v", names, cells)
	}
	old := s.must(t, "GET", "/apis/example.com/v1beta1/namespaces/default/widgets", "", "", "Accept", "application/json;as=Table;v=v1;g=meta.k8s.io")
	if got := at(old["columnDefinitions"].([]any)[1], "name"); got != "Age" {
		t.Errorf("without columns of its own: %v", got)
	}
}

func TestScaleSubresource(t *testing.T) {
	t.Parallel()
	s := running(t)
	s.install(t, widgets)
	s.must(t, "POST", widgetPath, "", widget("a", "{size: small, replicas: 3}"))
	scale := s.must(t, "GET", widgetPath+"/a/scale", "", "")
	if scale["kind"] != "Scale" || scale["apiVersion"] != "autoscaling/v1" || at(scale, "spec", "replicas") != 3.0 {
		t.Errorf("scale is %v", scale)
	}
	s.must(t, "PATCH", widgetPath+"/a/scale", "application/merge-patch+json", `{"spec":{"replicas":5}}`)
	got := s.must(t, "GET", widgetPath+"/a", "", "")
	if at(got, "spec", "replicas") != 5.0 || at(got, "metadata", "generation") != 2.0 {
		t.Errorf("scaled to %v", got)
	}
	if a := s.send(t, "PATCH", widgetPath+"/a/scale", "application/merge-patch+json", `{"spec":{"replicas":-1}}`); a.code != 422 {
		t.Errorf("a negative number got %d %s", a.code, a.body)
	}
}

func TestServerSideApply(t *testing.T) {
	t.Parallel()
	s := running(t)
	s.install(t, widgets)
	const patch = "application/apply-patch+yaml"
	first := s.send(t, "PATCH", widgetPath+"/a?fieldManager=one", patch, widget("a", "{size: small, ports: [{port: 80, name: http}]}"))
	if first.code != 201 {
		t.Fatalf("%d %s", first.code, first.body)
	}
	s.must(t, "PATCH", widgetPath+"/a?fieldManager=two", patch, "{apiVersion: example.com/v1, kind: Widget, spec: {size: small, ports: [{port: 443, name: https}]}}")
	got := s.must(t, "GET", widgetPath+"/a", "", "")
	if ports, _ := at(got, "spec", "ports").([]any); len(ports) != 2 {
		t.Errorf("a list map was not merged: %v", got)
	}
	conflict := s.send(t, "PATCH", widgetPath+"/a?fieldManager=two", patch, "{apiVersion: example.com/v1, kind: Widget, spec: {size: large}}")
	if conflict.code != 409 || len(conflict.status(t).Details.Causes) != 1 || conflict.status(t).Details.Causes[0].Field != ".spec.size" {
		t.Errorf("%d %s", conflict.code, conflict.body)
	}
	s.must(t, "PATCH", widgetPath+"/a?fieldManager=two&force=true", patch, "{apiVersion: example.com/v1, kind: Widget, spec: {size: large}}")
	s.must(t, "PATCH", widgetPath+"/a/status?fieldManager=ctl", patch, "{apiVersion: example.com/v1, kind: Widget, status: {phase: Ready}}")
	got = s.must(t, "GET", widgetPath+"/a", "", "")
	if ports, _ := at(got, "spec", "ports").([]any); len(ports) != 1 || at(got, "spec", "size") != "large" || at(got, "status", "phase") != "Ready" {
		t.Errorf("after all %v", got)
	}
}

// An object that is prevalidated is still validated by CEL rules, including transition rules.
func TestCELRulesOfPrevalidatedObjects(t *testing.T) {
	t.Parallel()
	s := running(t)
	s.install(t, strings.Replace(widgets, "              color: {type: string}\n",
		"              color: {type: string, x-kubernetes-validations: [{rule: \"self == oldSelf\", message: \"colours stay\"}]}\n", 1))
	full := "{size: small, replicas: 2, color: red}"
	s.must(t, "POST", widgetPath, "", widget("a", full))
	for name, test := range map[string]struct{ path, patch, message string }{
		"rule":       {widgetPath + "/a", `{"spec":{"size":"huge"}}`, "huge widgets stand alone"},
		"transition": {widgetPath + "/a", `{"spec":{"color":"blue"}}`, "colours stay"},
		"schema":     {widgetPath + "/a", `{"spec":{"size":"odd"}}`, `Unsupported value: "odd"`},
		"scale":      {widgetPath + "/a/status", `{"status":{"replicas":-1}}`, "should be a non-negative integer"},
	} {
		a := s.send(t, "PATCH", test.path, "application/merge-patch+json", test.patch)
		if a.code != 422 || !strings.Contains(a.status(t).Message, test.message) {
			t.Errorf("%s: %d %s", name, a.code, a.body)
		}
	}
	s.must(t, "PATCH", widgetPath+"/a", "application/merge-patch+json", `{"spec":{"size":"large"}}`)
	s.must(t, "PATCH", widgetPath+"/a/status", "application/merge-patch+json", `{"status":{"replicas":1}}`)
}

// A watch ends when its definition is no longer served.
func TestWatchEndsWithDefinition(t *testing.T) {
	t.Parallel()
	s := running(t)
	s.install(t, widgets)
	s.must(t, "POST", widgetPath, "", widget("a", "{size: small}"))
	server := httptest.NewServer(http.HandlerFunc(s.asAdmin))
	defer server.Close()
	res, err := http.Get(server.URL + widgetPath + "?watch=true&resourceVersion=0")
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	events := json.NewDecoder(res.Body)
	var event struct{ Type string }
	if err := events.Decode(&event); err != nil || event.Type != "ADDED" {
		t.Fatalf("the first event is %q, %v", event.Type, err)
	}
	s.must(t, "DELETE", definitionPath+"/widgets.example.com", "", "")
	for err == nil {
		err = events.Decode(&event)
	}
	if !errors.Is(err, io.EOF) {
		t.Errorf("the watch ended with %v", err)
	}
}

// A number is validated as it was sent, not as it is stored.
func TestNumbersAreValidatedAsSent(t *testing.T) {
	t.Parallel()
	s := running(t)
	s.install(t, definitionWith(`{"type":"object","properties":{"spec":{"type":"object","properties":{
		"whole":{"type":"integer"},"least":{"type":"number","minimum":0.5},"tens":{"type":"number","multipleOf":10}}}}}`))
	for i, c := range []struct {
		spec string
		code int
	}{
		{`"whole":1.0`, 201}, {`"whole":1e3`, 201}, {`"whole":100000000000000000`, 201}, {`"whole":1e17`, 422},
		{`"least":0`, 201}, {`"least":0.0`, 422}, {`"least":1.0`, 201},
		{`"tens":20.0`, 201}, {`"tens":100000000000000000`, 201}, {`"tens":1e17`, 422}, {`"tens":5.0`, 422},
	} {
		body := fmt.Sprintf(`{"apiVersion":"example.com/v1","kind":"X","metadata":{"name":"a-%d"},"spec":{%s}}`, i, c.spec)
		if a := s.send(t, "POST", "/apis/example.com/v1/namespaces/default/xs", "application/json", body); a.code != c.code {
			t.Errorf("%s got %d %s", c.spec, a.code, a.body)
		}
	}
}

// An apply patch may have the fields of every object in embedded resources, at any depth, which
// their schemas do not name. A field of them that no object has is refused.
func TestApplyOfEmbeddedResources(t *testing.T) {
	t.Parallel()
	s := over(t, memstore.New())
	s.install(t, `
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: bundles.example.com}
spec:
  group: example.com
  scope: Namespaced
  names: {plural: bundles, kind: Bundle}
  versions:
  - name: v1
    served: true
    storage: true
    schema:
      openAPIV3Schema:
        type: object
        properties:
          template: {type: object, x-kubernetes-embedded-resource: true, properties: {spec: {type: object}}}
          list: {type: array, items: {type: object, x-kubernetes-embedded-resource: true, properties: {spec: {type: object}}}}
          byName: {type: object, additionalProperties: {type: object, x-kubernetes-embedded-resource: true, properties: {spec: {type: object}}}}
`)
	const path = "/apis/example.com/v1/namespaces/default/bundles/b?fieldManager=m"
	body := func(field, metadata string) string {
		object := "{apiVersion: v1, kind: ConfigMap, metadata: " + metadata + "}"
		value := map[string]string{"template": object, "list": "[" + object + "]", "byName": "{x: " + object + "}"}[field]
		return "{apiVersion: example.com/v1, kind: Bundle, metadata: {name: b}, " + field + ": " + value + "}"
	}
	for _, field := range []string{"template", "list", "byName"} {
		s.must(t, "PATCH", path, "application/apply-patch+yaml", body(field, "{name: a, labels: {app: bundle}}"))
		if a := s.send(t, "PATCH", path, "application/apply-patch+yaml", body(field, "{name: a, other: bundle}")); a.code < 400 {
			t.Errorf("%s with an unknown field: %d %s", field, a.code, a.body)
		}
	}
}
