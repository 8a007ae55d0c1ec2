package handlers

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"portico/resource"
	"portico/resource/rest"
)

// withMetadata returns a config map with that many labels, finalizers and owners.
func withMetadata(labels, finalizers, owners int) *corev1.ConfigMap {
	cm := bare("a")
	cm.Labels = map[string]string{}
	for i := range labels {
		cm.Labels[fmt.Sprint("l", i)] = ""
	}
	for i := range finalizers {
		cm.Finalizers = append(cm.Finalizers, fmt.Sprint("example.com/f", i))
	}
	for i := range owners {
		cm.OwnerReferences = append(cm.OwnerReferences, metav1.OwnerReference{APIVersion: "v1", Kind: "Pod", Name: "p", UID: types.UID(fmt.Sprint(i))})
	}
	return cm
}

// No kind of write can grow metadata beyond its bounds.
func TestMetadataIsBounded(t *testing.T) {
	t.Parallel()
	const tooMany = `ConfigMap "a" is invalid: metadata.%s: Too many: %d: must have at most %d items`
	for _, tracked := range []bool{false, true} {
		b := newTrackedBench(t)
		if !tracked {
			b.configMaps.Ownership = nil
		}
		for name, test := range map[string]struct {
			cm   *corev1.ConfigMap
			most int
		}{
			"labels":          {withMetadata(maxLabels+1, 0, 0), maxLabels},
			"finalizers":      {withMetadata(0, maxFinalizers+1, 0), maxFinalizers},
			"ownerReferences": {withMetadata(0, 0, maxOwnerReferences+1), maxOwnerReferences},
		} {
			b.send("POST", inDefault+"configmaps", test.cm).want(422, fmt.Sprintf(tooMany, name, test.most+1, test.most))
		}
		b.create(withMetadata(maxLabels, 0, 0))
		b.send("PUT", configMapA, withMetadata(maxLabels+1, 0, 0)).want(422, fmt.Sprintf(tooMany, "labels", maxLabels+1, maxLabels))
		b.send("PATCH", configMapA, `{"metadata":{"labels":{"one":"more"}}}`, "Content-Type", mergePatch).want(422, fmt.Sprintf(tooMany, "labels", maxLabels+1, maxLabels))
		if tracked {
			b.apply(configMapA, "m", cmIntent(`,"metadata":{"name":"a","labels":{"one":"more"}}`)).want(422, fmt.Sprintf(tooMany, "labels", maxLabels+1, maxLabels))
		}
		entries := strings.Repeat(`{"manager":"m","operation":"Update","apiVersion":"v1","fieldsType":"FieldsV1","fieldsV1":{}},`, maxManagers)
		b.send("PATCH", configMapA, `{"metadata":{"managedFields":[`+entries+entries[:len(entries)-1]+`]}}`, "Content-Type", mergePatch).
			want(422, fmt.Sprintf(tooMany, "managedFields", 2*maxManagers, maxManagers))
		b.merge(configMapA, `{"metadata":{"labels":{"one":"more","l0":null}}}`).want(200, "")
	}
}

// Objects in storage that exceed a bound can be read, changed otherwise, shrunk and deleted.
func TestMetadataBeyondItsBounds(t *testing.T) {
	t.Parallel()
	b := newTrackedBench(t)
	b.create(bare("a"))
	large := withMetadata(2*maxLabels, 2*maxFinalizers, 0)
	b.modify(func(cm *corev1.ConfigMap) { cm.Labels, cm.Finalizers = large.Labels, large.Finalizers })
	got := b.send("GET", configMapA, nil).want(200, "").configMap()
	got.Data = map[string]string{"k": "other"}
	got = b.send("PUT", configMapA, got).want(200, "").configMap()
	if len(got.Labels) != 2*maxLabels || got.Data["k"] != "other" {
		t.Errorf("%d labels, data %v", len(got.Labels), got.Data)
	}
	b.send("PATCH", configMapA, `{"metadata":{"labels":{"one":"more"}}}`, "Content-Type", mergePatch).
		want(422, `ConfigMap "a" is invalid: metadata.labels: Too many: 2001: must have at most 2000 items`)
	smaller := b.send("PATCH", configMapA, `{"metadata":{"labels":{"l0":null},"finalizers":null}}`, "Content-Type", mergePatch).want(200, "").configMap()
	if len(smaller.Labels) != 2*maxLabels-1 || len(smaller.Finalizers) > 0 {
		t.Errorf("%d labels, %d finalizers", len(smaller.Labels), len(smaller.Finalizers))
	}
	// So is a stored finalizer without a domain.
	b.modify(func(cm *corev1.ConfigMap) { cm.Finalizers = []string{"bare"} })
	b.merge(configMapA, `{"data":{"k":"v"}}`).want(200, "")
	b.merge(configMapA, `{"metadata":{"finalizers":["bare","new"]}}`).want(422, "")
	b.merge(configMapA, `{"metadata":{"finalizers":null}}`).want(200, "")
	b.send("DELETE", configMapA, nil).want(200, "")
	b.send("GET", configMapA, nil).want(404, "")
}

