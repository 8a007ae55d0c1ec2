package handlers

import (
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
)

// Requests that are rejected before or by decoding (docs/wire.md 4, 6).
func TestWritesRejected(t *testing.T) {
	b := newOwnBench(t)
	b.create(bare("a"))
	const (
		all     = inDefault + "configmaps"
		unknown = `, "nope":1, "immutable":true, "immutable":true}`
		named   = `{"metadata":{"name":"a"}`
		manager = "&fieldManager=m"
	)
	for name, test := range map[string]struct {
		method, path, contentType, body string
		code                            int
		reason                          metav1.StatusReason
		message                         string // the beginning
	}{
		// No body, or that of another object.
		"POST nothing":     {"POST", all, "", "", 400, metav1.StatusReasonBadRequest, "the object provided is unrecognized (must be of type ConfigMap): "},
		"PUT nothing":      {"PUT", configMapA, "", "", 400, metav1.StatusReasonBadRequest, "the object provided is unrecognized (must be of type ConfigMap): "},
		"PATCH nothing":    {"PATCH", configMapA, mergePatch, "", 400, metav1.StatusReasonBadRequest, "invalid JSON patch"},
		"POST a list":      {"POST", all, "", `{"kind":"ConfigMapList","apiVersion":"v1","items":[]}`, 400, metav1.StatusReasonBadRequest, `ConfigMapList in version "v1" cannot be handled as a ConfigMap`},
		"POST a kind":      {"POST", all, "", `{"kind":"Secret","apiVersion":"v1"}`, 400, metav1.StatusReasonBadRequest, `Secret in version "v1" cannot be handled as a ConfigMap`},
		"PUT a kind":       {"PUT", configMapA, "", `{"kind":"Secret","apiVersion":"v1"}`, 400, metav1.StatusReasonBadRequest, `Secret in version "v1" cannot be handled as a ConfigMap`},
		"POST a version":   {"POST", "/apis/example.com/v1/namespaces/default/widgets", "", `{"kind":"Widget","apiVersion":"example.com/v1beta1"}`, 400, metav1.StatusReasonBadRequest, "the API version in the data (example.com/v1beta1) does not match the expected API version (example.com/v1)"},
		"PUT another name": {"PUT", configMapA, "", `{"metadata":{"name":"b"}}`, 400, metav1.StatusReasonBadRequest, "the name of the object (b) does not match the name on the URL (a)"},
		"PUT no name":      {"PUT", configMapA, "", `{}`, 400, metav1.StatusReasonBadRequest, "the name of the object (a based on URL) was undeterminable: name must be provided"},
		"PUT a namespace":  {"PUT", configMapA, "", `{"metadata":{"name":"a","namespace":"x"}}`, 400, metav1.StatusReasonBadRequest, "the namespace of the provided object does not match the namespace sent on the request"},
		"PATCH a name":     {"PATCH", configMapA, mergePatch, `{"metadata":{"name":"b"}}`, 422, metav1.StatusReasonInvalid, `ConfigMap "b" is invalid: metadata.name: Invalid value: "b": field is immutable`},
		"PATCH a space":    {"PATCH", configMapA, mergePatch, `{"metadata":{"namespace":"x"}}`, 422, metav1.StatusReasonInvalid, `ConfigMap "a" is invalid: metadata.namespace: Invalid value: "x": field is immutable`},

		// Methods that a path does not have.
		"POST a named path":      {"POST", configMapA, "", `{}`, 405, metav1.StatusReasonMethodNotAllowed, `create is not supported on resources of kind "configmaps"`},
		"PUT a collection":       {"PUT", all, "", `{}`, 405, metav1.StatusReasonMethodNotAllowed, ""},
		"PATCH a collection":     {"PATCH", all, mergePatch, `{}`, 405, metav1.StatusReasonMethodNotAllowed, ""},
		"POST in all namespaces": {"POST", "/api/v1/configmaps", "", `{}`, 405, metav1.StatusReasonMethodNotAllowed, ""},
		"unknown subresource":    {"PUT", configMapA + "/nope", "", `{}`, 404, "", ""},
		"DELETE a status":        {"DELETE", serviceS + "/status", "", "", 405, metav1.StatusReasonMethodNotAllowed, `delete is not supported on resources of kind "services/status"`},
		"POST a status":          {"POST", serviceS + "/status", "", `{}`, 405, metav1.StatusReasonMethodNotAllowed, ""},

		// Field validation.
		"POST strict": {"POST", all + "?fieldValidation=Strict", "", named + unknown, 400, metav1.StatusReasonBadRequest,
			`ConfigMap in version "v1" cannot be handled as a ConfigMap: strict decoding error: unknown field "nope", duplicate field "immutable"`},
		"PUT strict": {"PUT", configMapA + "?fieldValidation=Strict", "", named + unknown, 400, metav1.StatusReasonBadRequest,
			`ConfigMap in version "v1" cannot be handled as a ConfigMap: strict decoding error: unknown field "nope", duplicate field "immutable"`},
		"POST strict YAML": {"POST", all + "?fieldValidation=Strict", runtime.ContentTypeYAML, "metadata: {name: x}\nnope: 1\ndata: {a: b, a: c}\n", 400, metav1.StatusReasonBadRequest,
			"ConfigMap in version \"v1\" cannot be handled as a ConfigMap: strict decoding error: yaml: unmarshal errors:\n  line 3: key \"a\" already set in map, unknown field \"nope\""},
		"JSON patch strict": {"PATCH", configMapA + "?fieldValidation=Strict", jsonPatch, `[{"op":"add","path":"/nope","value":1,"foo":1}]`, 422, metav1.StatusReasonInvalid,
			` "" is invalid: patch: Invalid value: "{`},
		"strategic patch strict": {"PATCH", configMapA + "?fieldValidation=Strict", strategicPatch, `{"nope":1}`, 422, metav1.StatusReasonInvalid,
			` "" is invalid: patch: Invalid value: "map[nope:1]": strict decoding error: unknown field "nope"`},
		"strategic patch, wrong": {"PATCH", configMapA, strategicPatch, `{"data":{"k":1}}`, 422, metav1.StatusReasonInvalid,
			` "" is invalid: patch: Invalid value: "map[data:map[k:1]]": `},
		"apply strict": {"PATCH", configMapA + "?fieldValidation=Strict" + manager, applyPatch, "apiVersion: v1\nkind: ConfigMap\ndata: {a: b, a: c}\n", 400, metav1.StatusReasonBadRequest,
			"error strict decoding patch: "},
		"a validation": {"PATCH", configMapA + "?fieldValidation=x", mergePatch, `{}`, 422, metav1.StatusReasonInvalid, `PatchOptions.meta.k8s.io "" is invalid: fieldValidation: Unsupported value: "x": supported values: "", "Ignore", "Strict", "Warn"`},
		"a dry run":    {"PUT", configMapA + "?dryRun=All&dryRun=x", "", `{}`, 422, metav1.StatusReasonInvalid, `UpdateOptions.meta.k8s.io "" is invalid: dryRun: Unsupported value: ["All","x"]: supported values: "All"`},
		"force":        {"PATCH", configMapA + "?force=yes" + manager, mergePatch, `{}`, 422, metav1.StatusReasonInvalid, `PatchOptions.meta.k8s.io "" is invalid: force: Forbidden: may not be specified for non-apply patch`},

		// Malformed patches.
		"JSON patch, a word":      {"PATCH", configMapA, jsonPatch, `"x"`, 400, metav1.StatusReasonBadRequest, "error decoding patch: "},
		"JSON patch, ignored":     {"PATCH", configMapA + "?fieldValidation=Ignore", jsonPatch, `"x"`, 400, metav1.StatusReasonBadRequest, "json: cannot unmarshal string"},
		"JSON patch, an unknown":  {"PATCH", configMapA, jsonPatch, `[{"op":"nope","path":"/data"}]`, 422, "", "the server rejected our request due to an error in our request"},
		"strategic patch, a list": {"PATCH", configMapA, strategicPatch, `[]`, 400, metav1.StatusReasonBadRequest, ""},
		"strategic, directive":    {"PATCH", configMapA, strategicPatch, `{"data":{"$patch":"nope"}}`, 400, metav1.StatusReasonBadRequest, ""},
		"strategic of a widget":   {"PATCH", "/apis/example.com/v1/namespaces/default/widgets/w", strategicPatch, `{}`, 415, metav1.StatusReasonUnsupportedMediaType, ""},
		"no type":                 {"PATCH", configMapA, "-", `{}`, 415, metav1.StatusReasonUnsupportedMediaType, ""},
	} {
		t.Run(name, func(t *testing.T) {
			headers := []string{"Content-Type", strings.TrimPrefix(test.contentType, "-")}
			if test.contentType == "" {
				headers = nil
			}
			a := b.send(test.method, test.path, test.body, headers...)
			a.t = t
			a.want(test.code, "")
			if test.code == 404 {
				return
			}
			s := a.status()
			// Some codes have no reason.
			if test.reason == "" {
				test.reason = s.Reason
			}
			if s.Reason != test.reason || !strings.HasPrefix(s.Message, test.message) || int(s.Code) != test.code {
				t.Errorf("%s %q", s.Reason, s.Message)
			}
		})
	}
	now := b.send("GET", configMapA, nil).configMap()
	if now.Data["k"] != "v" || len(now.Data) != 1 || now.ResourceVersion == "" {
		t.Errorf("something was written: %+v", now)
	}
}

