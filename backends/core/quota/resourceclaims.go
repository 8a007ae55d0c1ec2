package quota

import (
	"cmp"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	quota "k8s.io/apiserver/pkg/quota/v1"
	"k8s.io/apiserver/pkg/quota/v1/generic"
)

var resourceClaimCount = countName(resourcev1.GroupName, "resourceclaims")

// claims measures ResourceClaims.
type claims struct {
	objects Objects
	now     func() time.Time
}

func resourceClaims(list generic.ListFuncByNamespace, objects Objects, now func() time.Time) quota.Evaluator {
	c := &claims{objects, now}
	return &evaluator[*resourcev1.ResourceClaim]{
		resource: schema.GroupResource{Group: resourcev1.GroupName, Resource: "resourceclaims"}, list: list,
		names: c.names, handles: writes, usage: c.usage,
	}
}

// names reports whether a quota counts claims, devices of a class, or devices by their extended
// resource.
func (c *claims) names(name corev1.ResourceName) bool {
	switch {
	case name == resourceClaimCount, strings.HasSuffix(string(name), corev1.ResourceClaimsPerClass):
		return true
	case !Extended(name):
		return false
	}
	resource := strings.TrimPrefix(string(name), corev1.DefaultResourceRequestsPrefix)
	return slices.ContainsFunc(c.classes(), func(d *resourcev1.DeviceClass) bool {
		return resource == resourcev1.ResourceDeviceClassPrefix+d.Name || d.Spec.ExtendedResourceName != nil && resource == *d.Spec.ExtendedResourceName
	})
}

// classes returns the device classes; none if they cannot be read.
func (c *claims) classes() []*resourcev1.DeviceClass {
	list, _ := c.objects.DeviceClasses()
	return list
}

// usage counts the claim and its devices, by class and by extended resource. Devices by extended
// resource are charged to the pod that the claim was made for.
func (c *claims) usage(claim *resourcev1.ResourceClaim) corev1.ResourceList {
	devices := devicesByClass(claim)
	out := corev1.ResourceList{resourceClaimCount: count(1)}
	for class, n := range devices {
		out[corev1.ResourceName(class+corev1.ResourceClaimsPerClass)] = count(n)
	}
	delete(devices, "")
	if len(devices) == 0 {
		return out
	}
	classes, charged := c.classes(), c.podUsage(claim)
	for class, n := range devices {
		names := []corev1.ResourceName{corev1.ResourceName(corev1.ResourceImplicitExtendedClaimsPerClass + class)}
		for _, d := range classes {
			if e := d.Spec.ExtendedResourceName; d.Name == class && e != nil && *e != "" {
				names = append(names, asRequest(corev1.ResourceName(*e)))
			}
		}
		for _, name := range names {
			q := count(n)
			q.Sub(charged[name])
			if q.Sign() > 0 {
				// As kube-apiserver, the last of several classes with one extended resource counts.
				out[name] = q
			}
		}
	}
	return out
}

// devicesByClass returns how many devices of each class a claim may get at most.
func devicesByClass(claim *resourcev1.ResourceClaim) map[string]int64 {
	out := map[string]int64{}
	for _, r := range claim.Spec.Devices.Requests {
		if r.Exactly != nil && len(r.FirstAvailable) == 0 {
			out[r.Exactly.DeviceClassName] += deviceCount(r.Exactly.AllocationMode, r.Exactly.Count)
		}
		most := map[string]int64{}
		for _, sub := range r.FirstAvailable {
			if n := deviceCount(sub.AllocationMode, sub.Count); n > most[sub.DeviceClassName] {
				most[sub.DeviceClassName] = n
			}
		}
		for class, n := range most {
			out[class] += n
		}
	}
	return out
}

func deviceCount(mode resourcev1.DeviceAllocationMode, n int64) int64 {
	switch mode {
	case resourcev1.DeviceAllocationModeExactCount:
		return n
	case resourcev1.DeviceAllocationModeAll:
		return resourcev1.AllocationResultsMaxSize
	}
	return 0 // a mode of a later version
}

// podUsage returns the usage of the pod that a claim was made for, to provide its extended
// resources; nil if there is none, or the pod has another claim.
func (c *claims) podUsage(claim *resourcev1.ResourceClaim) corev1.ResourceList {
	owner := metav1.GetControllerOfNoCopy(claim)
	if claim.Annotations[resourcev1.ExtendedResourceClaimAnnotation] != "true" || owner == nil || owner.Kind != "Pod" || owner.APIVersion != "v1" {
		return nil
	}
	pod, err := c.objects.Pod(claim.Namespace, owner.Name)
	if err != nil || pod.UID != owner.UID {
		return nil
	}
	if s := pod.Status.ExtendedResourceClaimStatus; s != nil {
		if s.ResourceClaimName != claim.Name {
			return nil
		}
	} else if !c.first(claim, owner) {
		return nil
	}
	return podUsage(pod, c.now())
}

// first reports whether a claim is the first of those for the extended resources of its owner.
func (c *claims) first(claim *resourcev1.ResourceClaim, owner *metav1.OwnerReference) bool {
	list, err := c.objects.ResourceClaims(claim.Namespace)
	return err == nil && !slices.ContainsFunc(list, func(other *resourcev1.ResourceClaim) bool {
		o := metav1.GetControllerOfNoCopy(other)
		if o == nil || o.UID != owner.UID || o.Kind != "Pod" || o.APIVersion != "v1" ||
			other.Annotations[resourcev1.ExtendedResourceClaimAnnotation] != "true" {
			return false
		}
		return cmp.Or(other.CreationTimestamp.Compare(claim.CreationTimestamp.Time), cmp.Compare(other.Name, claim.Name)) < 0
	})
}
