package crd

import (
	"strings"
	"testing"
)

// A default of one version is in what is stored in that version, and in bodies that are sent in it
// (docs/wire.md 9.4).
func TestDefaultsOfVersions(t *testing.T) {
	t.Parallel()
	s := running(t)
	s.install(t, strings.Replace(widgets, "replicas: {type: integer, default: 2}}}\n",
		"replicas: {type: integer, default: 2}, shade: {type: string, default: dark}}}\n          status: {type: object, properties: {phase: {type: string}}}\n    subresources: {status: {}}\n", 1))
	const old = "/apis/example.com/v1beta1/namespaces/default/widgets"
	s.must(t, "POST", widgetPath, "", widget("a", "{size: small}"))
	for _, request := range [][4]string{
		{"GET", old + "/a"},
		{"PATCH", old + "/a/status", mergePatch, `{"status":{"phase":"x"}}`},
		{"GET", old + "/a"},
		{"PATCH", old + "/a", mergePatch, `{"metadata":{"labels":{"a":"b"}}}`}, // v1 cannot store it
		{"PATCH", old + "/a?fieldManager=m", "application/apply-patch+yaml", "{apiVersion: example.com/v1beta1, kind: Widget, metadata: {name: a}}"},
	} {
		got := s.must(t, request[0], request[1], request[2], request[3])
		if at(got, "apiVersion") != "example.com/v1beta1" || at(got, "spec", "shade") != nil || at(got, "spec", "replicas") != 1.0 {
			t.Errorf("%s %s: %v", request[0], request[1], got)
		}
	}
	list := s.must(t, "GET", old, "", "")
	if at(list["items"].([]any)[0], "spec", "shade") != nil {
		t.Errorf("listed %v", list)
	}
	// The body of a request has the defaults of its own version.
	made := s.must(t, "POST", old, "", "{apiVersion: example.com/v1beta1, kind: Widget, metadata: {name: b}, spec: {size: small}}")
	if at(made, "spec", "replicas") != 2.0 || at(made, "spec", "shade") != nil {
		t.Errorf("made %v", made)
	}
}

// An apply patch cannot set a field to null that does not allow it; a default replaces the null.
func TestApplyOfNull(t *testing.T) {
	t.Parallel()
	s := running(t)
	s.install(t, strings.Replace(widgets, "              color: {type: string}\n",
		"              color: {type: string}\n              shape: {type: string, nullable: true}\n              box: {type: object, properties: {a: {type: string}}}\n", 1))
	const applyAsM = "?fieldManager=m&force=true"
	apply := func(path, spec string) answer {
		return s.send(t, "PATCH", path+applyAsM, applyPatch, "{apiVersion: example.com/v1, kind: Widget, spec: "+spec+"}")
	}
	s.must(t, "POST", widgetPath, "", widget("a", "{size: small, color: red, shape: round}"))
	for spec, message := range map[string]string{
		"{color: null}":    `spec.color: Invalid value: "null": spec.color in body must be of type string: "null"`,
		"{box: null}":      `spec.box: Invalid value: "null": spec.box in body must be of type object: "null"`,
		"{box: {a: null}}": `spec.box.a: Invalid value: "null": spec.box.a in body must be of type string: "null"`,
	} {
		if a := apply(widgetPath+"/a", spec); a.code != 422 || !strings.Contains(a.status(t).Message, message) {
			t.Errorf("%s got %d %s", spec, a.code, a.body)
		}
	}
	new := s.send(t, "PATCH", widgetPath+"/new"+applyAsM, applyPatch, widget("new", "{size: small, color: null}"))
	if new.code != 422 {
		t.Errorf("a new object got %d %s", new.code, new.body)
	}
	a := apply(widgetPath+"/a", "{shape: null, replicas: null}").object(t)
	if value, found := at(a, "spec").(map[string]any)["shape"]; value != nil || !found || at(a, "spec", "replicas") != 1.0 {
		t.Errorf("applied %v", a)
	}
	// Malformed metadata is not stored.
	labelled := s.must(t, "PATCH", widgetPath+"/a"+applyAsM, applyPatch, "{apiVersion: example.com/v1, kind: Widget, metadata: {creationTimestamp: null, labels: {a: null}}}")
	if at(labelled, "metadata", "labels", "a") != "" || at(labelled, "metadata", "creationTimestamp") == nil {
		t.Errorf("labelled %v", labelled)
	}
}
