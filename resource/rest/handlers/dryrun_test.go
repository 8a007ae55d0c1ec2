package handlers

import (
	"testing"

	"k8s.io/apimachinery/pkg/runtime"
)

// Dry runs have the response of a write and write nothing (docs/wire.md 6.1).
func TestDryRuns(t *testing.T) {
	b := newTrackedBench(t)
	const (
		widgetW = "/apis/example.com/v1/namespaces/default/widgets/w"
		space   = "/api/v1/namespaces/n"
	)
	b.create(bare("a"))
	b.send("POST", inDefault+"services", `{"metadata":{"name":"s"}}`).want(201, "")
	b.send("POST", "/apis/example.com/v1/namespaces/default/widgets", `{"apiVersion":"example.com/v1","kind":"Widget","metadata":{"name":"w"},"spec":{"replicas":1}}`).want(201, "")
	b.send("POST", "/api/v1/namespaces", `{"metadata":{"name":"n"},"spec":{"finalizers":["kubernetes"]}}`).want(201, "")
	rv := b.send("GET", space, nil).revision()
	apply := `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"new"},"data":{"x":"y"}}`
	for name, test := range map[string]struct {
		method, path, contentType, body string
		code                            int
		look                            string // what must not have changed
	}{
		"create":             {"POST", inDefault + "configmaps", runtime.ContentTypeJSON, `{"metadata":{"name":"new"}}`, 201, inDefault + "configmaps"},
		"create, version":    {"POST", inDefault + "configmaps", runtime.ContentTypeJSON, `{"metadata":{"name":"new","resourceVersion":"5"}}`, 201, inDefault + "configmaps"},
		"generated name":     {"POST", inDefault + "configmaps", runtime.ContentTypeJSON, `{"metadata":{"generateName":"new-"}}`, 201, inDefault + "configmaps"},
		"update":             {"PUT", configMapA, runtime.ContentTypeJSON, `{"metadata":{"name":"a"},"data":{"x":"y"}}`, 200, configMapA},
		"update creates":     {"PUT", inDefault + "services/new", runtime.ContentTypeJSON, `{"metadata":{"name":"new"}}`, 201, inDefault + "services"},
		"merge patch":        {"PATCH", configMapA, mergePatch, `{"data":{"x":"y"}}`, 200, configMapA},
		"JSON patch":         {"PATCH", configMapA, jsonPatch, `[{"op":"remove","path":"/data/k"}]`, 200, configMapA},
		"strategic patch":    {"PATCH", configMapA, strategicPatch, `{"data":{"x":"y"}}`, 200, configMapA},
		"apply":              {"PATCH", configMapA, applyPatch, `{"apiVersion":"v1","kind":"ConfigMap","data":{"x":"y"}}`, 200, configMapA},
		"apply creates":      {"PATCH", inDefault + "configmaps/new", applyPatch, apply, 201, inDefault + "configmaps"},
		"status":             {"PATCH", serviceS + "/status", mergePatch, `{"status":{"conditions":[{"type":"X"}]}}`, 200, serviceS},
		"status applied":     {"PATCH", serviceS + "/status", applyPatch, `{"apiVersion":"v1","kind":"Service","status":{"conditions":[{"type":"X"}]}}`, 200, serviceS},
		"scale":              {"PUT", widgetW + "/scale", runtime.ContentTypeJSON, `{"metadata":{"name":"w"},"spec":{"replicas":5}}`, 200, widgetW},
		"scale patched":      {"PATCH", widgetW + "/scale", mergePatch, `{"spec":{"replicas":5}}`, 200, widgetW},
		"finalize":           {"PUT", space + "/finalize", runtime.ContentTypeJSON, `{"metadata":{"name":"n","resourceVersion":"` + rv + `"}}`, 200, space},
		"delete":             {"DELETE", configMapA, runtime.ContentTypeJSON, "", 200, configMapA},
		"delete, foreground": {"DELETE", configMapA, runtime.ContentTypeJSON, `{"dryRun":["All"],"propagationPolicy":"Foreground"}`, 200, configMapA},
		"delete, held":       {"DELETE", space, runtime.ContentTypeJSON, "", 200, space},
		"delete collection":  {"DELETE", inDefault + "configmaps", runtime.ContentTypeJSON, "", 200, inDefault + "configmaps"},
	} {
		t.Run(name, func(t *testing.T) {
			b.t = t
			before := b.send("GET", test.look, nil).want(200, "")
			b.send(test.method, test.path+"?fieldManager=m&dryRun=All", test.body, "Content-Type", test.contentType).want(test.code, "")
			after := b.send("GET", test.look, nil).want(200, "")
			if string(before.body) != string(after.body) {
				t.Errorf("before %s, after %s", before.body, after.body)
			}
		})
	}
	// A dry run is rejected like the write.
	b.t = t
	b.send("PUT", configMapA+"?dryRun=All", `{"metadata":{"name":"a","resourceVersion":"1000"}}`).want(409, "")
	b.send("DELETE", configMapA+"?dryRun=All", `{"dryRun":["All"],"preconditions":{"uid":"x"}}`).want(409, "")
	b.send("PATCH", configMapA+"?dryRun=All", `{"metadata":{"finalizers":["bare"]}}`, "Content-Type", mergePatch).want(422, "")
}
