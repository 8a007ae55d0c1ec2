package kinds

import (
	"cmp"
	"context"
	"strconv"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	unversionedvalidation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/utils/ptr"

	"portico/backends/core/kinds/podspec"
	"portico/backends/core/kinds/rules"
	"portico/resource"
	"portico/resource/rest"
)

// daemonSets is the row of apps/v1 DaemonSet. An annotation counts the changes of its template.
func daemonSets() *rest.Kind {
	w := &workload[*appsv1.DaemonSet, appsv1.DaemonSetSpec, appsv1.DaemonSetStatus]{
		spec:           func(ds *appsv1.DaemonSet) *appsv1.DaemonSetSpec { return &ds.Spec },
		status:         func(ds *appsv1.DaemonSet) *appsv1.DaemonSetStatus { return &ds.Status },
		template:       func(ds *appsv1.DaemonSet) *corev1.PodTemplateSpec { return &ds.Spec.Template },
		defaults:       defaultDaemonSet,
		validate:       validateDaemonSet,
		validateStatus: validateDaemonSetStatus,
		prepare:        countTemplates,
		keep:           func(ds, old *appsv1.DaemonSet) { setTemplateGeneration(ds, templateGeneration(old)) },
	}
	strategy := w.strategy()
	strategy.Check = checkTemplateGeneration
	return &rest.Kind{
		Info: resource.Info{
			Group: appsv1.GroupName, Versions: []string{"v1"}, Resource: "daemonsets", Kind: "DaemonSet",
			ShortNames: []string{"ds"}, Categories: []string{"all"}, Namespaced: true,
		},
		Strategy:     strategy,
		Subresources: []rest.Subresource{w.statusSubresource()},
		Columns: append([]metav1.TableColumnDefinition{
			nameColumn(),
			column("Desired", "integer", "The nodes that should run the pod."),
			column("Current", "integer", "The nodes that run it and should."),
			column("Ready", "integer", "The nodes on which it is ready."),
			column("Up-to-date", "integer", "The nodes on which it has the template."),
			column("Available", "integer", "The nodes on which it has been ready for minReadySeconds."),
			column("Node Selector", "string", "The labels of the nodes."),
			ageColumn(),
		}, podColumns()...),
		Cells: cells(func(ds *appsv1.DaemonSet) []any {
			s := &ds.Status
			names, images := containerCells(ds.Spec.Template.Spec.Containers)
			return []any{
				ds.Name, int64(s.DesiredNumberScheduled), int64(s.CurrentNumberScheduled), int64(s.NumberReady), int64(s.UpdatedNumberScheduled), int64(s.NumberAvailable),
				labels.FormatLabels(ds.Spec.Template.Spec.NodeSelector), age(ds.CreationTimestamp), names, images, metav1.FormatLabelSelector(ds.Spec.Selector),
			}
		}),
		UnconditionalUpdate: true,
	}
}

func defaultDaemonSet(ds *appsv1.DaemonSet) {
	if _, ok := ds.Annotations[appsv1.DeprecatedTemplateGeneration]; !ok { // before field ownership is recorded, so that the writer owns it
		setTemplateGeneration(ds, 0)
	}
	rules.Default(&ds.Spec.RevisionHistoryLimit, 10)
	s := &ds.Spec.UpdateStrategy
	s.Type = cmp.Or(s.Type, appsv1.RollingUpdateDaemonSetStrategyType)
	if s.Type == appsv1.RollingUpdateDaemonSetStrategyType {
		rules.Default(&s.RollingUpdate, appsv1.RollingUpdateDaemonSet{})
		rules.Default(&s.RollingUpdate.MaxUnavailable, intstr.FromInt32(1))
	}
	if s.RollingUpdate != nil { // with another type as well
		rules.Default(&s.RollingUpdate.MaxUnavailable, intstr.FromInt32(0))
		rules.Default(&s.RollingUpdate.MaxSurge, intstr.FromInt32(0))
	}
}

// countTemplates keeps the number of the template, and increases it with each change.
func countTemplates(ds, old *appsv1.DaemonSet) {
	switch {
	case old == nil:
		setTemplateGeneration(ds, max(1, templateGeneration(ds)))
	case equality.Semantic.DeepEqual(ds.Spec.Template, old.Spec.Template):
		setTemplateGeneration(ds, templateGeneration(old))
	default:
		setTemplateGeneration(ds, templateGeneration(old)+1)
	}
}

// checkTemplateGeneration refuses an annotation that is no number, as kube-apiserver, for which it
// is a field.
func checkTemplateGeneration(_ context.Context, _ string, obj, _ rest.Object) error {
	text, ok := obj.GetAnnotations()[appsv1.DeprecatedTemplateGeneration]
	if !ok {
		return nil
	}
	if _, err := strconv.ParseInt(text, 10, 64); err != nil {
		return apierrors.NewBadRequest(`DaemonSet in version "v1" cannot be handled as a DaemonSet: ` + err.Error())
	}
	return nil
}

