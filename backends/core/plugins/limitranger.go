package plugins

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apiresource "k8s.io/apimachinery/pkg/api/resource"
	utilerrors "k8s.io/apimachinery/pkg/util/errors"
	upstream "k8s.io/apiserver/pkg/admission"
	resourcehelper "k8s.io/component-helpers/resource"

	"portico/resource"
	"portico/resource/admission"
	"portico/resource/rest"
)

// limitRangerAnnotation of a pod says which requests and limits the plugin set.
const limitRangerAnnotation = "kubernetes.io/limit-ranger"

// limitRanger applies the LimitRanges of a namespace: it sets the defaults of containers, and
// refuses pods and claims outside the bounds.
type limitRanger struct{ ranges *rest.Resource }

func newLimitRanger(cfg *Config) (rest.Admission, error) {
	return &limitRanger{cfg.Resource("", "limitranges")}, nil
}

// Mutate implements rest.Admission.
func (l *limitRanger) Mutate(ctx context.Context, a *rest.Attributes) error {
	pod, ok := a.Object.(*corev1.Pod)
	if !ok || !limited(a) {
		return nil
	}
	ranges, err := l.list(ctx, a)
	for _, r := range ranges {
		setLimits(r, pod)
	}
	return err
}

// Validate implements rest.Admission.
func (l *limitRanger) Validate(ctx context.Context, a *rest.Attributes) error {
	if !limited(a) {
		return nil
	}
	ranges, err := l.list(ctx, a)
	if err != nil {
		return err
	}
	for _, r := range ranges {
		var b bounds
		for i := range r.Spec.Limits {
			switch obj := a.Object.(type) {
			case *corev1.Pod:
				b.pod(&r.Spec.Limits[i], obj)
			case *corev1.PersistentVolumeClaim:
				b.claim(&r.Spec.Limits[i], obj)
			}
		}
		if err := utilerrors.NewAggregate(b.errs); err != nil {
			return upstream.NewForbidden(admission.Upstream(a), err)
		}
	}
	return nil
}

// limited reports whether limits apply to a write: to new pods and resized ones, and to claims,
// but to nothing that is being deleted.
func limited(a *rest.Attributes) bool {
	if old, ok := a.Old.(rest.Object); ok && old.GetDeletionTimestamp() != nil {
		return false
	}
	subresource := ""
	if a.Action != nil {
		subresource = a.Action.Subresource
	}
	switch a.Object.(type) {
	case *corev1.Pod:
		return subresource == "resize" && a.Operation == rest.Update || subresource == "" && a.Operation == rest.Create
	case *corev1.PersistentVolumeClaim:
		return subresource == "" && (a.Operation == rest.Create || a.Operation == rest.Update)
	}
	return false
}

// list returns the ranges of the namespace. If there are none in memory they are read anew, as
// one may just have been created.
func (l *limitRanger) list(ctx context.Context, a *rest.Attributes) ([]*corev1.LimitRange, error) {
	found, err := l.ranges.Store.List(ctx, resource.ListOptions{Namespace: a.Key.Namespace, At: resource.At{Freshness: resource.Any}})
	if err == nil && len(found.Items) == 0 {
		found, err = l.ranges.Store.List(ctx, resource.ListOptions{Namespace: a.Key.Namespace})
	}
	var out []*corev1.LimitRange
	for i := 0; err == nil && i < len(found.Items); i++ {
		var obj rest.Object
		if obj, err = l.ranges.Decode(found.Items[i]); err == nil {
			out = append(out, obj.(*corev1.LimitRange))
		}
	}
	if err != nil {
		attrs := admission.Upstream(a)
		return nil, upstream.NewForbidden(attrs, fmt.Errorf("unable to %s %v at this time because there was an error enforcing limit ranges", a.Operation, attrs.GetResource()))
	}
	return out, nil
}

// setLimits sets the default requests and limits of a range in the containers that have none.
func setLimits(r *corev1.LimitRange, pod *corev1.Pod) {
	requests, limits := corev1.ResourceList{}, corev1.ResourceList{}
	for i := range r.Spec.Limits {
		if item := &r.Spec.Limits[i]; item.Type == corev1.LimitTypeContainer {
			maps.Copy(requests, item.DefaultRequest)
			maps.Copy(limits, item.Default)
		}
	}
	var notes []string
	set := func(containers []corev1.Container, what string) {
		for i := range containers {
			c := &containers[i]
			for _, d := range []struct {
				kind     string
				to       *corev1.ResourceList
				defaults corev1.ResourceList
			}{{"request", &c.Resources.Requests, requests}, {"limit", &c.Resources.Limits, limits}} {
				if names := setMissing(d.to, d.defaults); len(names) > 0 {
					notes = append(notes, fmt.Sprintf("%s %s for %s %s", strings.Join(names, ", "), d.kind, what, c.Name))
				}
			}
		}
	}
	set(pod.Spec.Containers, "container")
	set(pod.Spec.InitContainers, "init container")
	if len(notes) > 0 {
		if pod.Annotations == nil {
			pod.Annotations = map[string]string{}
		}
		pod.Annotations[limitRangerAnnotation] = "LimitRanger plugin set: " + strings.Join(notes, "; ")
	}
}

// setMissing adds the defaults that a list lacks, and returns their names in order.
func setMissing(to *corev1.ResourceList, defaults corev1.ResourceList) []string {
	var names []string
	for name, q := range defaults {
		if _, ok := (*to)[name]; ok {
			continue
		}
		if *to == nil {
			*to = corev1.ResourceList{}
		}
		(*to)[name] = q.DeepCopy()
		names = append(names, string(name))
	}
	slices.Sort(names)
	return names
}

