package handlers

import (
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/runtime"
)

// Writes that change nothing keep the revision.
func TestWritesWithoutChangeKeepTheRevision(t *testing.T) {
	b := newTrackedBench(t)
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
			b.t = t
			a := b.send(test.method, test.path, test.body, "Content-Type", test.contentType)
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
			b := newTrackedBench(t)
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
