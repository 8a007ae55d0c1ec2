package quota

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	apiresource "k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/kubernetes/pkg/apis/core/v1/helper"
	evaluators "k8s.io/kubernetes/pkg/quota/v1/evaluator/core"
	"k8s.io/utils/clock"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	quota "k8s.io/apiserver/pkg/quota/v1"
	"k8s.io/apiserver/pkg/quota/v1/generic"
)

var resourceClaimCount = generic.ObjectCountQuotaResourceNameFor(schema.GroupResource{Group: resourcev1.GroupName, Resource: "resourceclaims"})

// claimEvaluator measures ResourceClaims. Instead of the informers of the evaluator of kube-apiserver it reads objects.
type claimEvaluator struct {
	list    generic.ListFuncByNamespace
	objects Objects
	clock   clock.Clock
}

// GroupResource implements quota.Evaluator.
func (c *claimEvaluator) GroupResource() schema.GroupResource {
	return schema.GroupResource{Group: resourcev1.GroupName, Resource: "resourceclaims"}
}

// Handles implements quota.Evaluator.
func (c *claimEvaluator) Handles(a admission.Attributes) bool {
	return a.GetSubresource() == "" && (a.GetOperation() == admission.Create || a.GetOperation() == admission.Update)
}

// MatchingResources implements quota.Evaluator.
func (c *claimEvaluator) MatchingResources(names []corev1.ResourceName) []corev1.ResourceName {
	return slices.DeleteFunc(slices.Clone(names), func(name corev1.ResourceName) bool { return !c.names(name) })
}

// Constraints implements quota.Evaluator.
func (c *claimEvaluator) Constraints(_ []corev1.ResourceName, item runtime.Object) error {
	_, err := claimOf(item)
	return err
}

// Usage implements quota.Evaluator.
func (c *claimEvaluator) Usage(item runtime.Object) (corev1.ResourceList, error) {
	claim, err := claimOf(item)
	if err != nil {
		return corev1.ResourceList{}, err
	}
	return c.usage(claim), nil
}

// UsageStats implements quota.Evaluator.
func (c *claimEvaluator) UsageStats(options quota.UsageStatsOptions) (quota.UsageStats, error) {
	return generic.CalculateUsageStats(options, c.list, generic.MatchesNoScopeFunc, c.Usage)
}

// Matches implements quota.Evaluator.
func (c *claimEvaluator) Matches(q *corev1.ResourceQuota, item runtime.Object) (bool, error) {
	return generic.Matches(q, item, c.MatchingResources, generic.MatchesNoScopeFunc)
}

// MatchingScopes implements quota.Evaluator. Claims are in no scope.
func (c *claimEvaluator) MatchingScopes(runtime.Object, []corev1.ScopedResourceSelectorRequirement) ([]corev1.ScopedResourceSelectorRequirement, error) {
	return []corev1.ScopedResourceSelectorRequirement{}, nil
}

// UncoveredQuotaScopes implements quota.Evaluator.
func (c *claimEvaluator) UncoveredQuotaScopes(_, _ []corev1.ScopedResourceSelectorRequirement) ([]corev1.ScopedResourceSelectorRequirement, error) {
	return []corev1.ScopedResourceSelectorRequirement{}, nil
}

func claimOf(item runtime.Object) (*resourcev1.ResourceClaim, error) {
	claim, ok := item.(*resourcev1.ResourceClaim)
	if !ok {
		return nil, fmt.Errorf("measure quota: expected a ResourceClaim, found a %T", item)
	}
	return claim, nil
}

// Extended reports whether a quota of that name is one of requests of an extended resource, or of the
// devices of a class as such a resource.
func Extended(name corev1.ResourceName) bool {
	return strings.HasPrefix(string(name), corev1.DefaultResourceRequestsPrefix) &&
		(!helper.IsNativeResource(name) || strings.HasPrefix(string(name), corev1.ResourceImplicitExtendedClaimsPerClass))
}

// names reports whether a quota counts claims, devices of a class, or devices by their extended
// resource.
func (c *claimEvaluator) names(name corev1.ResourceName) bool {
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
func (c *claimEvaluator) classes() []*resourcev1.DeviceClass {
	list, _ := c.objects.DeviceClasses()
	return list
}

// usage counts the claim and its devices, by class and by extended resource. Devices by extended
// resource are charged to the pod that the claim was made for.
func (c *claimEvaluator) usage(claim *resourcev1.ResourceClaim) corev1.ResourceList {
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
				names = append(names, corev1.ResourceName(corev1.DefaultResourceRequestsPrefix+*e))
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
func (c *claimEvaluator) podUsage(claim *resourcev1.ResourceClaim) corev1.ResourceList {
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
	usage, err := evaluators.PodUsageFunc(pod, c.clock)
	if err != nil {
		return nil
	}
	return usage
}

// first reports whether a claim is the first of those for the extended resources of its owner.
func (c *claimEvaluator) first(claim *resourcev1.ResourceClaim, owner *metav1.OwnerReference) bool {
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

func count(n int64) apiresource.Quantity { return *apiresource.NewQuantity(n, apiresource.DecimalSI) }
