package handlers

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	upstream "k8s.io/apimachinery/pkg/util/managedfields"

	"portico/resource"
	"portico/resource/rest"
	"portico/resource/rest/managedfields"
)

// Every kind of write records its manager as the owner of the changed fields.
func TestOwnershipOfWrites(t *testing.T) {
	b := newTrackedBench(t)
	a := b.send("POST", inDefault+"configmaps?fieldManager=alice", `{"metadata":{"name":"a","labels":{"l":"1"}},"data":{"k":"v","j":"v"}}`).want(201, "")
	a.wantOwners("alice Update v1 .data.j .data.k .metadata.labels.l")
	entry := a.configMap().ManagedFields[0]
	if entry.FieldsType != "FieldsV1" || entry.Time == nil || time.Since(entry.Time.Time) > time.Hour {
		t.Errorf("entry %+v", entry)
	}
	a = b.send("PUT", configMapA, `{"metadata":{"name":"a","labels":{"l":"1"}},"data":{"k":"w","j":"v","b":"1"}}`, "User-Agent", "bob/2.0 (x)").want(200, "")
	a.wantOwners("alice Update v1 .data.j .metadata.labels.l", "bob Update v1 .data.b .data.k")

	// Entries are in the order of their seconds, then of their managers: here these are the same order.
	b.patch(configMapA, mergePatch, "c1", `{"data":{"m":"1","j":null}}`).want(200, "")
	b.patch(configMapA, jsonPatch, "c2", `[{"op":"add","path":"/data/j","value":"1"}]`).want(200, "")
	a = b.patch(configMapA, strategicPatch, "c3", `{"data":{"s":"1"}}`).want(200, "")
	a.wantOwners("alice Update v1 .data .metadata.labels.l", "bob Update v1 .data.b .data.k",
		"c1 Update v1 .data.m", "c2 Update v1 .data.j", "c3 Update v1 .data.s")

	same := b.patch(configMapA, mergePatch, "carol", `{"data":{"s":"1"}}`).want(200, "")
	if same.revision() != a.revision() || strings.Contains(same.owners(), "carol") {
		t.Errorf("who changes nothing wrote, or owns something:\n%s", same.owners())
	}
	b.patch(configMapA, mergePatch, "bob", `{"metadata":{"labels":null},"data":null}`).want(200, "").wantOwners("")
	b.patch(configMapA, mergePatch, "bob", `{"data":{"k":"v"}}`).want(200, "").wantOwners("")
}

// An update resets managedFields by an empty list or entry, and otherwise keeps them, whether
// ownership is tracked or not; tracking then continues with the next apply patch.
func TestOwnershipIsReset(t *testing.T) {
	const entry = `[{"manager":"m","operation":"Update","apiVersion":"v1","fieldsType":"FieldsV1","fieldsV1":{"f:data":{"f:k":{}}}}]`
	tracked, untracked := newTrackedBench(t), newBench(t)
	for fields, reset := range map[string]bool{
		"": false, `,"managedFields":null`: false, `,"managedFields":` + entry: false, `,"managedFields":[]`: true, `,"managedFields":[{}]`: true,
	} {
		for _, b := range []*bench{tracked, untracked} {
			want := "m Update v1 .data.k"
			if reset {
				want = ""
			}
			b.send("POST", configMaps+"?fieldManager=m", `{"metadata":{"name":"a","managedFields":`+entry+`},"data":{"k":"v"}}`).want(201, "")
			b.send("PUT", configMapA, `{"metadata":{"name":"a"`+fields+`},"data":{"k":"v"}}`).want(200, "").wantOwners(want)
			if reset && b == tracked {
				b.patch(configMapA, mergePatch, "n", `{"data":{"m":"1"}}`).want(200, "").wantOwners("")
				b.apply(configMapA, "applier", cmIntent(`,"data":{"n":"1"}`)).want(200, "").
					wantOwners("applier Apply v1 .data.n", "before-first-apply Update v1 .data.k .data.m")
			}
			b.send("DELETE", configMapA, nil).want(200, "")
		}
	}
	// Invalid entries are dropped where ownership is tracked.
	before := tracked.send("POST", configMaps+"?fieldManager=x", bare("a")).owners()
	tracked.send("PUT", configMapA, `{"metadata":{"name":"a","managedFields":[{"operation":"Own"}]},"data":{"k":"v"}}`).want(200, "").wantOwners(before)
}