// An AlreadyExists with name and generateName permits a retry.
func TestNameTakenWithAGenerateName(t *testing.T) {
	b := newWriteBench(t)
	b.create(bare("a"))
	s := b.send("POST", inDefault+"configmaps", `{"metadata":{"name":"a","generateName":"a"}}`).
		want(409, `configmaps "a" already exists, the server was not able to generate a unique name for the object`).status()
	if s.Details.RetryAfterSeconds != 1 || len(s.Details.Causes) != 0 {
		t.Errorf("%+v", s.Details)
	}
}

// Writes that change nothing keep the revision.
func TestWritesWithoutChangeKeepTheRevision(t *testing.T) {
	b := newOwnBench(t)
	b.send("POST", inDefault+"services?fieldManager=m", `{"metadata":{"name":"s","labels":{"a":"b"},"finalizers":["a/b"]},"spec":{"externalName":"x"}}`).want(201, "")
	b.send("PATCH", serviceS+"/status?fieldManager=m", `{"status":{"conditions":[]}}`, "Content-Type", mergePatch).want(200, "")
	applied := b.apply(serviceS, "m2", `{"apiVersion":"v1","kind":"Service","metadata":{"name":"s"},"spec":{"externalName":"x"}}`).want(200, "")
	was := applied.revision()
	text := string(applied.body)
	for name, test := range map[string]struct{ method, path, contentType, body string }{
		"PUT":             {"PUT", serviceS + "?fieldManager=m", runtime.ContentTypeJSON, text},
		"PUT by another":  {"PUT", serviceS + "?fieldManager=other", runtime.ContentTypeJSON, text},
		"PUT the status":  {"PUT", serviceS + "/status?fieldManager=m", runtime.ContentTypeJSON, text},
		"merge patch":     {"PATCH", serviceS + "?fieldManager=m", mergePatch, `{"metadata":{"labels":{"a":"b"}}}`},
		"JSON patch":      {"PATCH", serviceS + "?fieldManager=other", jsonPatch, `[{"op":"replace","path":"/spec/externalName","value":"x"}]`},
		"strategic patch": {"PATCH", serviceS + "?fieldManager=m", strategicPatch, `{"metadata":{"finalizers":["a/b"]}}`},
		"apply":           {"PATCH", serviceS + "?fieldManager=m2", applyPatch, `{"apiVersion":"v1","kind":"Service","metadata":{"name":"s"},"spec":{"externalName":"x"}}`},
		"server's fields": {"PATCH", serviceS + "?fieldManager=m", mergePatch, `{"metadata":{"generation":7,"uid":null,"creationTimestamp":null}}`},
	} {
		t.Run(name, func(t *testing.T) {
			a := b.send(test.method, test.path, test.body, "Content-Type", test.contentType)
			a.t = t
			if now := a.want(200, "").revision(); now != was {
				t.Errorf("revision %s, then %s: %s", was, now, a.body)
			}
		})
	}
}

