package quota

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	apiresource "k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/admission"
	quota "k8s.io/apiserver/pkg/quota/v1"
	"k8s.io/utils/ptr"
)

// objects are Objects in memory.
type objects struct {
	classes []*resourcev1.DeviceClass
	pods    []*corev1.Pod
	claims  []*resourcev1.ResourceClaim
}

func (o objects) DeviceClasses() ([]*resourcev1.DeviceClass, error)          { return o.classes, nil }
func (o objects) ResourceClaims(string) ([]*resourcev1.ResourceClaim, error) { return o.claims, nil }
func (o objects) Pod(_, name string) (*corev1.Pod, error) {
	for _, p := range o.pods {
		if p.Name == name {
			return p, nil
		}
	}
	return nil, errors.New("not found")
}

func evaluatorOf(resource string, o objects) quota.Evaluator {
	for _, e := range Evaluators(Config{Objects: o}) {
		if e.GroupResource().Resource == resource {
			return e
		}
	}
	panic("no evaluator of " + resource)
}

// amounts parses "cpu=1 memory=2Gi".
func amounts(text string) corev1.ResourceList {
	out := corev1.ResourceList{}
	for _, f := range strings.Fields(text) {
		name, q, _ := strings.Cut(f, "=")
		out[corev1.ResourceName(name)] = apiresource.MustParse(q)
	}
	return out
}

func text(list corev1.ResourceList) string {
	var out []string
	for _, name := range slices.Sorted(maps.Keys(list)) {
		q := list[name]
		out = append(out, fmt.Sprintf("%s=%s", name, q.String()))
	}
	return strings.Join(out, " ")
}

func container(requests, limits string) corev1.Container {
	return corev1.Container{Name: "c" + requests, Resources: corev1.ResourceRequirements{Requests: amounts(requests), Limits: amounts(limits)}}
}

func pod(change func(*corev1.Pod), containers ...corev1.Container) *corev1.Pod {
	p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "p", UID: "p"}, Spec: corev1.PodSpec{Containers: containers}}
	if change != nil {
		change(p)
	}
	return p
}

func claim(change func(*corev1.PersistentVolumeClaim)) *corev1.PersistentVolumeClaim {
	c := &corev1.PersistentVolumeClaim{Spec: corev1.PersistentVolumeClaimSpec{
		Resources: corev1.VolumeResourceRequirements{Requests: amounts("storage=10Gi")},
	}}
	if change != nil {
		change(c)
	}
	return c
}

func service(kind corev1.ServiceType, allocate *bool, nodePorts ...int32) *corev1.Service {
	s := &corev1.Service{Spec: corev1.ServiceSpec{Type: kind, AllocateLoadBalancerNodePorts: allocate}}
	for _, p := range nodePorts {
		s.Spec.Ports = append(s.Spec.Ports, corev1.ServicePort{Port: 80, NodePort: p})
	}
	return s
}

func devices(requests ...resourcev1.DeviceRequest) *resourcev1.ResourceClaim {
	return &resourcev1.ResourceClaim{
		ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "c"},
		Spec:       resourcev1.ResourceClaimSpec{Devices: resourcev1.DeviceClaim{Requests: requests}},
	}
}

func exactly(class string, mode resourcev1.DeviceAllocationMode, n int64) resourcev1.DeviceRequest {
	return resourcev1.DeviceRequest{Exactly: &resourcev1.ExactDeviceRequest{DeviceClassName: class, AllocationMode: mode, Count: n}}
}