func TestManagersOfUpdatesAreCapped(t *testing.T) {
	b := newTrackedBench(t)
	b.create(bare("a"))
	var a answer
	for i := range 12 {
		a = b.patch(configMapA, mergePatch, fmt.Sprintf("m%02d", i), fmt.Sprintf(`{"data":{"k%02d":"x"}}`, i)).want(200, "")
	}
	entries := a.configMap().ManagedFields
	if len(entries) != 10 || !strings.Contains(a.owners(), "ancient-changes Update v1 ") {
		t.Errorf("%d entries:\n%s", len(entries), a.owners())
	}
}

// A write of a subresource owns only fields that it can change, and a write of the object no
// status.
func TestOwnershipOfSubresources(t *testing.T) {
	b := newTrackedBench(t)
	const body = `{"metadata":{"name":"s","labels":{"l":"%[1]s"}},"spec":{"externalName":"%[1]s"},"status":{"loadBalancer":{"ingress":[{"hostname":"%[1]s"}]}}}`
	b.send("POST", inDefault+"services", fmt.Sprintf(body, "a"), "User-Agent", "creator").want(201, "").
		wantOwners("creator Update v1 .metadata.labels.l .spec.externalName")
	b.patch(inDefault+"services/s/status", mergePatch, "watcher", fmt.Sprintf(body, "b")).want(200, "").
		wantOwners("creator Update v1 .metadata.labels.l .spec.externalName", `watcher Update/status v1 .status.loadBalancer.ingress`)
}

// A write of a subresource cannot change other entries of managedFields.
func TestSubresourcesIgnoreManagedFieldsSent(t *testing.T) {
	b := newTrackedBench(t)
	before := b.send("POST", inDefault+"services", `{"metadata":{"name":"s"},"spec":{"externalName":"x"}}`, "User-Agent", "c").want(201, "").owners()
	b.patch(inDefault+"services/s/status", mergePatch, "w", `{"metadata":{"managedFields":[]}}`).want(200, "").wantOwners(before)
}

// Entries that differ in times only are not written again.
func TestTimesOfManagedFieldsAreNoChange(t *testing.T) {
	b := newTrackedBench(t, func(_ *Config, b *bench) {
		b.configMaps.Strategy.PrepareUpdate = func(_ context.Context, obj, old rest.Object) {
			obj.(*corev1.ConfigMap).Data = old.(*corev1.ConfigMap).Data
		}
	})
	b.create(bare("a"))
	put := func() answer {
		return b.send("PUT", configMapA, `{"metadata":{"name":"a"},"data":{"k":"v","undone":"x"}}`, "User-Agent", "u").want(200, "")
	}
	put()
	aged := b.modify(func(cm *corev1.ConfigMap) {
		for i := range cm.ManagedFields {
			cm.ManagedFields[i].Time = new(metav1.Unix(1700000000, 0))
		}
	})
	if got := put().configMap(); got.ResourceVersion != aged.ResourceVersion || got.ManagedFields[0].Time.Unix() != 1700000000 {
		t.Errorf("revision %s after %s, %+v", got.ResourceVersion, aged.ResourceVersion, got.ManagedFields)
	}
}

