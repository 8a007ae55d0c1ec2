package crd

import (
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
)

// A body has the kind and the apiVersion of its path (docs/wire.md 4.1).
func TestKindOfABody(t *testing.T) {
	t.Parallel()
	s := running(t)
	s.install(t, widgets)
	made := s.must(t, "POST", widgetPath, "", widget("a", "{size: small}"))
	long := strings.Repeat("x", 4096)
	body := func(head string) string {
		return head + `"metadata":{"name":"a","resourceVersion":"` + at(made, "metadata", "resourceVersion").(string) + `"},"spec":{"size":"small","color":"` + long + `"}}`
	}
	const noKind, noVersion = `Object 'Kind' is missing in `, "the API version in the data () does not match the expected API version (example.com/v1)"
	for name, test := range map[string]struct {
		contentType, body string
		code              int // of a PUT, or of a patch
		message           string
		post              int // 0: not sent
		status            int // of /status
	}{
		"no kind":         {"", body(`{"apiVersion":"example.com/v1",`), 400, noKind, 400, 400},
		"kind null":       {"", body(`{"apiVersion":"example.com/v1","kind":null,`), 400, noKind, 400, 400},
		"no apiVersion":   {"", body(`{"kind":"Widget",`), 400, noVersion, 400, 400},
		"none":            {"", body(`{`), 400, noKind, 400, 400},
		"null":            {"application/json", `null`, 400, noKind, 400, 400},
		"another kind":    {"", body(`{"apiVersion":"example.com/v1","kind":"Gadget",`), 422, `Gadget.example.com "a" is invalid: kind: Invalid value: "Gadget": must be Widget`, 422, 200},
		"another version": {"", body(`{"apiVersion":"example.com/v1beta1","kind":"Widget",`), 400, "the API version in the data (example.com/v1beta1) does not match", 400, 400},
		"kind by patch":   {mergePatch, `{"kind":"Gadget"}`, 422, `Gadget.example.com "a" is invalid: kind: Invalid value: "Gadget": must be Widget`, 0, 200},
		"kind removed":    {jsonPatch, `[{"op":"remove","path":"/kind"}]`, 422, `Object 'Kind' is missing in `, 0, 422},
		"kind set null":   {mergePatch, `{"kind":null}`, 422, `Object 'Kind' is missing in `, 0, 422},
		"version by patch": {mergePatch, `{"apiVersion":"example.com/v9"}`, 422,
			`Widget.example.com "a" is invalid: apiVersion: Invalid value: "example.com/v9": must be example.com/v1`, 0, 200},
		"version removed":   {jsonPatch, `[{"op":"remove","path":"/apiVersion"}]`, 422, `apiVersion: Invalid value: "": must be example.com/v1`, 0, 200},
		"name by patch":     {mergePatch, `{"metadata":{"name":"other"}}`, 400, "the name of the object (other) does not match the name on the URL (a)", 0, 400},
		"name removed":      {mergePatch, `{"metadata":{"name":null}}`, 400, "the name of the object (a based on URL) was undeterminable: name must be provided", 0, 400},
		"another namespace": {mergePatch, `{"metadata":{"namespace":"other"}}`, 400, "the namespace of the provided object does not match", 0, 400},
	} {
		t.Run(name, func(t *testing.T) {
			method := "PATCH"
			if test.post != 0 {
				method = "PUT"
				if a := s.send(t, "POST", widgetPath, test.contentType, test.body); a.code != test.post || !strings.Contains(a.status(t).Message, test.message) {
					t.Errorf("POST got %d %s", a.code, a.body)
				}
			}
			a := s.send(t, method, widgetPath+"/a", test.contentType, test.body)
			if a.code != test.code || !strings.Contains(a.status(t).Message, test.message) || strings.Contains(string(a.body), long) {
				t.Errorf("%s got %d %s", method, a.code, a.body)
			}
			if a := s.send(t, method, widgetPath+"/a/status?dryRun=All", test.contentType, test.body); a.code != test.status {
				t.Errorf("%s of the status got %d %s", method, a.code, a.body)
			}
		})
	}
	if got := s.must(t, "GET", widgetPath+"/a", "", ""); at(got, "metadata", "resourceVersion") != at(made, "metadata", "resourceVersion") {
		t.Errorf("the object was changed: %v", got)
	}
}

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