// What objects of each kind use.
func TestUsage(t *testing.T) {
	t.Parallel()
	past := metav1.NewTime(time.Now().Add(-time.Minute))
	always := corev1.ContainerRestartPolicyAlways
	gpus := objects{classes: []*resourcev1.DeviceClass{{ObjectMeta: metav1.ObjectMeta{Name: "gpu"}, Spec: resourcev1.DeviceClassSpec{ExtendedResourceName: ptr.To("example.com/gpu")}}}}
	owned := devices(exactly("gpu", resourcev1.DeviceAllocationModeExactCount, 3))
	owned.Annotations = map[string]string{resourcev1.ExtendedResourceClaimAnnotation: "true"}
	owned.OwnerReferences = []metav1.OwnerReference{{APIVersion: "v1", Kind: "Pod", Name: "p", UID: "p", Controller: ptr.To(true)}}
	charged := gpus
	charged.pods, charged.claims = []*corev1.Pod{pod(nil, container("example.com/gpu=2", ""))}, []*resourcev1.ResourceClaim{owned}
	const deviceCount = "count/resourceclaims.resource.k8s.io=1 "
	for _, tc := range []struct {
		name, resource string
		objects        objects
		obj            runtime.Object
		want           string
	}{
		{"empty", "pods", objects{}, pod(nil, container("", "")), "count/pods=1 pods=1"},
		{"requests and limits", "pods", objects{}, pod(nil, container("cpu=1 memory=1Gi", "cpu=2 ephemeral-storage=1Gi"), container("cpu=500m", "memory=1Gi")),
			"count/pods=1 cpu=1500m limits.cpu=2 limits.ephemeral-storage=1Gi limits.memory=1Gi memory=1Gi pods=1 requests.cpu=1500m requests.memory=1Gi"},
		{"the largest init container", "pods", objects{}, pod(func(p *corev1.Pod) {
			p.Spec.InitContainers = []corev1.Container{container("cpu=3", ""), container("cpu=2", "")}
		}, container("cpu=1", "")), "count/pods=1 cpu=3 pods=1 requests.cpu=3"},
		{"a sidecar", "pods", objects{}, pod(func(p *corev1.Pod) {
			c := container("cpu=2", "")
			c.RestartPolicy = &always
			p.Spec.InitContainers = []corev1.Container{c}
		}, container("cpu=1", "")), "count/pods=1 cpu=3 pods=1 requests.cpu=3"},
		{"overhead", "pods", objects{}, pod(func(p *corev1.Pod) { p.Spec.Overhead = amounts("cpu=1") }, container("cpu=1", "")), "count/pods=1 cpu=2 pods=1 requests.cpu=2"},
		{"the pod's own", "pods", objects{}, pod(func(p *corev1.Pod) {
			p.Spec.Resources = &corev1.ResourceRequirements{Requests: amounts("cpu=5")}
		}, container("cpu=1", "")), "count/pods=1 cpu=5 pods=1 requests.cpu=5"},
		{"devices and pages", "pods", objects{}, pod(nil, container("example.com/gpu=2 hugepages-2Mi=4Mi", "")),
			"count/pods=1 hugepages-2Mi=4Mi pods=1 requests.example.com/gpu=2 requests.hugepages-2Mi=4Mi"},
		{"ended", "pods", objects{}, pod(func(p *corev1.Pod) { p.Status.Phase = corev1.PodSucceeded }, container("cpu=1", "")), "count/pods=1"},
		{"stuck", "pods", objects{}, pod(func(p *corev1.Pod) {
			p.DeletionTimestamp, p.DeletionGracePeriodSeconds = &past, ptr.To[int64](30)
		}, container("cpu=1", "")), "count/pods=1"},
		{"being deleted", "pods", objects{}, pod(func(p *corev1.Pod) {
			p.DeletionTimestamp, p.DeletionGracePeriodSeconds = &past, ptr.To[int64](300)
		}), "count/pods=1 pods=1"},
		{"being resized", "pods", objects{}, pod(func(p *corev1.Pod) {
			p.Status.ContainerStatuses = []corev1.ContainerStatus{{Name: "ccpu=1", AllocatedResources: amounts("cpu=4")}}
		}, container("cpu=1", "")), "count/pods=1 cpu=4 pods=1 requests.cpu=4"},

		{"cluster IP", "services", objects{}, service(corev1.ServiceTypeClusterIP, nil, 0, 0), "count/services=1 services=1 services.loadbalancers=0 services.nodeports=0"},
		{"node ports", "services", objects{}, service(corev1.ServiceTypeNodePort, nil, 0, 0), "count/services=1 services=1 services.loadbalancers=0 services.nodeports=2"},
		{"balancer", "services", objects{}, service(corev1.ServiceTypeLoadBalancer, nil, 0, 0), "count/services=1 services=1 services.loadbalancers=1 services.nodeports=2"},
		{"balancer without node ports", "services", objects{}, service(corev1.ServiceTypeLoadBalancer, ptr.To(false), 0, 30000), "count/services=1 services=1 services.loadbalancers=1 services.nodeports=1"},

		{"claim", "persistentvolumeclaims", objects{}, claim(nil), "count/persistentvolumeclaims=1 persistentvolumeclaims=1 requests.storage=10Gi"},
		{"a class", "persistentvolumeclaims", objects{}, claim(func(c *corev1.PersistentVolumeClaim) { c.Spec.StorageClassName = ptr.To("gold") }),
			"count/persistentvolumeclaims=1 gold.storageclass.storage.k8s.io/persistentvolumeclaims=1 gold.storageclass.storage.k8s.io/requests.storage=10Gi persistentvolumeclaims=1 requests.storage=10Gi"},
		{"growing", "persistentvolumeclaims", objects{}, claim(func(c *corev1.PersistentVolumeClaim) { c.Status.AllocatedResources = amounts("storage=20Gi") }),
			"count/persistentvolumeclaims=1 persistentvolumeclaims=1 requests.storage=20Gi"},
		{"part of a byte", "persistentvolumeclaims", objects{}, claim(func(c *corev1.PersistentVolumeClaim) { c.Spec.Resources.Requests = amounts("storage=1500m") }),
			"count/persistentvolumeclaims=1 persistentvolumeclaims=1 requests.storage=2"},

		{"a device", "resourceclaims", objects{}, devices(exactly("gpu", resourcev1.DeviceAllocationModeExactCount, 2)),
			deviceCount + "gpu.deviceclass.resource.k8s.io/devices=2 requests.deviceclass.resource.kubernetes.io/gpu=2"},
		{"all devices", "resourceclaims", objects{}, devices(exactly("gpu", resourcev1.DeviceAllocationModeAll, 0)),
			deviceCount + "gpu.deviceclass.resource.k8s.io/devices=32 requests.deviceclass.resource.kubernetes.io/gpu=32"},
		{"the worst case", "resourceclaims", objects{}, devices(resourcev1.DeviceRequest{FirstAvailable: []resourcev1.DeviceSubRequest{
			{DeviceClassName: "a", AllocationMode: resourcev1.DeviceAllocationModeExactCount, Count: 1},
			{DeviceClassName: "a", AllocationMode: resourcev1.DeviceAllocationModeExactCount, Count: 3},
		}}), "a.deviceclass.resource.k8s.io/devices=3 " + deviceCount + "requests.deviceclass.resource.kubernetes.io/a=3"},
		{"extended resource", "resourceclaims", gpus, devices(exactly("gpu", resourcev1.DeviceAllocationModeExactCount, 2)),
			deviceCount + "gpu.deviceclass.resource.k8s.io/devices=2 requests.deviceclass.resource.kubernetes.io/gpu=2 requests.example.com/gpu=2"},
		{"charged to its pod", "resourceclaims", charged, owned,
			deviceCount + "gpu.deviceclass.resource.k8s.io/devices=3 requests.deviceclass.resource.kubernetes.io/gpu=3 requests.example.com/gpu=1"},

		{"counted", "configmaps", objects{}, &corev1.ConfigMap{}, "configmaps=1 count/configmaps=1"},
	} {
		got, err := evaluatorOf(tc.resource, tc.objects).Usage(tc.obj)
		if err != nil || text(got) != tc.want {
			t.Errorf("%s, %s:\n%s %v, want\n%s", tc.resource, tc.name, text(got), err, tc.want)
		}
	}
	if _, err := evaluatorOf("pods", objects{}).Usage(&corev1.Service{}); err == nil {
		t.Error("a service is no pod, and is measured")
	}
}

