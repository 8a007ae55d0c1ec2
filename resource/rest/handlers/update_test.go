package handlers

import (
	"context"
	"errors"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"portico/resource"
	"portico/resource/rest"
)

func TestUpdate(t *testing.T) {
	b := newBench(t)
	first := b.create(bare("a"))

	changed := first.DeepCopy()
	changed.Data["k"] = "w"
	changed.UID, changed.CreationTimestamp, changed.Generation = "", metav1.Time{}, 9
	changed.DeletionTimestamp, changed.DeletionGracePeriodSeconds = new(metav1.Unix(6, 0)), new(int64)
	got := b.send("PUT", inDefault+"configmaps/a", changed).want(200, "").configMap()
	if got.Data["k"] != "w" || got.UID != first.UID || !got.CreationTimestamp.Equal(&first.CreationTimestamp) ||
		got.Generation != 0 || got.DeletionTimestamp != nil || got.DeletionGracePeriodSeconds != nil || got.ResourceVersion == first.ResourceVersion {
		t.Errorf("%+v", got)
	}
	b.send("PUT", inDefault+"configmaps/a", changed).want(409,
		`Operation cannot be fulfilled on configmaps "a": the object has been modified; please apply your changes to the latest version and try again`)

	changed.ResourceVersion = ""
	changed.Data["k"] = "unconditional"
	b.send("PUT", inDefault+"configmaps/a", changed).want(200, "")
}

func TestUpdateCreates(t *testing.T) {
	var asked []string
	var refuse error
	b := newBench(t, func(cfg *Config, _ *bench) {
		cfg.Authorize = func(_ context.Context, a *resource.Action) error {
			asked = append(asked, a.Verb+" "+a.Resource+" "+a.Name)
			return refuse
		}
	})
	service := &corev1.Service{ObjectMeta: metav1.ObjectMeta{Name: "s"}, Status: corev1.ServiceStatus{Conditions: []metav1.Condition{{Type: "X"}}}}
	got := b.send("PUT", inDefault+"services/s", service).want(201, "").service()
	if got.UID == "" || got.Generation != 1 || len(got.Status.Conditions) != 0 || b.claimed != 1 {
		t.Errorf("%+v, %d claimed", got, b.claimed)
	}
	b.send("PUT", inDefault+"services/s", got).want(200, "")
	refuse = apierrors.NewForbidden(b.services.GroupResource(), "t", errors.New("no create"))
	service.Name = "t"
	b.send("PUT", inDefault+"services/t", service).want(403, `services "t" is forbidden: no create`)
	b.send("GET", inDefault+"services/t", nil).want(404, "")
	if strings.Join(asked, ",") != "create services s,create services t" {
		t.Errorf("asked %q", asked)
	}
}

func TestGenerationAndStatus(t *testing.T) {
	b := newBench(t)
	s := b.send("POST", inDefault+"services", &corev1.Service{ObjectMeta: metav1.ObjectMeta{Name: "s"}}).want(201, "").service()
	s.Labels = map[string]string{"a": "b"}
	s.Status.Conditions = []metav1.Condition{{Type: "X"}}
	s = b.send("PUT", inDefault+"services/s", s).want(200, "").service()
	if s.Generation != 1 || len(s.Status.Conditions) != 0 {
		t.Fatalf("metadata and status changed through the object: %+v", s)
	}
	s.Spec.ExternalName = "x"
	s = b.send("PUT", inDefault+"services/s", s).want(200, "").service()
	if s.Generation != 2 {
		t.Fatalf("generation %d after a change of spec", s.Generation)
	}
	s.Spec.ExternalName, s.Labels = "y", nil
	s.Status.Conditions = []metav1.Condition{{Type: "X"}}
	s = b.send("PUT", inDefault+"services/s/status", s).want(200, "").service()
	if s.Generation != 2 || s.Spec.ExternalName != "x" || s.Labels["a"] != "b" || len(s.Status.Conditions) != 1 {
		t.Errorf("through status: %+v", s)
	}
	s = b.send("PATCH", inDefault+"services/s/status", `{"spec":{"externalName":"z"},"status":{"conditions":null}}`,
		"Content-Type", "application/merge-patch+json").want(200, "").service()
	if s.Generation != 2 || s.Spec.ExternalName != "x" || len(s.Status.Conditions) != 0 {
		t.Errorf("status patched: %+v", s)
	}
	if got := b.send("GET", inDefault+"services/s/status", nil).want(200, "").service(); got.ResourceVersion != s.ResourceVersion {
		t.Errorf("status reads %s, want %s", got.ResourceVersion, s.ResourceVersion)
	}
}

// A write that loses a race is repeated with the new state, unless it names the state that it
// was made for.
func TestUpdateRetriesAfterARace(t *testing.T) {
	b := newBench(t)
	first := b.create(bare("a"))
	raced := func(obj rest.Object) { obj.(*corev1.ConfigMap).Data["racer"] = "yes" }
	b.race(b.configMaps, raced)
	got := b.merge(configMapA, `{"data":{"patched":"yes"}}`).want(200, "").configMap()
	if got.Data["patched"] != "yes" || got.Data["racer"] != "yes" {
		t.Errorf("%v", got.Data)
	}
	b.race(b.configMaps, raced)
	b.send("PUT", configMapA, `{"metadata":{"name":"a"},"foo":1,"data":{"put":"yes"}}`).want(200, "")
	if n := strings.Count(b.takeWarnings(), "unknown field"); n != 1 {
		t.Errorf("an unknown field was warned of %d times", n)
	}
	b.race(b.configMaps, raced)
	b.merge(configMapA, `{"metadata":{"resourceVersion":"`+first.ResourceVersion+`"}}`).want(409, "")
}

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
			b.send(last.method, withQuery(last.path, "dryRun=All"), body, "Content-Type", last.contentType).want(200, "")
			b.send("GET", serviceS, nil).want(200, "")
			got := b.send(last.method, last.path, body, "Content-Type", last.contentType).want(200, "").service()
			if got.UID != going.UID || len(got.Finalizers) != 0 || got.DeletionTimestamp == nil {
				t.Errorf("%+v", got.ObjectMeta)
			}
			b.send("GET", serviceS, nil).want(404, "")
		})
	}
}
