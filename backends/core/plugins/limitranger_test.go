package plugins

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apiresource "k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"portico/resource/rest"
)

// amounts parses "cpu=1 memory=2Gi".
func amounts(text string) corev1.ResourceList {
	var out corev1.ResourceList
	for _, f := range strings.Fields(text) {
		if out == nil {
			out = corev1.ResourceList{}
		}
		name, q, _ := strings.Cut(f, "=")
		out[corev1.ResourceName(name)] = apiresource.MustParse(q)
	}
	return out
}

func limitRange(item corev1.LimitRangeItem) *corev1.LimitRange {
	return &corev1.LimitRange{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "limits"}, Spec: corev1.LimitRangeSpec{Limits: []corev1.LimitRangeItem{item}}}
}

// Containers get the defaults that they lack, and the pod says so.
func TestLimitRangerDefaults(t *testing.T) {
	t.Parallel()
	w := newWorld(t, limitRange(corev1.LimitRangeItem{
		Type: corev1.LimitTypeContainer, Default: amounts("cpu=2 memory=2Gi"), DefaultRequest: amounts("cpu=1 memory=1Gi"),
	}))
	plugin := w.only("LimitRanger")
	p := aPod(func(p *corev1.Pod) {
		p.Spec.Containers[0].Resources.Requests = amounts("cpu=500m")
		p.Spec.InitContainers = []corev1.Container{{Name: "i", Resources: corev1.ResourceRequirements{Requests: amounts("cpu=1 memory=1Gi"), Limits: amounts("cpu=1")}}}
	})
	if err := admit(t, plugin, w.write(p, nil)); err != nil {
		t.Fatal(err)
	}
	const want = "LimitRanger plugin set: memory request for container c; cpu, memory limit for container c; memory limit for init container i"
	if got := p.Annotations["kubernetes.io/limit-ranger"]; got != want {
		t.Errorf("annotation %q, want %q", got, want)
	}
	r := p.Spec.Containers[0].Resources
	if r.Requests.Cpu().String() != "500m" || r.Requests.Memory().String() != "1Gi" || r.Limits.Cpu().String() != "2" {
		t.Errorf("container has %v", r)
	}
	old := aPod()
	if updated := aPod(); admit(t, plugin, w.write(updated, old)) != nil || len(updated.Annotations) > 0 {
		t.Error("a pod is changed that exists")
	}
	elsewhere := aPod(func(p *corev1.Pod) { p.Namespace = "other" })
	if err := admit(t, plugin, w.write(elsewhere, nil)); err != nil || len(elsewhere.Annotations) > 0 {
		t.Errorf("limits apply to another namespace: %v %v", elsewhere.Annotations, err)
	}
}

