package plugins

import (
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"portico/resource/rest"
)

// metaOf returns metadata with an annotation that is true; "": none.
func metaOf(name, annotation string) metav1.ObjectMeta {
	m := metav1.ObjectMeta{Name: name}
	if annotation != "" {
		m.Annotations = map[string]string{annotation: "true"}
	}
	return m
}

func claim(change ...func(*corev1.PersistentVolumeClaim)) *corev1.PersistentVolumeClaim {
	c := &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "c"}}
	for _, f := range change {
		f(c)
	}
	return c
}

// Claims without a class get the default one.
func TestDefaultStorageClass(t *testing.T) {
	t.Parallel()
	storage := func(name, annotation string) rest.Object {
		return &storagev1.StorageClass{ObjectMeta: metaOf(name, annotation), Provisioner: "p"}
	}
	none := newWorld(t, storage("plain", ""))
	one := newWorld(t, storage("plain", ""), storage("d", "storageclass.kubernetes.io/is-default-class"))
	older := newWorld(t, storage("b", "storageclass.beta.kubernetes.io/is-default-class"))
	named := func(name string) func(*corev1.PersistentVolumeClaim) {
		return func(c *corev1.PersistentVolumeClaim) { c.Spec.StorageClassName = &name }
	}
	annotated := func(c *corev1.PersistentVolumeClaim) {
		c.Annotations = map[string]string{"volume.beta.kubernetes.io/storage-class": ""}
	}
	for _, tc := range []struct {
		name  string
		world *world
		claim *corev1.PersistentVolumeClaim
		want  *string
	}{
		{"no default", none, claim(), nil}, {"default", one, claim(), ptr.To("d")}, {"older", older, claim(), ptr.To("b")},
		{"empty", one, claim(named("")), ptr.To("")}, {"named", one, claim(named("x")), ptr.To("x")}, {"annotation", one, claim(annotated), nil},
	} {
		if err := admitWrite(t, tc.world.only("DefaultStorageClass"), tc.world.write(tc.claim, nil)); err != nil || !ptr.Equal(tc.claim.Spec.StorageClassName, tc.want) {
			t.Errorf("%s: %v %v", tc.name, ptr.Deref(tc.claim.Spec.StorageClassName, "<nil>"), err)
		}
	}
}

// New objects of storage get a finalizer, once.
func TestStorageObjectInUseProtection(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	plugin := w.only("StorageObjectInUseProtection")
	for finalizer, obj := range map[string]rest.Object{
		"kubernetes.io/pvc-protection": claim(),
		"kubernetes.io/pv-protection":  &corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: "v", Finalizers: []string{"other/x"}}},
	} {
		before := slices.Clone(obj.GetFinalizers())
		for range 2 {
			if err := admitWrite(t, plugin, w.write(obj, nil)); err != nil || !slices.Equal(obj.GetFinalizers(), append(before, finalizer)) {
				t.Errorf("%T: %v %v", obj, obj.GetFinalizers(), err)
			}
		}
	}
	now := claim()
	if err := admitWrite(t, plugin, w.write(now, claim())); err != nil || len(now.Finalizers) != 0 {
		t.Errorf("update: %v %v", now.Finalizers, err)
	}
}
