package plugins

import (
	"maps"
	"testing"

	corev1 "k8s.io/api/core/v1"
	nodev1 "k8s.io/api/node/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func resources(pairs ...string) corev1.ResourceList {
	out := corev1.ResourceList{}
	for i := 0; i < len(pairs); i += 2 {
		out[corev1.ResourceName(pairs[i])] = resource.MustParse(pairs[i+1])
	}
	return out
}

// A pod gets the overhead, node selector and tolerations of its runtime class.
func TestRuntimeClass(t *testing.T) {
	t.Parallel()
	gpu := corev1.Toleration{Key: "gpu", Operator: "Exists"}
	w := newWorld(t,
		&nodev1.RuntimeClass{ObjectMeta: metav1.ObjectMeta{Name: "plain"}, Handler: "h"},
		&nodev1.RuntimeClass{ObjectMeta: metav1.ObjectMeta{Name: "heavy"}, Handler: "h", Overhead: &nodev1.Overhead{PodFixed: resources("cpu", "100m")},
			Scheduling: &nodev1.Scheduling{NodeSelector: map[string]string{"foo": "bar"}, Tolerations: []corev1.Toleration{gpu}}},
	)
	plugin := w.only("RuntimeClass")
	pod := func(class string, overhead corev1.ResourceList, selector map[string]string, tolerations ...corev1.Toleration) *corev1.Pod {
		return aPod(func(p *corev1.Pod) {
			p.Spec.Overhead, p.Spec.NodeSelector, p.Spec.Tolerations = overhead, selector, tolerations
			if class != "" {
				p.Spec.RuntimeClassName = &class
			}
		})
	}
	heavy := resources("cpu", "100m")
	for _, tc := range []struct {
		name     string
		pod      *corev1.Pod
		overhead corev1.ResourceList
		selector map[string]string
		err      string
	}{
		{"none", pod("", nil, nil), nil, nil, ""},
		{"plain", pod("plain", nil, map[string]string{"a": "b"}), nil, map[string]string{"a": "b"}, ""},
		{"absent", pod("gone", nil, nil), nil, nil, `pods "p" is forbidden: pod rejected: RuntimeClass "gone" not found`},
		{"all", pod("heavy", nil, nil), heavy, map[string]string{"foo": "bar"}, ""},
		{"same", pod("heavy", resources("cpu", "0.1"), map[string]string{"foo": "bar", "a": "b"}, gpu), heavy, map[string]string{"foo": "bar", "a": "b"}, ""},
		{"other overhead", pod("heavy", resources("cpu", "2"), nil), nil, nil, "pod rejected: Pod's Overhead doesn't match RuntimeClass's defined Overhead"},
		{"overhead alone", pod("", heavy, nil), nil, nil, "pod rejected: Pod Overhead set without corresponding RuntimeClass defined Overhead"},
		{"overhead of a plain class", pod("plain", heavy, nil), nil, nil, "Pod Overhead set without"},
		{"selector", pod("heavy", nil, map[string]string{"foo": "no"}), nil, nil, "conflict: runtimeClass.scheduling.nodeSelector[foo] = bar; pod.spec.nodeSelector[foo] = no"},
	} {
		expect(t, tc.name, admit(t, plugin, w.write(tc.pod, nil)), tc.err)
		s := &tc.pod.Spec
		if tc.err == "" && (!equality.Semantic.DeepEqual(s.Overhead, tc.overhead) || !maps.Equal(s.NodeSelector, tc.selector)) {
			t.Errorf("%s: %v %v", tc.name, s.Overhead, s.NodeSelector)
		}
		if s.RuntimeClassName != nil && *s.RuntimeClassName == "heavy" && tc.err == "" && len(s.Tolerations) != 1 {
			t.Errorf("%s: %v", tc.name, s.Tolerations)
		}
	}
	expect(t, "update", admit(t, plugin, w.write(pod("gone", heavy, nil), aPod())), "")
}

