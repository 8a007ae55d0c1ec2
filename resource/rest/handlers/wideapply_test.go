package handlers

import (
	"fmt"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"portico/resource"
	"portico/resource/rest"
)

// An object with more items than are tracked can be updated, but not applied.
func TestApplyToWideLists(t *testing.T) {
	t.Parallel()
	const tracked = 5000
	b := newOwnBench(t)
	b.create(bare("a"))
	wide := bare("a")
	var items []string
	for i := range tracked + 1 {
		name := fmt.Sprintf("example.com/f%d", i)
		wide.Finalizers = append(wide.Finalizers, name)
		items = append(items, fmt.Sprintf(`"v:\"%s\"":{}`, name))
	}
	const refused = `ConfigMap "a" is invalid: metadata.finalizers: Too many: 5001: must have at most 5000 items`
	patch := cmIntent(`,"metadata":{"name":"a","finalizers":["` + strings.Join(wide.Finalizers, `","`) + `"]}`)
	b.apply(configMapA, "m", patch).want(422, refused)
	// As if it was stored before finalizers were bounded.
	record := metav1.ManagedFieldsEntry{Manager: "n", Operation: "Update", APIVersion: "v1", FieldsType: "FieldsV1"}
	record.FieldsV1 = &metav1.FieldsV1{}
	record.FieldsV1.SetRawBytes([]byte(`{"f:metadata":{"f:finalizers":{` + strings.Join(items, ",") + `}}}`))
	if _, err := rest.Modify(t.Context(), b.configMaps, resource.Key{Namespace: "default", Name: "a"}, func(cm *corev1.ConfigMap) error {
		cm.Finalizers, cm.ManagedFields = wide.Finalizers, []metav1.ManagedFieldsEntry{record}
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	got := b.send("PUT", configMapA+"?fieldManager=n", wide).want(200, "")
	b.apply(configMapA, "m", cmIntent(`,"metadata":{"name":"a"},"data":{"x":"y"}`)).want(422,
		`ConfigMap "a" is invalid: metadata.managedFields: Too many: 5001: must have at most 5000 items`)
	// An update that cannot be tracked keeps the entries.
	wide.Data["k"] = "w"
	sent := b.send("GET", configMapA, nil).configMap().ManagedFields
	sent[0].Manager = "another"
	wide.ManagedFields = sent
	if after := b.send("PUT", configMapA+"?fieldManager=n", wide).want(200, "").owners(); after != got.owners() {
		t.Errorf("owners %.300s", after)
	}
}