// bounds collects the bounds of limits that requests and limits exceed.
type bounds struct{ errs []error }

func (b *bounds) refuse(format string, args ...any) {
	b.errs = append(b.errs, fmt.Errorf(format, args...))
}

// pod checks a pod, or each of its containers.
func (b *bounds) pod(item *corev1.LimitRangeItem, pod *corev1.Pod) {
	switch item.Type {
	case corev1.LimitTypeContainer:
		for _, c := range slices.Concat(pod.Spec.Containers, pod.Spec.InitContainers) {
			b.all(item, c.Resources.Requests, c.Resources.Limits)
		}
	case corev1.LimitTypePod:
		var none resourcehelper.PodResourcesOptions
		requests, limits := resourcehelper.AggregateContainerRequests(pod, none), resourcehelper.AggregateContainerLimits(pod, none)
		for _, name := range []corev1.ResourceName{corev1.ResourceCPU, corev1.ResourceMemory} {
			if r := pod.Spec.Resources; r != nil {
				replace(requests, r.Requests, name)
				replace(limits, r.Limits, name)
			}
		}
		b.all(item, requests, limits)
	}
}

// replace sets what the pod itself says of a resource.
func replace(sum, own corev1.ResourceList, name corev1.ResourceName) {
	if q, ok := own[name]; ok {
		sum[name] = q
	}
}

func (b *bounds) all(item *corev1.LimitRangeItem, requests, limits corev1.ResourceList) {
	b.least(item, requests, limits)
	for _, name := range slices.Sorted(maps.Keys(item.Max)) {
		b.most(string(item.Type), name, item.Max[name], requests, limits)
	}
	for _, name := range slices.Sorted(maps.Keys(item.MaxLimitRequestRatio)) {
		b.ratio(string(item.Type), name, item.MaxLimitRequestRatio[name], requests, limits)
	}
}

// claim checks the requests of a claim, which has no limits.
func (b *bounds) claim(item *corev1.LimitRangeItem, claim *corev1.PersistentVolumeClaim) {
	if item.Type != corev1.LimitTypePersistentVolumeClaim {
		return
	}
	requests := claim.Spec.Resources.Requests
	b.least(item, requests, nil)
	for _, name := range slices.Sorted(maps.Keys(item.Max)) {
		most := item.Max[name]
		switch q, ok := requests[name]; {
		case !ok:
			b.refuse("maximum %s usage per %s is %s.  No request is specified", name, item.Type, most.String())
		case over(q, most):
			b.refuse("maximum %s usage per %s is %s, but request is %s", name, item.Type, most.String(), q.String())
		}
	}
}

func (b *bounds) least(item *corev1.LimitRangeItem, requests, limits corev1.ResourceList) {
	for _, name := range slices.Sorted(maps.Keys(item.Min)) {
		least := item.Min[name]
		request, requested := requests[name]
		limit, isLimited := limits[name]
		switch {
		case !requested:
			b.refuse("minimum %s usage per %s is %s.  No request is specified", name, item.Type, least.String())
		case over(least, request):
			b.refuse("minimum %s usage per %s is %s, but request is %s", name, item.Type, least.String(), request.String())
		case isLimited && over(least, limit):
			b.refuse("minimum %s usage per %s is %s, but limit is %s", name, item.Type, least.String(), limit.String())
		}
	}
}

func (b *bounds) most(kind string, name corev1.ResourceName, most apiresource.Quantity, requests, limits corev1.ResourceList) {
	request, requested := requests[name]
	limit, isLimited := limits[name]
	switch {
	case !isLimited:
		b.refuse("maximum %s usage per %s is %s.  No limit is specified", name, kind, most.String())
	case over(limit, most):
		b.refuse("maximum %s usage per %s is %s, but limit is %s", name, kind, most.String(), limit.String())
	case requested && over(request, most):
		b.refuse("maximum %s usage per %s is %s, but request is %s", name, kind, most.String(), request.String())
	}
}

func (b *bounds) ratio(kind string, name corev1.ResourceName, most apiresource.Quantity, requests, limits corev1.ResourceList) {
	request, limit := requests[name], limits[name]
	requested, isLimited := values(request, limit, most)
	switch {
	case requested == 0:
		b.refuse("%s max limit to request ratio per %s is %s, but no request is specified or request is 0", name, kind, most.String())
		return
	case isLimited == 0:
		b.refuse("%s max limit to request ratio per %s is %s, but no limit is specified or limit is 0", name, kind, most.String())
		return
	}
	got, allowed := float64(isLimited)/float64(requested), float64(most.Value())
	if most.Value() <= apiresource.MaxMilliValue {
		allowed = float64(most.MilliValue()) / 1000
	}
	if got > allowed {
		b.refuse("%s max limit to request ratio per %s is %s, but provided ratio is %f", name, kind, most.String(), got)
	}
}

// values returns two quantities in thousandths if they and a third one are small enough, else
// in whole units, rounded up.
func values(a, b, third apiresource.Quantity) (int64, int64) {
	for _, q := range []apiresource.Quantity{a, b, third} {
		if q.Value() > apiresource.MaxMilliValue {
			return a.Value(), b.Value()
		}
	}
	return a.MilliValue(), b.MilliValue()
}

// over reports whether a quantity is greater than another one, as far as values tells.
func over(a, b apiresource.Quantity) bool {
	x, y := values(a, b, b)
	return x > y
}