// Requests that no client library makes get the answers of upstream's server (docs/wire.md 1.1).
func TestRequestsOfOddForms(t *testing.T) {
	t.Parallel()
	s := running(t)
	s.install(t, widgets)
	s.must(t, "POST", widgetPath, "", widget("a", "{size: small}"))
	for name, test := range map[string]struct {
		method, path, contentType, body string
		code                            int
		message                         string
	}{
		"PUT on the collection":         {"PUT", widgetPath, "", widget("a", "{size: small}"), 400, "name must be provided"},
		"PATCH on the collection":       {"PATCH", widgetPath, mergePatch, `{}`, 400, "name must be provided"},
		"an unknown patch on it":        {"PATCH", widgetPath, "application/strategic-merge-patch+json", `{}`, 415, "accepted media types include"},
		"POST on an object":             {"POST", widgetPath + "/a", "", widget("a", "{size: small}"), 409, `widgets.example.com "a" already exists`},
		"POST on another object":        {"POST", widgetPath + "/a", "", widget("b", "{size: small}"), 400, "the name of the object (b) does not match the name on the URL (a)"},
		"POST on a subresource":         {"POST", widgetPath + "/a/status", "", widget("a", "{}"), 405, `create is not supported on resources of kind "widgets.example.com"`},
		"DELETE of a subresource":       {"DELETE", widgetPath + "/a/scale", "", "", 405, `delete is not supported on resources of kind "widgets.example.com"`},
		"an unknown subresource":        {"GET", widgetPath + "/a/logs", "", "", 404, `widgets.example.com "a" not found`},
		"a write of it":                 {"PUT", widgetPath + "/a/logs", "", widget("a", "{}"), 404, `widgets.example.com "a" not found`},
		"a strategic patch of a scale":  {"PATCH", widgetPath + "/a/scale", "application/strategic-merge-patch+json", `{"spec":{"replicas":2}}`, 415, "accepted media types include"},
		"a scale with another name":     {"PATCH", widgetPath + "/a/scale", mergePatch, `{"metadata":{"name":"b"}}`, 400, "the name of the object (b) does not match"},
		"a watch of a bad revision":     {"GET", widgetPath + "?watch=1&resourceVersion=x", "", "", 500, `resourceVersion: Invalid value: "x": strconv.ParseUint`},
		"a list of a bad revision":      {"GET", widgetPath + "?resourceVersion=x", "", "", 400, `invalid resource version: resourceVersion: Invalid value: "x"`},
		"an object of a bad revision":   {"GET", widgetPath + "/a?resourceVersion=x", "", "", 500, `resourceVersion: Invalid value: "x"`},
		"a strategic patch of a status": {"PATCH", widgetPath + "/a/status", "application/strategic-merge-patch+json", `{}`, 415, "accepted media types include"},
	} {
		t.Run(name, func(t *testing.T) {
			if a := s.send(t, test.method, test.path, test.contentType, test.body); a.code != test.code || !strings.Contains(a.status(t).Message, test.message) {
				t.Errorf("got %d %s", a.code, a.body)
			}
		})
	}
	if a := s.send(t, "POST", widgetPath+"/b", "", widget("b", "{size: small}")); a.code != 201 {
		t.Errorf("POST on a new name got %d %s", a.code, a.body)
	}
	for method, body := range map[string]string{"DELETE": "", "POST": widget("c", "{size: small}")} {
		if a := s.send(t, method, "/apis/example.com/v1/widgets", "", body); a.code != 404 || string(a.body) != "404 page not found\n" {
			t.Errorf("%s without a namespace got %d %s", method, a.code, a.body)
		}
	}
}

// Discovery lists the status of a custom resource before its scale (docs/wire.md 2.1).
func TestOrderOfSubresources(t *testing.T) {
	t.Parallel()
	s := running(t)
	s.install(t, widgets)
	document := s.served.Load().documents["example.com"][0]
	var names []string
	for _, r := range document.Legacy {
		names = append(names, r.Name)
	}
	for _, sub := range document.Aggregated[0].Subresources {
		names = append(names, sub.Subresource)
	}
	if want := []string{"widgets", "widgets/status", "widgets/scale", "status", "scale"}; !slices.Equal(names, want) {
		t.Errorf("listed %v, want %v", names, want)
	}
}

// HEAD is a GET without the body (docs/wire.md 1.2).
func TestHead(t *testing.T) {
	t.Parallel()
	s := running(t)
	s.install(t, widgets)
	s.must(t, "POST", widgetPath, "", widget("a", "{size: small}"))
	server := httptest.NewServer(http.HandlerFunc(s.asAdmin))
	t.Cleanup(server.Close)
	for path, code := range map[string]int{
		"/a": 200, "": 200, "?limit=1": 200, "?resourceVersion=0": 200, "/b": 404, "?watch=1": 405,
	} {
		resp, err := server.Client().Head(server.URL + widgetPath + path)
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
		if got := resp.Header.Get("Content-Type"); resp.StatusCode != code || got != "application/json" {
			t.Errorf("HEAD %q got %s of type %q", path, resp.Status, got)
		}
	}
	if a := s.send(t, "GET", widgetPath+"/a", "", ""); a.code != 200 {
		t.Errorf("then GET got %d", a.code)
	}
}