// Every kind of write that removes the last finalizer completes the deletion.
func TestLastFinalizer(t *testing.T) {
	for name, last := range map[string]struct{ method, path, contentType, body string }{
		"PUT":             {"PUT", serviceS, runtime.ContentTypeJSON, ""},
		"merge patch":     {"PATCH", serviceS, mergePatch, `{"metadata":{"finalizers":null}}`},
		"JSON patch":      {"PATCH", serviceS, jsonPatch, `[{"op":"remove","path":"/metadata/finalizers/0"}]`},
		"strategic patch": {"PATCH", serviceS, strategicPatch, `{"metadata":{"$deleteFromPrimitiveList/finalizers":["a/b"]}}`},
		"apply":           {"PATCH", serviceS + "?fieldManager=m", applyPatch, `{"apiVersion":"v1","kind":"Service","metadata":{"name":"s"}}`},
	} {
		t.Run(name, func(t *testing.T) {
			b := newOwnBench(t)
			b.t = t
			b.apply(serviceS, "m", `{"apiVersion":"v1","kind":"Service","metadata":{"name":"s","finalizers":["a/b"]}}`).want(201, "")
			going := b.send("DELETE", serviceS, nil).want(200, "").service()
			body := last.body
			if body == "" {
				body = `{"metadata":{"name":"s","resourceVersion":"` + going.ResourceVersion + `"}}`
			}
			dry := "?dryRun=All"
			if strings.Contains(last.path, "?") {
				dry = "&dryRun=All"
			}
			b.send(last.method, last.path+dry, body, "Content-Type", last.contentType).want(200, "")
			b.send("GET", serviceS, nil).want(200, "")
			got := b.send(last.method, last.path, body, "Content-Type", last.contentType).want(200, "").service()
			if got.UID != going.UID || len(got.Finalizers) != 0 || got.DeletionTimestamp == nil {
				t.Errorf("%+v", got.ObjectMeta)
			}
			b.send("GET", serviceS, nil).want(404, "")
		})
	}
}
