// Package quota measures how objects of built-in kinds use resource quotas, by the rules of
// kube-apiserver with its default feature gates: the evaluators of pods, services, claims of
// volumes and of devices, and of kinds with an old name of their count. Other kinds are counted
// as count/RESOURCE.GROUP by the evaluators of k8s.io/apiserver.
//
// Runs in: core.
package quota

import (
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	apiresource "k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/selection"
	"k8s.io/apiserver/pkg/admission"
	quota "k8s.io/apiserver/pkg/quota/v1"
	"k8s.io/apiserver/pkg/quota/v1/generic"
)

// Config is what evaluators measure with.
type Config struct {
	// List returns the objects of a resource, to add up their usage; nil for admission, which
	// measures single objects.
	List quota.ListerForResourceFunc
	// Objects are the objects that the usage of a ResourceClaim depends on. Required.
	Objects Objects
	// Now is the current time; nil: time.Now.
	Now func() time.Time
}

// Objects are read for ResourceClaims with devices, and for quotas of extended resources.
type Objects interface {
	DeviceClasses() ([]*resourcev1.DeviceClass, error)
	Pod(namespace, name string) (*corev1.Pod, error)
	ResourceClaims(namespace string) ([]*resourcev1.ResourceClaim, error)
}

// Evaluators returns the evaluators of the built-in kinds that are more than counted by their
// resource.
func Evaluators(cfg Config) []quota.Evaluator {
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	list := func(resource schema.GroupVersionResource) generic.ListFuncByNamespace {
		return generic.ListResourceUsingListerFunc(cfg.List, resource)
	}
	core := corev1.SchemeGroupVersion.WithResource
	out := []quota.Evaluator{
		pods(list(core("pods")), cfg.Now),
		services(list(core("services"))),
		volumeClaims(list(core("persistentvolumeclaims"))),
		resourceClaims(list(resourcev1.SchemeGroupVersion.WithResource("resourceclaims")), cfg.Objects, cfg.Now),
	}
	for _, name := range []corev1.ResourceName{
		corev1.ResourceConfigMaps, corev1.ResourceQuotas, corev1.ResourceReplicationControllers, corev1.ResourceSecrets,
	} {
		resource := core(string(name))
		out = append(out, generic.NewObjectCountEvaluator(resource.GroupResource(), list(resource), name))
	}
	return out
}

// Ignored returns the resources that no quota counts.
func Ignored() map[schema.GroupResource]struct{} {
	out := map[schema.GroupResource]struct{}{}
	for _, name := range []string{
		"bindings", "componentstatuses", "events", "events.events.k8s.io", "tokenreviews.authentication.k8s.io",
		"selfsubjectreviews.authentication.k8s.io", "subjectaccessreviews.authorization.k8s.io",
		"selfsubjectaccessreviews.authorization.k8s.io", "localsubjectaccessreviews.authorization.k8s.io",
		"selfsubjectrulesreviews.authorization.k8s.io",
	} {
		out[schema.ParseGroupResource(name)] = struct{}{}
	}
	return out
}

// evaluator measures the objects of one resource, which are of type T. Functions that are nil
// have no rules.
type evaluator[T runtime.Object] struct {
	resource schema.GroupResource
	list     generic.ListFuncByNamespace
	// names reports whether a quota of that name is one of the resource.
	names func(corev1.ResourceName) bool
	// handles reports whether a write can change the usage.
	handles func(a admission.Attributes) bool
	// inScope reports whether an object is in a scope; nil: there are no scopes.
	inScope func(s corev1.ScopedResourceSelectorRequirement, obj T) (bool, error)
	// constraints refuses objects that do not say what the quotas of names need.
	constraints func(names []corev1.ResourceName, obj T) error
	usage       func(obj T) corev1.ResourceList
}

// GroupResource implements quota.Evaluator.
func (e *evaluator[T]) GroupResource() schema.GroupResource { return e.resource }

// Handles implements quota.Evaluator.
func (e *evaluator[T]) Handles(a admission.Attributes) bool { return e.handles(a) }

// MatchingResources implements quota.Evaluator.
func (e *evaluator[T]) MatchingResources(names []corev1.ResourceName) []corev1.ResourceName {
	return slices.DeleteFunc(slices.Clone(names), func(name corev1.ResourceName) bool { return !e.names(name) })
}

// Constraints implements quota.Evaluator.
func (e *evaluator[T]) Constraints(names []corev1.ResourceName, item runtime.Object) error {
	obj, err := as[T](item)
	if err != nil || e.constraints == nil {
		return err
	}
	return e.constraints(names, obj)
}