// templateGeneration returns the number of the template, 0 if it is not well formed.
func templateGeneration(ds *appsv1.DaemonSet) int64 {
	n, err := strconv.ParseInt(ds.Annotations[appsv1.DeprecatedTemplateGeneration], 10, 64)
	if err != nil {
		return 0
	}
	return n
}

func setTemplateGeneration(ds *appsv1.DaemonSet, n int64) {
	metav1.SetMetaDataAnnotation(&ds.ObjectMeta, appsv1.DeprecatedTemplateGeneration, strconv.FormatInt(n, 10))
}

func validateDaemonSet(ds, old *appsv1.DaemonSet) field.ErrorList {
	spec, path := &ds.Spec, field.NewPath("spec")
	var errs field.ErrorList
	var o unversionedvalidation.LabelSelectorValidationOptions
	var oldTemplate *corev1.PodTemplateSpec
	if old != nil {
		oldTemplate = &old.Spec.Template
		o.AllowInvalidLabelValueInSelector = unversionedvalidation.LabelSelectorHasInvalidLabelValue(old.Spec.Selector)
		errs = apivalidation.ValidateImmutableField(spec.Selector, old.Spec.Selector, path.Child("selector"))
	}
	template := path.Child("template")
	errs = append(errs, unversionedvalidation.ValidateLabelSelector(spec.Selector, o, path.Child("selector"))...)
	if selector, err := metav1.LabelSelectorAsSelector(spec.Selector); err == nil {
		errs = append(errs, validateSelected(&spec.Template, selector, template)...)
	}
	errs = append(errs, validateSelects(spec.Selector, "daemonset", path.Child("selector"))...)
	errs = append(errs, podspec.ValidateTemplate(&spec.Template, template, templateOptions(oldTemplate))...)
	errs = append(errs, validateEndless(&spec.Template, "DaemonSet", template)...)
	errs = append(errs, nonNegative(&spec.MinReadySeconds, path.Child("minReadySeconds"))...)
	errs = append(errs, validateDaemonSetStrategy(&spec.UpdateStrategy, path.Child("updateStrategy"))...)
	return append(errs, nonNegative(spec.RevisionHistoryLimit, path.Child("revisionHistoryLimit"))...)
}

func validateDaemonSetStrategy(s *appsv1.DaemonSetUpdateStrategy, path *field.Path) field.ErrorList {
	switch s.Type {
	case appsv1.OnDeleteDaemonSetStrategyType:
		return nil
	case appsv1.RollingUpdateDaemonSetStrategyType:
	default:
		return field.ErrorList{field.NotSupported(path, s, []appsv1.DaemonSetUpdateStrategyType{appsv1.RollingUpdateDaemonSetStrategyType, appsv1.OnDeleteDaemonSetStrategyType})}
	}
	path = path.Child("rollingUpdate")
	if s.RollingUpdate == nil {
		return field.ErrorList{field.Required(path, "")}
	}
	unavailable, surge := ptr.Deref(s.RollingUpdate.MaxUnavailable, intstr.IntOrString{}), ptr.Deref(s.RollingUpdate.MaxSurge, intstr.IntOrString{})
	errs := rules.IntOrPercent(unavailable, path.Child("maxUnavailable"))
	errs = append(errs, rules.IntOrPercent(surge, path.Child("maxSurge"))...)
	errs = append(errs, rules.AtMost100Percent(unavailable, path.Child("maxUnavailable"))...)
	errs = append(errs, rules.AtMost100Percent(surge, path.Child("maxSurge"))...)
	switch hasUnavailable, hasSurge := rules.PercentValue(unavailable) != 0, rules.PercentValue(surge) != 0; {
	case hasUnavailable && hasSurge:
		errs = append(errs, field.Invalid(path.Child("maxSurge"), surge, "may not be set when maxUnavailable is non-zero"))
	case !hasUnavailable && !hasSurge:
		errs = append(errs, field.Required(path.Child("maxUnavailable"), "cannot be 0 when maxSurge is 0"))
	}
	return errs
}

func validateDaemonSetStatus(ds, old *appsv1.DaemonSet) field.ErrorList {
	s := &ds.Status
	errs := validateCounts(0,
		count{"currentNumberScheduled", int64(s.CurrentNumberScheduled), false},
		count{"numberMisscheduled", int64(s.NumberMisscheduled), false},
		count{"desiredNumberScheduled", int64(s.DesiredNumberScheduled), false},
		count{"numberReady", int64(s.NumberReady), false},
		count{"observedGeneration", s.ObservedGeneration, false},
		count{"updatedNumberScheduled", int64(s.UpdatedNumberScheduled), false},
		count{"numberAvailable", int64(s.NumberAvailable), false},
		count{"numberUnavailable", int64(s.NumberUnavailable), false},
		count{"collisionCount", int64(ptr.Deref(s.CollisionCount, 0)), false})
	return append(errs, validateCollisions(s.CollisionCount, old.Status.CollisionCount)...)
}