// Which objects a scope has.
func TestScopes(t *testing.T) {
	t.Parallel()
	deadline := func(p *corev1.Pod) { p.Spec.ActiveDeadlineSeconds = ptr.To[int64](1) }
	priority := func(name string) func(*corev1.Pod) {
		return func(p *corev1.Pod) { p.Spec.PriorityClassName = name }
	}
	far := func(p *corev1.Pod) {
		p.Spec.Affinity = &corev1.Affinity{PodAntiAffinity: &corev1.PodAntiAffinity{
			PreferredDuringSchedulingIgnoredDuringExecution: []corev1.WeightedPodAffinityTerm{{PodAffinityTerm: corev1.PodAffinityTerm{Namespaces: []string{"x"}}}},
		}}
	}
	modified := claim(func(c *corev1.PersistentVolumeClaim) {
		c.Spec.VolumeAttributesClassName, c.Status.CurrentVolumeAttributesClassName = ptr.To("gold"), ptr.To("silver")
	})
	for _, tc := range []struct {
		name     string
		resource string
		obj      runtime.Object
		scope    corev1.ResourceQuotaScope
		op       corev1.ScopeSelectorOperator
		values   string
		want     bool
	}{
		{"deadline", "pods", pod(deadline), corev1.ResourceQuotaScopeTerminating, "Exists", "", true},
		{"no deadline", "pods", pod(nil), corev1.ResourceQuotaScopeTerminating, "Exists", "", false},
		{"no deadline", "pods", pod(nil), corev1.ResourceQuotaScopeNotTerminating, "Exists", "", true},
		{"best effort", "pods", pod(nil, container("", "")), corev1.ResourceQuotaScopeBestEffort, "Exists", "", true},
		{"of devices only", "pods", pod(nil, container("example.com/gpu=1", "")), corev1.ResourceQuotaScopeBestEffort, "Exists", "", true},
		{"burstable", "pods", pod(nil, container("cpu=1", "")), corev1.ResourceQuotaScopeNotBestEffort, "Exists", "", true},
		{"limited", "pods", pod(nil, container("", "memory=1")), corev1.ResourceQuotaScopeBestEffort, "Exists", "", false},
		{"as the status says", "pods", pod(func(p *corev1.Pod) { p.Status.QOSClass = corev1.PodQOSBestEffort }, container("cpu=1", "")), corev1.ResourceQuotaScopeBestEffort, "Exists", "", true},
		{"in", "pods", pod(priority("high")), corev1.ResourceQuotaScopePriorityClass, "In", "high low", true},
		{"not in", "pods", pod(priority("high")), corev1.ResourceQuotaScopePriorityClass, "NotIn", "high", false},
		{"none, not in", "pods", pod(nil), corev1.ResourceQuotaScopePriorityClass, "NotIn", "high", true},
		{"exists", "pods", pod(priority("high")), corev1.ResourceQuotaScopePriorityClass, "Exists", "", true},
		{"none, does not exist", "pods", pod(nil), corev1.ResourceQuotaScopePriorityClass, "DoesNotExist", "", true},
		{"other namespaces", "pods", pod(far), corev1.ResourceQuotaScopeCrossNamespacePodAffinity, "Exists", "", true},
		{"own namespace", "pods", pod(nil), corev1.ResourceQuotaScopeCrossNamespacePodAffinity, "Exists", "", false},
		{"not for pods", "pods", pod(nil), corev1.ResourceQuotaScopeVolumeAttributesClass, "Exists", "", false},
		{"requested", "persistentvolumeclaims", modified, corev1.ResourceQuotaScopeVolumeAttributesClass, "In", "gold", true},
		{"current", "persistentvolumeclaims", modified, corev1.ResourceQuotaScopeVolumeAttributesClass, "In", "silver", true},
		{"another", "persistentvolumeclaims", modified, corev1.ResourceQuotaScopeVolumeAttributesClass, "In", "bronze", false},
		{"no class", "persistentvolumeclaims", claim(nil), corev1.ResourceQuotaScopeVolumeAttributesClass, "Exists", "", false},
		{"not for claims", "persistentvolumeclaims", claim(nil), corev1.ResourceQuotaScopeNotTerminating, "Exists", "", false},
		{"not for services", "services", service("", nil), corev1.ResourceQuotaScopeNotTerminating, "Exists", "", false},
	} {
		s := corev1.ScopedResourceSelectorRequirement{ScopeName: tc.scope, Operator: tc.op, Values: strings.Fields(tc.values)}
		got, err := evaluatorOf(tc.resource, objects{}).MatchingScopes(tc.obj, []corev1.ScopedResourceSelectorRequirement{s})
		if err != nil || (len(got) == 1) != tc.want {
			t.Errorf("%s %s, %s: in %v, %v, want %v", tc.resource, tc.name, tc.scope, got, err, tc.want)
		}
	}
}

