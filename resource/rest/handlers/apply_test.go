package handlers

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"portico/resource"
	"portico/resource/rest"
)

// intent is an apply configuration of a config map.
func cmIntent(rest string) string { return `{"apiVersion":"v1","kind":"ConfigMap"` + rest + `}` }

func TestApply(t *testing.T) {
	b := newTrackedBench(t)
	a := b.apply(configMapA, "alice", "apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: a\n  labels: {l: \"1\"}\ndata:\n  k: v\n  j: v\n").want(201, "")
	a.wantOwners("alice Apply v1 .data.j .data.k .metadata.labels.l")
	if cm := a.configMap(); cm.UID == "" || cm.CreationTimestamp.IsZero() || cm.Namespace != "default" || cm.Kind != "ConfigMap" {
		t.Errorf("%+v", cm)
	}
	first := a.revision()

	// The same manager applies again: nothing is written.
	same := b.apply(configMapA, "alice", cmIntent(`,"metadata":{"labels":{"l":"1"}},"data":{"k":"v","j":"v"}`)).want(200, "")
	if same.revision() != first {
		t.Errorf("applied again: revision %s, then %s", first, same.revision())
	}
	// Another manager applies the same value: both own it.
	b.apply(configMapA, "bob", cmIntent(`,"data":{"k":"v","b":"1"}`)).want(200, "").
		wantOwners("alice Apply v1 .data.j .data.k .metadata.labels.l", "bob Apply v1 .data.b .data.k")

	// A field that its manager no longer applies is removed unless another manager owns it.
	a = b.apply(configMapA, "alice", cmIntent(`,"metadata":{"name":"a"}`)).want(200, "").wantOwners("bob Apply v1 .data.b .data.k")
	if cm := a.configMap(); fmt.Sprint(cm.Data, cm.Labels) != "map[b:1 k:v] map[]" {
		t.Errorf("%v %v", cm.Data, cm.Labels)
	}

	b.apply(configMapA, "bob", cmIntent(`,"metadata":{"resourceVersion":"`+a.revision()+`"},"data":{"k":"v"}`)).want(200, "")
}

func TestApplyConflicts(t *testing.T) {
	b := newTrackedBench(t)
	b.send("POST", inDefault+"configmaps", `{"metadata":{"name":"a"},"data":{"k":"v","j":"v"}}`, "User-Agent", "alice").want(201, "")
	b.apply(configMapA, "bob", cmIntent(`,"data":{"b":"1"}`)).want(200, "")

	one := b.apply(configMapA, "carol", cmIntent(`,"data":{"k":"w"}`)).
		want(409, `Apply failed with 1 conflict: conflict with "alice" using v1: .data.k`).status()
	causes := []metav1.StatusCause{{Type: metav1.CauseTypeFieldManagerConflict, Message: `conflict with "alice" using v1`, Field: ".data.k"}}
	if one.Reason != metav1.StatusReasonConflict || one.Details == nil || !slices.Equal(one.Details.Causes, causes) {
		t.Errorf("%+v", one)
	}
	b.apply(configMapA, "carol", cmIntent(`,"data":{"k":"w","j":"w","b":"2"}`)).want(409,
		"Apply failed with 3 conflicts: conflicts with \"alice\" using v1:\n- .data.j\n- .data.k\nconflicts with \"bob\":\n- .data.b")
	if cm := b.send("GET", configMapA, nil).configMap(); fmt.Sprint(cm.Data) != "map[b:1 j:v k:v]" {
		t.Errorf("a conflict wrote: %v", cm.Data)
	}
	a := b.apply(configMapA+"?force=true", "carol", cmIntent(`,"data":{"k":"w","b":"2"}`)).want(200, "").
		wantOwners("carol Apply v1 .data.b .data.k", "alice Update v1 .data.j")
	if fmt.Sprint(a.configMap().Data) != "map[b:2 j:v k:w]" {
		t.Errorf("%v", a.configMap().Data)
	}
}

func TestApplyNeedsPermissionToCreate(t *testing.T) {
	var asked []string
	b := newTrackedBench(t, func(cfg *Config, _ *bench) {
		cfg.Authorize = func(_ context.Context, a *resource.Action) error {
			asked = append(asked, a.Verb+" "+a.Resource+" "+a.Name)
			return apierrors.NewForbidden(corev1.Resource("configmaps"), a.Name, errors.New("no create"))
		}
	})
	b.create(bare("b"))
	b.apply(configMapA, "m", cmIntent(`,"metadata":{"name":"a"}`)).want(403, `configmaps "a" is forbidden: no create`)
	b.apply(inDefault+"configmaps/b", "m", cmIntent("")).want(200, "")
	b.apply(serviceS+"/status", "m", `{"apiVersion":"v1","kind":"Service"}`).want(404, `services "s" not found`)
	if strings.Join(asked, ",") != "create configmaps a" {
		t.Errorf("asked %q", asked)
	}
}