// The time for metadata grows no faster than its size. The deadline is a hundred times the
// usual time, and a fraction of that of a quadratic comparison.
func TestLongMetadata(t *testing.T) {
	t.Parallel()
	const many, deadline = 50_000, 5 * time.Second
	cm := withMetadata(0, many, many-1)
	cm.OwnerReferences = append(cm.OwnerReferences, cm.OwnerReferences[0])
	b := newBench(t)
	w := newWrite(b.api, &resource.Action{Version: "v1", Namespace: "default"}, b.configMaps, nil, writeOptions{})
	done := make(chan int)
	go func() {
		w.dedupeOwners(context.Background(), cm, false)
		done <- len(deletionFinalizers(cm.Finalizers, &metav1.DeleteOptions{}, &rest.Strategy{}))
	}()
	select {
	case kept := <-done:
		if kept != many || len(cm.OwnerReferences) != many-1 {
			t.Errorf("%d finalizers and %d owners, want %d and %d", kept, len(cm.OwnerReferences), many, many-1)
		}
	case <-time.After(deadline):
		t.Fatal("it takes longer than the deadline")
	}
}

// Owner references that differ in omitted fields are not duplicates.
func TestOwnerReferencesThatDifferAreKept(t *testing.T) {
	cm := bare("a")
	for _, controller := range []*bool{nil, new(true), new(false), new(true)} {
		for _, blocks := range []*bool{nil, new(true), new(false)} {
			cm.OwnerReferences = append(cm.OwnerReferences, metav1.OwnerReference{UID: "1", Controller: controller, BlockOwnerDeletion: blocks})
		}
	}
	b := newBench(t)
	newWrite(b.api, &resource.Action{Version: "v1", Namespace: "default"}, b.configMaps, nil, writeOptions{}).dedupeOwners(t.Context(), cm, false)
	if n := len(cm.OwnerReferences); n != 9 {
		t.Errorf("%d owner references are kept, want 9", n)
	}
}

// An object with more items than are tracked can be updated, but not applied.
func TestApplyToWideLists(t *testing.T) {
	t.Parallel()
	const tracked = 5000
	b := newTrackedBench(t)
	b.create(bare("a"))
	wide := bare("a")
	var items []string
	for i := range tracked + 1 {
		name := fmt.Sprintf("example.com/f%04d", i)
		wide.Finalizers = append(wide.Finalizers, name)
		items = append(items, fmt.Sprintf(`"v:\"%s\"":{}`, name))
	}
	const tooMany = `ConfigMap "a" is invalid: metadata.%s: Too many: 5001: must have at most 5000 items`
	patch := cmIntent(`,"metadata":{"name":"a","finalizers":["` + strings.Join(wide.Finalizers, `","`) + `"]}`)
	b.apply(configMapA, "m", patch).want(422, fmt.Sprintf(tooMany, "finalizers"))
	// As if it was stored before finalizers were bounded.
	entry := metav1.ManagedFieldsEntry{Manager: "n", Operation: "Update", APIVersion: "v1", FieldsType: "FieldsV1",
		FieldsV1: metav1.NewFieldsV1(`{"f:metadata":{"f:finalizers":{` + strings.Join(items, ",") + `}}}`)}
	b.modify(func(cm *corev1.ConfigMap) {
		cm.Finalizers, cm.ManagedFields = wide.Finalizers, []metav1.ManagedFieldsEntry{entry}
	})
	got := b.send("PUT", configMapA+"?fieldManager=n", wide).want(200, "")
	b.apply(configMapA, "m", cmIntent(`,"metadata":{"name":"a"},"data":{"x":"y"}`)).want(422, fmt.Sprintf(tooMany, "managedFields"))
	// An update that cannot be tracked keeps the entries.
	wide.Data["k"] = "w"
	wide.ManagedFields = b.send("GET", configMapA, nil).configMap().ManagedFields
	wide.ManagedFields[0].Manager = "another"
	if after := b.send("PUT", configMapA+"?fieldManager=n", wide).want(200, "").owners(); after != got.owners() {
		t.Errorf("owners %.300s", after)
	}
}