// Containers have to say what they need of CPU and memory if that has a quota, unless the pod
// does.
func TestConstraints(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name, quotas string
		pod          *corev1.Pod
		want         string
	}{
		{"nothing asked", "pods requests.ephemeral-storage", pod(nil, container("", "")), ""},
		{"given", "cpu requests.memory", pod(nil, container("cpu=1 memory=1", "")), ""},
		{"missing", "cpu limits.memory", pod(func(p *corev1.Pod) { p.Spec.InitContainers = []corev1.Container{container("", "")} }, container("cpu=1", "")),
			"must specify cpu for: c; limits.memory for: c,ccpu=1"},
		{"the pod's own", "cpu", pod(func(p *corev1.Pod) { p.Spec.Resources = &corev1.ResourceRequirements{Requests: amounts("cpu=1")} }, container("", "")), ""},
	} {
		var names []corev1.ResourceName
		for _, name := range strings.Fields(tc.quotas) {
			names = append(names, corev1.ResourceName(name))
		}
		err := evaluatorOf("pods", objects{}).Constraints(names, tc.pod)
		if got := fmt.Sprint(err); got != tc.want && (err != nil || tc.want != "") {
			t.Errorf("%s: %v, want %q", tc.name, err, tc.want)
		}
	}
}

// Which names of quotas, and which writes, are a kind's.
func TestNamesAndWrites(t *testing.T) {
	t.Parallel()
	gpus := objects{classes: []*resourcev1.DeviceClass{{ObjectMeta: metav1.ObjectMeta{Name: "gpu"}, Spec: resourcev1.DeviceClassSpec{ExtendedResourceName: ptr.To("example.com/gpu")}}}}
	all := strings.Fields(`pods count/pods cpu limits.memory hugepages-2Mi requests.hugepages-1Gi requests.example.com/gpu requests.example.com/other
		requests.deviceclass.resource.kubernetes.io/gpu gpu.deviceclass.resource.k8s.io/devices requests.storage gold.storageclass.storage.k8s.io/requests.storage
		services.nodeports configmaps count/configmaps count/widgets.example.com count/resourceclaims.resource.k8s.io`)
	for resource, want := range map[string]string{
		"pods": `pods count/pods cpu limits.memory hugepages-2Mi requests.hugepages-1Gi requests.example.com/gpu requests.example.com/other
			requests.deviceclass.resource.kubernetes.io/gpu`,
		"services":               "services.nodeports",
		"persistentvolumeclaims": "requests.storage gold.storageclass.storage.k8s.io/requests.storage",
		"resourceclaims": `requests.example.com/gpu requests.deviceclass.resource.kubernetes.io/gpu gpu.deviceclass.resource.k8s.io/devices
			count/resourceclaims.resource.k8s.io`,
		"configmaps": "configmaps count/configmaps",
	} {
		var names []corev1.ResourceName
		for _, name := range all {
			names = append(names, corev1.ResourceName(name))
		}
		var got []string
		for _, name := range evaluatorOf(resource, gpus).MatchingResources(names) {
			got = append(got, string(name))
		}
		if want := strings.Fields(want); !slices.Equal(slices.Sorted(slices.Values(got)), slices.Sorted(slices.Values(want))) {
			t.Errorf("%s: %v, want %v", resource, got, want)
		}
	}
	resized, deadline := pod(nil), pod(func(p *corev1.Pod) { p.Spec.ActiveDeadlineSeconds = ptr.To[int64](1) })
	grown := claim(func(c *corev1.PersistentVolumeClaim) { c.Status.AllocatedResources = amounts("storage=20Gi") })
	for _, tc := range []struct {
		resource, subresource string
		op                    admission.Operation
		obj, old              runtime.Object
		want                  bool
	}{
		{"pods", "", admission.Create, pod(nil), nil, true},
		{"pods", "", admission.Update, pod(nil), pod(nil), false},
		{"pods", "", admission.Update, deadline, pod(nil), true},
		{"pods", "resize", admission.Update, resized, resized, true},
		{"pods", "status", admission.Update, resized, resized, false},
		{"services", "", admission.Update, service("", nil), service("", nil), true},
		{"services", "status", admission.Update, service("", nil), service("", nil), false},
		{"persistentvolumeclaims", "status", admission.Update, claim(nil), claim(nil), false},
		{"persistentvolumeclaims", "status", admission.Update, grown, claim(nil), true},
		{"resourceclaims", "", admission.Update, devices(), devices(), true},
		{"configmaps", "", admission.Update, &corev1.ConfigMap{}, &corev1.ConfigMap{}, false},
	} {
		a := admission.NewAttributesRecord(tc.obj, tc.old, schema.GroupVersionKind{}, "ns", "x", schema.GroupVersionResource{Resource: tc.resource}, tc.subresource, tc.op, nil, false, nil)
		if got := evaluatorOf(tc.resource, objects{}).Handles(a); got != tc.want {
			t.Errorf("%s of %s/%s: handled %v, want %v", tc.op, tc.resource, tc.subresource, got, tc.want)
		}
	}
}
