package quota

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

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
	if _, err := evaluatorOf("resourceclaims", objects{}).Usage(&corev1.Service{}); err == nil {
		t.Error("a Service is measured as a ResourceClaim")
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
	for _, tc := range []struct {
		resource, subresource string
		op                    admission.Operation
		obj, old              runtime.Object
		want                  bool
	}{
		{"resourceclaims", "", admission.Update, devices(), devices(), true},
		{"configmaps", "", admission.Update, &corev1.ConfigMap{}, &corev1.ConfigMap{}, false},
	} {
		a := admission.NewAttributesRecord(tc.obj, tc.old, schema.GroupVersionKind{}, "ns", "x", schema.GroupVersionResource{Resource: tc.resource}, tc.subresource, tc.op, nil, false, nil)
		if got := evaluatorOf(tc.resource, objects{}).Handles(a); got != tc.want {
			t.Errorf("%s of %s/%s: handled %v, want %v", tc.op, tc.resource, tc.subresource, got, tc.want)
		}
	}
}
