package plugins

import (
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
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
		if err := admit(t, tc.world.only("DefaultStorageClass"), tc.world.write(tc.claim, nil)); err != nil || !ptr.Equal(tc.claim.Spec.StorageClassName, tc.want) {
			t.Errorf("%s: %v %v", tc.name, ptr.Deref(tc.claim.Spec.StorageClassName, "<nil>"), err)
		}
	}
}

// Of several default classes the newest counts, of those of one second the first by name.
func TestNewest(t *testing.T) {
	t.Parallel()
	at := func(name string, seconds int64) *storagev1.StorageClass {
		return &storagev1.StorageClass{ObjectMeta: metav1.ObjectMeta{Name: name, CreationTimestamp: metav1.NewTime(time.Unix(seconds, 0))}}
	}
	if got := newest([]*storagev1.StorageClass{at("old", 1), at("b", 2), at("a", 2)}); got.Name != "a" {
		t.Errorf("got %s", got.Name)
	}
	if got := newest[*storagev1.StorageClass](nil); got != nil {
		t.Errorf("got %v", got)
	}
}

// Ingresses without a class get the default one.
func TestDefaultIngressClass(t *testing.T) {
	t.Parallel()
	w := newWorld(t, &networkingv1.IngressClass{ObjectMeta: metaOf("d", networkingv1.AnnotationIsDefaultIngressClass)}, &networkingv1.IngressClass{ObjectMeta: metaOf("plain", "")})
	plugin := w.only("DefaultIngressClass")
	for name, tc := range map[string]struct {
		class      *string
		annotation string
		want       string
	}{"none": {nil, "", "d"}, "named": {ptr.To("x"), "", "x"}, "annotation": {nil, "x", "<nil>"}} {
		i := &networkingv1.Ingress{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "i"}, Spec: networkingv1.IngressSpec{IngressClassName: tc.class}}
		if tc.annotation != "" {
			i.Annotations = map[string]string{"kubernetes.io/ingress.class": tc.annotation}
		}
		if err := admit(t, plugin, w.write(i, nil)); err != nil || ptr.Deref(i.Spec.IngressClassName, "<nil>") != tc.want {
			t.Errorf("%s: %v %v", name, i.Spec, err)
		}
	}
}

// Bound claims of classes that allow it may grow.
func TestPersistentVolumeClaimResize(t *testing.T) {
	t.Parallel()
	w := newWorld(t,
		&storagev1.StorageClass{ObjectMeta: metav1.ObjectMeta{Name: "grows"}, Provisioner: "p", AllowVolumeExpansion: ptr.To(true)},
		&storagev1.StorageClass{ObjectMeta: metav1.ObjectMeta{Name: "fixed"}, Provisioner: "p"},
	)
	plugin := w.only("PersistentVolumeClaimResize")
	of := func(class, size string, phase corev1.PersistentVolumeClaimPhase) *corev1.PersistentVolumeClaim {
		return claim(func(c *corev1.PersistentVolumeClaim) {
			c.Spec.Resources.Requests, c.Status.Phase = resources("storage", size), phase
			if class != "" {
				c.Spec.StorageClassName = &class
			}
		})
	}
	const refused = "only dynamically provisioned pvc can be resized and the storageclass that provisions the pvc must support resize"
	for _, tc := range []struct {
		name     string
		old, now *corev1.PersistentVolumeClaim
		err      string
	}{
		{"grows", of("grows", "1Gi", corev1.ClaimBound), of("grows", "2Gi", corev1.ClaimBound), ""},
		{"same", of("fixed", "1Gi", corev1.ClaimBound), of("fixed", "1024Mi", corev1.ClaimBound), ""},
		{"smaller", of("fixed", "1Gi", corev1.ClaimBound), of("fixed", "1Mi", corev1.ClaimBound), ""},
		{"fixed", of("fixed", "1Gi", corev1.ClaimBound), of("fixed", "2Gi", corev1.ClaimBound), refused},
		{"no class", of("", "1Gi", corev1.ClaimBound), of("", "2Gi", corev1.ClaimBound), refused},
		{"another class", of("fixed", "1Gi", corev1.ClaimBound), of("grows", "2Gi", corev1.ClaimBound), refused},
		{"absent class", of("gone", "1Gi", corev1.ClaimBound), of("gone", "2Gi", corev1.ClaimBound), refused},
		{"pending", of("grows", "1Gi", corev1.ClaimPending), of("grows", "2Gi", corev1.ClaimBound), "Only bound persistent volume claims can be expanded"},
	} {
		expect(t, tc.name, admit(t, plugin, w.write(tc.now, tc.old)), tc.err)
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
			if err := admit(t, plugin, w.write(obj, nil)); err != nil || !slices.Equal(obj.GetFinalizers(), append(before, finalizer)) {
				t.Errorf("%T: %v %v", obj, obj.GetFinalizers(), err)
			}
		}
	}
	now := claim()
	if err := admit(t, plugin, w.write(now, claim())); err != nil || len(now.Finalizers) != 0 {
		t.Errorf("update: %v %v", now.Finalizers, err)
	}
}

// External addresses may be kept and removed, not added.
func TestDenyServiceExternalIPs(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	plugin := w.only("DenyServiceExternalIPs")
	of := func(ips ...string) *corev1.Service {
		return &corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "s"}, Spec: corev1.ServiceSpec{ExternalIPs: ips}}
	}
	const denied = `services "s" is forbidden: Use of external IPs is denied by admission control`
	expect(t, "none", admit(t, plugin, w.write(of(), nil)), "")
	expect(t, "new", admit(t, plugin, w.write(of("1.2.3.4"), nil)), denied)
	expect(t, "kept", admit(t, plugin, w.write(of("1.2.3.4"), of("5.6.7.8", "1.2.3.4"))), "")
	expect(t, "added", admit(t, plugin, w.write(of("1.2.3.4", "5.6.7.8"), of("1.2.3.4"))), denied)
}