// All images of a pod with a new image are pulled.
func TestAlwaysPullImages(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	plugin := w.only("AlwaysPullImages")
	pod := func(image string) *corev1.Pod {
		return aPod(func(p *corev1.Pod) {
			p.Spec.Containers[0].Image = image
			p.Spec.InitContainers = []corev1.Container{{Name: "i", Image: "j", ImagePullPolicy: "Never"}}
			p.Spec.Volumes = []corev1.Volume{{Name: "v", VolumeSource: corev1.VolumeSource{Image: &corev1.ImageVolumeSource{Reference: "v"}}}}
		})
	}
	for name, tc := range map[string]struct {
		obj, old *corev1.Pod
		pulls    bool
	}{"create": {obj: pod("i"), pulls: true}, "same images": {pod("i"), pod("i"), false}, "new image": {pod("k"), pod("i"), true}} {
		a := w.write(tc.obj, nil)
		if tc.old != nil {
			a = w.write(tc.obj, tc.old)
		}
		expect(t, name, admit(t, plugin, a), "")
		s := &tc.obj.Spec
		if pulls := s.Containers[0].ImagePullPolicy == "Always" && s.InitContainers[0].ImagePullPolicy == "Always" && s.Volumes[0].Image.PullPolicy == "Always"; pulls != tc.pulls {
			t.Errorf("%s: %+v", name, s)
		}
	}
	expect(t, "after a webhook", plugin.Validate(t.Context(), w.write(aPod(), nil)), `spec.containers[0].imagePullPolicy: Unsupported value: "": supported values: "Always"`)
}

// Pods are kept apart by nodes alone.
func TestLimitPodHardAntiAffinityTopology(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	pod := func(keys ...string) *corev1.Pod {
		return aPod(func(p *corev1.Pod) {
			p.Spec.Affinity = &corev1.Affinity{PodAntiAffinity: &corev1.PodAntiAffinity{}}
			for _, key := range keys {
				p.Spec.Affinity.PodAntiAffinity.RequiredDuringSchedulingIgnoredDuringExecution = append(
					p.Spec.Affinity.PodAntiAffinity.RequiredDuringSchedulingIgnoredDuringExecution, corev1.PodAffinityTerm{TopologyKey: key})
			}
		})
	}
	plugin := w.only("LimitPodHardAntiAffinityTopology")
	for name, tc := range map[string]struct {
		pod *corev1.Pod
		err string
	}{
		"none": {aPod(), ""}, "empty": {pod(), ""}, "host": {pod(corev1.LabelHostname), ""},
		"zone": {pod(corev1.LabelHostname, "zone"), "affinity.PodAntiAffinity.RequiredDuringScheduling has TopologyKey zone but only key kubernetes.io/hostname is allowed"},
	} {
		expect(t, name, admit(t, plugin, w.write(tc.pod, nil)), tc.err)
	}
}

// Pods tolerate the taints of the extended resources that they request.
func TestExtendedResourceToleration(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	plugin := w.only("ExtendedResourceToleration")
	exists := func(key string) corev1.Toleration {
		return corev1.Toleration{Key: key, Operator: "Exists", Effect: "NoSchedule"}
	}
	for name, tc := range map[string]struct {
		requests    corev1.ResourceList
		given, want []corev1.Toleration
	}{
		"none":   {resources("cpu", "1", "requests.example.com/x", "1"), nil, nil},
		"two":    {resources("b.com/x", "1", "a.com/x", "1", "cpu", "1"), nil, []corev1.Toleration{exists("a.com/x"), exists("b.com/x")}},
		"has it": {resources("a.com/x", "1"), []corev1.Toleration{exists("a.com/x")}, []corev1.Toleration{exists("a.com/x")}},
		"other":  {resources("a.com/x", "1"), []corev1.Toleration{{Key: "a.com/x", Operator: "Equal", Value: "v", Effect: "NoSchedule"}}, []corev1.Toleration{{Key: "a.com/x", Operator: "Equal", Value: "v", Effect: "NoSchedule"}, exists("a.com/x")}},
	} {
		pod := aPod(func(p *corev1.Pod) {
			p.Spec.InitContainers = []corev1.Container{{Name: "i", Resources: corev1.ResourceRequirements{Requests: tc.requests}}}
			p.Spec.Tolerations = tc.given
		})
		if err := admit(t, plugin, w.write(pod, nil)); err != nil || !equality.Semantic.DeepEqual(pod.Spec.Tolerations, tc.want) {
			t.Errorf("%s: %v %v", name, pod.Spec.Tolerations, err)
		}
	}
}

func onNode(name string, generation int64, requests ...string) *corev1.Pod {
	return aPod(func(p *corev1.Pod) {
		p.Generation, p.Spec.NodeName = generation, name
		p.Spec.Containers[0].Resources.Requests = resources(requests...)
	})
}