// Usage implements quota.Evaluator.
func (e *evaluator[T]) Usage(item runtime.Object) (corev1.ResourceList, error) {
	obj, err := as[T](item)
	if err != nil {
		return corev1.ResourceList{}, err
	}
	return e.usage(obj), nil
}

// UsageStats implements quota.Evaluator.
func (e *evaluator[T]) UsageStats(options quota.UsageStatsOptions) (quota.UsageStats, error) {
	return generic.CalculateUsageStats(options, e.list, e.matchesScope, e.Usage)
}

func (e *evaluator[T]) matchesScope(s corev1.ScopedResourceSelectorRequirement, item runtime.Object) (bool, error) {
	if e.inScope == nil {
		return false, nil
	}
	obj, err := as[T](item)
	if err != nil {
		return false, err
	}
	return e.inScope(s, obj)
}

// Matches implements quota.Evaluator.
func (e *evaluator[T]) Matches(q *corev1.ResourceQuota, item runtime.Object) (bool, error) {
	return generic.Matches(q, item, e.MatchingResources, e.matchesScope)
}

// MatchingScopes implements quota.Evaluator.
func (e *evaluator[T]) MatchingScopes(item runtime.Object, scopes []corev1.ScopedResourceSelectorRequirement) ([]corev1.ScopedResourceSelectorRequirement, error) {
	out := []corev1.ScopedResourceSelectorRequirement{}
	for _, s := range scopes {
		ok, err := e.matchesScope(s, item)
		if err != nil {
			return nil, fmt.Errorf("error on matching scope %v: %w", s, err)
		}
		if ok {
			out = append(out, s)
		}
	}
	return out, nil
}

// UncoveredQuotaScopes implements quota.Evaluator.
func (e *evaluator[T]) UncoveredQuotaScopes(limited, matched []corev1.ScopedResourceSelectorRequirement) ([]corev1.ScopedResourceSelectorRequirement, error) {
	out := []corev1.ScopedResourceSelectorRequirement{}
	for _, l := range limited {
		covers := func(m corev1.ScopedResourceSelectorRequirement) bool { return m.ScopeName == l.ScopeName }
		if e.inScope != nil && !slices.ContainsFunc(matched, covers) {
			out = append(out, l)
		}
	}
	return out, nil
}

func as[T runtime.Object](item runtime.Object) (T, error) {
	obj, ok := item.(T)
	if !ok {
		return obj, fmt.Errorf("measure quota: expected a %T, found a %T", obj, item)
	}
	return obj, nil
}

// creates and updates report whether a is such a write of the object itself.
func creates(a admission.Attributes) bool {
	return a.GetSubresource() == "" && a.GetOperation() == admission.Create
}

func updates(a admission.Attributes) bool {
	return a.GetSubresource() == "" && a.GetOperation() == admission.Update
}

func writes(a admission.Attributes) bool { return creates(a) || updates(a) }

// both returns the new and the old object of an update.
func both[T runtime.Object](a admission.Attributes) (obj, old T, ok bool) {
	obj, ok = a.GetObject().(T)
	old, had := a.GetOldObject().(T)
	return obj, old, ok && had
}

// among reports whether one of values, or no value if there are none, is selected by s.
func among(s corev1.ScopedResourceSelectorRequirement, values ...string) (bool, error) {
	op, ok := map[corev1.ScopeSelectorOperator]selection.Operator{
		corev1.ScopeSelectorOpIn: selection.In, corev1.ScopeSelectorOpNotIn: selection.NotIn,
		corev1.ScopeSelectorOpExists: selection.Exists, corev1.ScopeSelectorOpDoesNotExist: selection.DoesNotExist,
	}[s.Operator]
	if !ok {
		return false, fmt.Errorf("failed to parse and convert selector: %q is not a valid scope selector operator", s.Operator)
	}
	r, err := labels.NewRequirement(string(s.ScopeName), op, s.Values)
	if err != nil {
		return false, fmt.Errorf("failed to parse and convert selector: %w", err)
	}
	if len(values) == 0 {
		return r.Matches(labels.Set{}), nil
	}
	return slices.ContainsFunc(values, func(v string) bool { return r.Matches(labels.Set{string(s.ScopeName): v}) }), nil
}

func count(n int64) apiresource.Quantity { return *apiresource.NewQuantity(n, apiresource.DecimalSI) }

// countName returns the name of the quota of the number of objects of a resource.
func countName(group, resource string) corev1.ResourceName {
	return generic.ObjectCountQuotaResourceNameFor(schema.GroupResource{Group: group, Resource: resource})
}

// asRequest returns the name of the quota of requests of a resource.
func asRequest(name corev1.ResourceName) corev1.ResourceName {
	return corev1.DefaultResourceRequestsPrefix + name
}