// Pods and claims outside the bounds are refused.
func TestLimitRangerBounds(t *testing.T) {
	t.Parallel()
	one := func(requests, limits string) rest.Object {
		return aPod(func(p *corev1.Pod) {
			p.Spec.Containers[0].Resources = corev1.ResourceRequirements{Requests: amounts(requests), Limits: amounts(limits)}
		})
	}
	claim := func(storage string) rest.Object {
		return &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "p"}, Spec: corev1.PersistentVolumeClaimSpec{
			Resources: corev1.VolumeResourceRequirements{Requests: amounts(storage)},
		}}
	}
	sidecar := aPod(func(p *corev1.Pod) {
		p.Spec.Containers[0].Resources.Requests = amounts("cpu=1")
		p.Spec.Overhead = amounts("cpu=10") // does not count
		p.Spec.InitContainers = []corev1.Container{{Name: "s", RestartPolicy: ptr.To(corev1.ContainerRestartPolicyAlways),
			Resources: corev1.ResourceRequirements{Requests: amounts("cpu=1")}}}
	})
	whole := aPod(func(p *corev1.Pod) { p.Spec.Resources = &corev1.ResourceRequirements{Requests: amounts("cpu=1")} })
	container, pod, volume := corev1.LimitTypeContainer, corev1.LimitTypePod, corev1.LimitTypePersistentVolumeClaim
	for _, tc := range []struct {
		name string
		item corev1.LimitRangeItem
		obj  rest.Object
		want string
	}{
		{"enough", corev1.LimitRangeItem{Type: container, Min: amounts("cpu=1"), Max: amounts("cpu=2")}, one("cpu=1", "cpu=2"), ""},
		{"no request", corev1.LimitRangeItem{Type: container, Min: amounts("cpu=1")}, one("", ""), "minimum cpu usage per Container is 1.  No request is specified"},
		{"request below", corev1.LimitRangeItem{Type: container, Min: amounts("cpu=100m")}, one("cpu=99m", ""), "minimum cpu usage per Container is 100m, but request is 99m"},
		{"limit below", corev1.LimitRangeItem{Type: container, Min: amounts("cpu=1")}, one("cpu=1", "cpu=500m"), "minimum cpu usage per Container is 1, but limit is 500m"},
		{"no limit", corev1.LimitRangeItem{Type: container, Max: amounts("memory=1Gi")}, one("", ""), "maximum memory usage per Container is 1Gi.  No limit is specified"},
		{"limit above", corev1.LimitRangeItem{Type: container, Max: amounts("memory=1Gi")}, one("", "memory=2Gi"), "maximum memory usage per Container is 1Gi, but limit is 2Gi"},
		{"request above", corev1.LimitRangeItem{Type: container, Max: amounts("cpu=1")}, one("cpu=2", "cpu=1"), "maximum cpu usage per Container is 1, but request is 2"},
		{"ratio", corev1.LimitRangeItem{Type: container, MaxLimitRequestRatio: amounts("cpu=1500m")}, one("cpu=1", "cpu=2"), "cpu max limit to request ratio per Container is 1500m, but provided ratio is 2.000000"},
		{"ratio kept", corev1.LimitRangeItem{Type: container, MaxLimitRequestRatio: amounts("cpu=2")}, one("cpu=1", "cpu=2"), ""},
		{"ratio without request", corev1.LimitRangeItem{Type: container, MaxLimitRequestRatio: amounts("cpu=2")}, one("", "cpu=2"), "cpu max limit to request ratio per Container is 2, but no request is specified or request is 0"},
		{"ratio without limit", corev1.LimitRangeItem{Type: container, MaxLimitRequestRatio: amounts("cpu=2")}, one("cpu=1", ""), "cpu max limit to request ratio per Container is 2, but no limit is specified or limit is 0"},
		{"several", corev1.LimitRangeItem{Type: container, Min: amounts("cpu=1 memory=1")}, one("", ""),
			"[minimum cpu usage per Container is 1.  No request is specified, minimum memory usage per Container is 1.  No request is specified]"},
		{"sum of a pod", corev1.LimitRangeItem{Type: pod, Min: amounts("cpu=2")}, sidecar, ""},
		{"pod below", corev1.LimitRangeItem{Type: pod, Min: amounts("cpu=3")}, sidecar, "minimum cpu usage per Pod is 3, but request is 2"},
		{"the pod's own", corev1.LimitRangeItem{Type: pod, Min: amounts("cpu=2")}, whole, "minimum cpu usage per Pod is 2, but request is 1"},
		{"volume", corev1.LimitRangeItem{Type: volume, Min: amounts("storage=1Gi"), Max: amounts("storage=2Gi")}, claim("storage=2Gi"), ""},
		{"small volume", corev1.LimitRangeItem{Type: volume, Min: amounts("storage=1Gi")}, claim("storage=1Mi"), "minimum storage usage per PersistentVolumeClaim is 1Gi, but request is 1Mi"},
		{"large volume", corev1.LimitRangeItem{Type: volume, Max: amounts("storage=1Gi")}, claim("storage=2Gi"), "maximum storage usage per PersistentVolumeClaim is 1Gi, but request is 2Gi"},
		{"not of pods", corev1.LimitRangeItem{Type: volume, Max: amounts("storage=1Gi")}, one("", ""), ""},
	} {
		w := newWorld(t, limitRange(tc.item))
		err := admit(t, w.only("LimitRanger"), w.write(tc.obj, nil))
		resource := w.kindOf(tc.obj).Resource
		if want := resource + ` "p" is forbidden: ` + tc.want; (err == nil) != (tc.want == "") || err != nil && err.Error() != want {
			t.Errorf("%s: %v, want %s", tc.name, err, tc.want)
		}
	}
}

// Limits apply to a pod that is resized, and not to what is being deleted.
func TestLimitRangerUpdates(t *testing.T) {
	t.Parallel()
	w := newWorld(t, limitRange(corev1.LimitRangeItem{Type: corev1.LimitTypeContainer, Max: amounts("cpu=1")}))
	plugin := w.only("LimitRanger")
	large := aPod(func(p *corev1.Pod) { p.Spec.Containers[0].Resources.Limits = amounts("cpu=2") })
	if err := admit(t, plugin, w.write(large, aPod(), subresource("resize"))); err == nil {
		t.Error("a pod is resized above the maximum")
	}
	for _, name := range []string{"", "status"} {
		if err := admit(t, plugin, w.write(large, aPod(), subresource(name))); err != nil {
			t.Errorf("update of %q: %v", name, err)
		}
	}
	now := metav1.Now()
	if err := admit(t, plugin, w.write(large, aPod(func(p *corev1.Pod) { p.DeletionTimestamp = &now }), subresource("resize"))); err != nil {
		t.Errorf("a pod that is being deleted: %v", err)
	}
}