// A resize fits the node of the pod, which runs Linux.
func TestPodResizeValidator(t *testing.T) {
	t.Parallel()
	w := newWorld(t,
		&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "linux", Labels: map[string]string{corev1.LabelOSStable: "linux"}}, Status: corev1.NodeStatus{Allocatable: resources("cpu", "4", "memory", "8Gi")}},
		&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "windows", Labels: map[string]string{corev1.LabelOSStable: "windows"}}, Status: corev1.NodeStatus{Allocatable: resources("cpu", "4", "memory", "8Gi")}},
	)
	plugin := w.only("PodResizeValidator")
	for _, tc := range []struct {
		name, node, sub string
		generation      int64
		requests        []string
		err             string
		cause           metav1.CauseType
	}{
		{"fits", "linux", "resize", 2, []string{"cpu", "2"}, "", ""},
		{"another write", "linux", "", 2, []string{"cpu", "10"}, "", ""},
		{"no change", "linux", "resize", 1, []string{"cpu", "10"}, "", ""},
		{"not bound", "", "resize", 2, []string{"cpu", "10"}, "", ""},
		{"no node", "gone", "resize", 2, nil, `node "gone" not found`, ""},
		{"cpu", "linux", "resize", 2, []string{"cpu", "10"}, "node didn't have enough allocatable resources: cpu, requested: 10000, allocatable: 4000", "NodeCapacity"},
		{"both", "linux", "resize", 2, []string{"cpu", "10", "memory", "10Gi"}, "allocatable: 4000; memory, requested: 10737418240, allocatable: 8589934592", "NodeCapacity"},
		{"windows", "windows", "resize", 2, []string{"cpu", "2"}, `pod resize is only supported on linux nodes, node "windows" is "windows"`, "UnsupportedPlatform"},
	} {
		err := admit(t, plugin, w.write(onNode(tc.node, tc.generation, tc.requests...), onNode(tc.node, 1), subresource(tc.sub)))
		expect(t, tc.name, err, tc.err)
		if _, ok := apierrors.StatusCause(err, tc.cause); tc.cause != "" && !ok {
			t.Errorf("%s: no cause %s", tc.name, tc.cause)
		}
	}
}

// An update of a pod needs no feature that its node has not declared.
func TestNodeDeclaredFeatureValidator(t *testing.T) {
	t.Parallel()
	w := newWorld(t, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "old"}})
	plugin := w.only("NodeDeclaredFeatureValidator")
	expect(t, "no feature", admit(t, plugin, w.write(onNode("old", 2, "cpu", "2"), onNode("old", 1, "cpu", "1"))), "")
	expect(t, "not bound", admit(t, plugin, w.write(onNode("", 2), onNode("", 1))), "")
	expect(t, "create", admit(t, plugin, w.write(onNode("gone", 1), nil)), "")
}

// Bindings and new pods on a node get its zone and region.
func TestPodTopologyLabels(t *testing.T) {
	t.Parallel()
	w := newWorld(t, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n", Labels: map[string]string{"topology.kubernetes.io/zone": "z", "topology.kubernetes.io/region": "r", "topology.k8s.io/x": "no"}}})
	plugin := w.only("PodTopologyLabels")
	want := map[string]string{"topology.kubernetes.io/zone": "z", "topology.kubernetes.io/region": "r", "own": "1"}
	pod := onNode("n", 1)
	pod.Labels = map[string]string{"own": "1", "topology.kubernetes.io/zone": "wrong"}
	if err := admit(t, plugin, w.write(pod, nil)); err != nil || !maps.Equal(pod.Labels, want) {
		t.Errorf("pod: %v %v", pod.Labels, err)
	}
	for name, tc := range map[string]struct {
		target corev1.ObjectReference
		labels int
	}{"node": {corev1.ObjectReference{Kind: "Node", Name: "n"}, 2}, "absent": {corev1.ObjectReference{Kind: "Node", Name: "gone"}, 0}, "no node": {corev1.ObjectReference{Kind: "Other", Name: "n"}, 0}} {
		b := &corev1.Binding{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "p"}, Target: tc.target}
		a := w.write(aPod(), nil, subresource("binding"))
		a.Object = b
		if err := admit(t, plugin, a); err != nil || len(b.Labels) != tc.labels {
			t.Errorf("%s: %v %v", name, b.Labels, err)
		}
	}
}

// New nodes are tainted as not ready, once.
func TestTaintNodesByCondition(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	plugin := w.only("TaintNodesByCondition")
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n"}}
	for range 2 {
		if err := admit(t, plugin, w.write(node, nil)); err != nil || len(node.Spec.Taints) != 1 || node.Spec.Taints[0].Key != "node.kubernetes.io/not-ready" || node.Spec.Taints[0].Effect != "NoSchedule" {
			t.Fatalf("%v %v", node.Spec.Taints, err)
		}
	}
	bare := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n"}}
	if err := admit(t, plugin, w.write(bare, node)); err != nil || len(bare.Spec.Taints) != 0 {
		t.Errorf("update: %v %v", bare.Spec.Taints, err)
	}
}