// Items of an associative list have managers of their own.
func TestApplyListsAsMaps(t *testing.T) {
	b := newTrackedBench(t)
	intent := func(ports string) string {
		return `{"apiVersion":"v1","kind":"Service","metadata":{"name":"s"},"spec":{"ports":[` + ports + `]}}`
	}
	b.apply(serviceS, "alice", intent(`{"port":1,"name":"a"},{"port":2,"name":"x"}`)).want(201, "")
	svc := b.apply(serviceS, "bob", intent(`{"port":3,"protocol":"UDP","name":"b"}`)).want(200, "").service()
	if len(svc.Spec.Ports) != 3 || svc.Generation != 2 {
		t.Fatalf("generation %d, %+v", svc.Generation, svc.Spec.Ports)
	}
	b.apply(serviceS, "bob", intent(`{"port":1,"name":"mine"}`)).want(409,
		`Apply failed with 1 conflict: conflict with "alice": .spec.ports[port=1,protocol="TCP"].name`)
	a := b.apply(serviceS, "alice", intent(`{"port":1,"name":"a"}`)).want(200, "")
	a.wantOwners(`alice Apply v1 .spec.ports[port=1,protocol="TCP"].name .spec.ports[port=1,protocol="TCP"].port`,
		`bob Apply v1 .spec.ports[port=3,protocol="UDP"].name .spec.ports[port=3,protocol="UDP"].port .spec.ports[port=3,protocol="UDP"].protocol`)
	if ports := a.service().Spec.Ports; len(ports) != 2 || ports[0].Port != 1 || ports[1].Port != 3 {
		t.Errorf("%+v", ports)
	}
	b.apply(serviceS, "alice", intent(`{"port":1,"name":"a"},{"port":1,"name":"again"}`)).want(400, "")
}

func TestApplyToStatus(t *testing.T) {
	b := newTrackedBench(t)
	intent := func(host string) string {
		return `{"apiVersion":"v1","kind":"Service","metadata":{"name":"s","labels":{"l":"` + host + `"}},"spec":{"externalName":"` + host +
			`"},"status":{"loadBalancer":{"ingress":[{"hostname":"` + host + `"}]}}}`
	}
	b.apply(serviceS, "alice", intent("a")).want(201, "").wantOwners("alice Apply v1 .metadata.labels.l .spec.externalName")
	a := b.apply(serviceS+"/status", "watcher", intent("a")).want(200, "")
	a.wantOwners("alice Apply v1 .metadata.labels.l .spec.externalName", "watcher Apply/status v1 .status.loadBalancer.ingress")
	svc := a.service()
	if svc.Spec.ExternalName != "a" || len(svc.Status.LoadBalancer.Ingress) != 1 || svc.Generation != 1 {
		t.Errorf("%+v", svc)
	}
	b.apply(serviceS+"/status", "other", intent("b")).want(409,
		`Apply failed with 1 conflict: conflict with "watcher" with subresource "status": .status.loadBalancer.ingress`)
	svc = b.apply(serviceS+"/status", "watcher", `{"apiVersion":"v1","kind":"Service"}`).want(200, "").
		wantOwners("alice Apply v1 .metadata.labels.l .spec.externalName").service()
	if len(svc.Status.LoadBalancer.Ingress) != 0 || svc.Spec.ExternalName != "a" {
		t.Errorf("%+v", svc)
	}
}

// kubectl may change from client-side to server-side apply: it owns the fields of its last
// client-side apply, and the annotation with them is updated.
func TestApplyAfterClientSideApply(t *testing.T) {
	b := newTrackedBench(t)
	last := `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"a"},"data":{"k":"v"}}`
	cm := bare("a")
	cm.Annotations = map[string]string{corev1.LastAppliedConfigAnnotation: last}
	b.send("POST", inDefault+"configmaps?fieldManager=kubectl-client-side-apply", cm).want(201, "")
	b.apply(configMapA, "other", cmIntent(`,"data":{"k":"w"}`)).want(409, "")
	got := b.apply(configMapA, "kubectl", cmIntent(`,"metadata":{"name":"a"},"data":{"k":"w"}`)).want(200, "").configMap()
	var kept corev1.ConfigMap
	if err := json.Unmarshal([]byte(got.Annotations[corev1.LastAppliedConfigAnnotation]), &kept); err != nil || kept.Data["k"] != "w" || got.Data["k"] != "w" {
		t.Errorf("%v, %v, %v", err, got.Data, got.Annotations)
	}
}