func TestKeepTimes(t *testing.T) {
	entries := func(second int64, manager string) []metav1.ManagedFieldsEntry {
		return []metav1.ManagedFieldsEntry{{Manager: manager, Operation: "Update", APIVersion: "v1", Time: new(metav1.Unix(second, 0)),
			FieldsType: "FieldsV1", FieldsV1: metav1.NewFieldsV1(`{"f:data":{}}`)}}
	}
	configMaps := func(second int64, manager, value string) rest.Object {
		return &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{ManagedFields: entries(second, manager)}, Data: map[string]string{"k": value}}
	}
	loose := func(second int64, manager, value string) rest.Object {
		u := &unstructured.Unstructured{Object: map[string]any{"data": map[string]any{"k": value}}}
		u.SetManagedFields(entries(second, manager))
		return u
	}
	for name, make := range map[string]func(int64, string, string) rest.Object{"typed": configMaps, "unstructured": loose} {
		for _, test := range []struct {
			change string
			obj    rest.Object
			want   int64
		}{
			{"time", make(2, "m", "v"), 1},
			{"manager", make(2, "n", "v"), 2},
			{"data", make(2, "m", "w"), 2},
		} {
			managedfields.KeepTimes(test.obj, make(1, "m", "v"))
			if got := test.obj.GetManagedFields()[0].Time.Unix(); got != test.want {
				t.Errorf("%s, another %s: time %d, want %d", name, test.change, got, test.want)
			}
		}
	}
}

// A write succeeds if ownership cannot be tracked, except an apply patch.
func TestOwnershipThatCannotBeTracked(t *testing.T) {
	b := newTrackedBench(t)
	before := b.send("POST", inDefault+"configmaps", bare("a"), "User-Agent", "x").owners()
	b.configMaps.Ownership = func() (upstream.TypeConverter, error) { return nil, errors.New("no schema") }
	b.patch(configMapA, mergePatch, "m", `{"data":{"m":"1"}}`).want(200, "").wantOwners(before)
	b.send("POST", inDefault+"configmaps", bare("b")).want(201, "").wantOwners("")
	b.apply(configMapA, "m", `{"apiVersion":"v1","kind":"ConfigMap"}`).want(500, "")
}

// Objects that are too large for etcd with managedFields are stored without.
func TestTooLargeObjectsLoseManagedFields(t *testing.T) {
	b := newTrackedBench(t)
	b.create(bare("a"))
	b.configMaps.Store = refusingStore{b.configMaps.Store, func(o *resource.Object) error {
		if strings.Contains(string(o.Data), "FieldsV1") {
			return resource.TooLarge("etcdserver: request is too large")
		}
		return nil
	}}
	b.send("POST", inDefault+"configmaps", bare("b")).want(201, "").wantOwners("")
	b.apply(configMapA, "m", `{"apiVersion":"v1","kind":"ConfigMap","data":{"m":"1"}}`).want(500, "etcdserver: request is too large")
	b.send("PUT", configMapA, `{"metadata":{"name":"a"},"data":{"k":"w"}}`).want(200, "").wantOwners("")
	got := b.patch(configMapA, mergePatch, "m", `{"data":{"m":"1"}}`).want(200, "").wantOwners("").configMap()
	if got.Data["k"] != "w" || got.Data["m"] != "1" {
		t.Errorf("%v", got.Data)
	}
}

func TestManagedFieldsInvalidAfterAdmissionAreRestored(t *testing.T) {
	spoil := func(a *rest.Attributes) error {
		obj := a.Object.(rest.Object)
		fields := obj.GetManagedFields()
		for i := range fields {
			fields[i].Operation = "Own"
		}
		obj.SetManagedFields(fields)
		return nil
	}
	b := newTrackedBench(t, func(cfg *Config, _ *bench) { cfg.Admission = admission{mutate: spoil} })
	b.send("POST", inDefault+"configmaps", bare("a"), "User-Agent", "x").want(201, "").wantOwners("x Update v1 .data.k")
	if w := b.takeWarnings(); !strings.HasPrefix(w, ".metadata.managedFields was in an invalid state after admission; ") {
		t.Errorf("warned %q", w)
	}
	b.apply(configMapA, "m", `{"apiVersion":"v1","kind":"ConfigMap","data":{"m":"1"}}`).want(200, "").
		wantOwners("m Apply v1 .data.m", "x Update v1 .data.k")
}