// An apply patch is validated like every other write.
func TestApplyIsValidated(t *testing.T) {
	var steps []string
	admission := &recorder{}
	b := newTrackedBench(t, func(cfg *Config, b *bench) {
		cfg.Admission = admission
		s := &b.configMaps.Strategy
		s.Default = func(obj rest.Object) { obj.SetLabels(map[string]string{"defaulted": "yes"}) }
		s.Check = func(_ context.Context, verb string, _, _ rest.Object) error {
			steps = append(steps, "check "+verb)
			return nil
		}
		s.Validate = func(context.Context, rest.Object) field.ErrorList { steps = append(steps, "validate"); return nil }
		s.ValidateUpdate = func(_ context.Context, obj, _ rest.Object) field.ErrorList {
			steps = append(steps, "validate update")
			return field.ErrorList{field.Forbidden(field.NewPath("data"), "is frozen")}
		}
	})
	got := b.apply(configMapA, "m", cmIntent(`,"metadata":{"name":"a"}`)).want(201, "").configMap()
	if got.Labels["defaulted"] != "yes" {
		t.Errorf("labels %v", got.Labels)
	}
	b.apply(configMapA, "m", cmIntent(`,"data":{"k":"v"}`)).want(422, `ConfigMap "a" is invalid: data: Forbidden: is frozen`)
	if got := strings.Join(steps, ","); got != "check create,validate,check update,validate update" {
		t.Errorf("steps %s", got)
	}
	asked := []string{
		"mutate CREATE default/a object=true old=false dry=false CreateOptions",
		"validate CREATE default/a object=true old=false dry=false CreateOptions",
		"mutate UPDATE default/a object=true old=true dry=false UpdateOptions",
	}
	if fmt.Sprint(admission.asked) != fmt.Sprint(asked) {
		t.Errorf("asked %q, want %q", admission.asked, asked)
	}
}

// An intent is merged again after a concurrent write.
func TestApplyRetriesAfterARace(t *testing.T) {
	b := newTrackedBench(t)
	b.create(bare("a"))
	b.race(b.configMaps, func(obj rest.Object) { obj.(*corev1.ConfigMap).Data["racer"] = "yes" })
	got := b.apply(configMapA, "m", cmIntent(`,"data":{"applied":"yes","applied":"yes"}`)).want(200, "").configMap()
	if fmt.Sprint(got.Data) != "map[applied:yes k:v racer:yes]" {
		t.Errorf("%v", got.Data)
	}
	if w := b.takeWarnings(); w != `line 1: key "applied" already set in map` {
		t.Errorf("warned %q", w)
	}
}

// Objects without Go types, in two versions.
func TestApplyUnstructured(t *testing.T) {
	b := newTrackedBench(t)
	intent := func(version, rest string) string {
		return "apiVersion: example.com/" + version + "\nkind: Widget\nmetadata: {name: w}\n" + rest
	}
	const beta = "/apis/example.com/v1beta1/namespaces/default/widgets/w"
	a := b.apply(widgetW, "alice", intent("v1", "spec: {size: 9007199254740993, replicas: 1}\nnothing: null\nstatus: {ready: true}\n")).want(201, "")
	a.wantOwners("alice Apply example.com/v1 .nothing .spec.replicas .spec.size")
	// A null that is applied stays, for validation and defaults.
	if !strings.Contains(string(a.body), `"nothing":null`) || !strings.Contains(string(a.body), "9007199254740993") {
		t.Errorf("%s", a.body)
	}
	b.apply(beta, "alice", intent("v1", "")).want(400, "invalid object type: example.com/v1, Kind=Widget")
	b.apply(beta, "bob", intent("v1beta1", "spec: {size: 2}\n")).want(409, `Apply failed with 1 conflict: conflict with "alice": .spec.size`)
	// An applier has one entry for all versions.
	b.apply(beta, "alice", intent("v1beta1", "spec: {replicas: 2}\n")).want(200, "").
		wantOwners("alice Apply example.com/v1beta1 .spec.replicas")
	a = b.apply(widgetW+"/status", "watcher", intent("v1", "spec: {replicas: 7}\nstatus: {ready: false}\n")).want(200, "").
		wantOwners("alice Apply example.com/v1beta1 .spec.replicas", "watcher Apply/status example.com/v1 .status.ready")
	if w := a.widget(); fmt.Sprint(w["spec"], w["status"]) != "map[replicas:2] map[ready:false]" {
		t.Errorf("%s", a.body)
	}
}

// The next write drops managers of versions that no longer exist.
func TestManagersOfRemovedVersionsAreDropped(t *testing.T) {
	b := newTrackedBench(t)
	gone := `[{"manager":"old","operation":"Update","apiVersion":"example.com/v0","fieldsType":"FieldsV1","fieldsV1":{"f:spec":{"f:size":{}}}}]`
	b.send("POST", "/apis/example.com/v1/namespaces/default/widgets?fieldManager=m",
		`{"metadata":{"name":"w","managedFields":`+gone+`},"spec":{"size":1}}`).want(201, "")
	b.patch(widgetW, mergePatch, "n", `{"spec":{"n":1}}`).want(200, "").
		wantOwners("m Update example.com/v1 .spec.size", "n Update example.com/v1 .spec.n")
}
