package kinds

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	unversionedvalidation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/utils/ptr"

	"portico/backends/core/kinds/podspec"
	"portico/resource/rest"
)

// workload is a kind with a pod template, S is its spec and U its status. Functions that take
// old get nil on create.
type workload[T rest.Object, S, U any] struct {
	spec   func(T) *S
	status func(T) *U
	// template returns the template, nil if there is none.
	template func(T) *corev1.PodTemplateSpec
	defaults func(T)
	// validate and validateStatus check a write of the object and of its status.
	validate       func(obj, old T) field.ErrorList
	validateStatus func(obj, old T) field.ErrorList

	// These may be nil. prepare and keep do what PrepareUpdate does beyond the spec and the
	// status, of the object and of the status subresource. changed reports changes outside
	// the spec that count for the generation.
	prepare  func(obj, old T)
	keep     func(obj, old T)
	changed  func(obj, old T) bool
	warnings func(obj T) []string
	// named is set if a new object should have a name that is a part of a host name.
	named bool
	// warnsOfOld is set if the warnings about an update are those about the stored template.
	warnsOfOld bool
}

func (w *workload[T, S, U]) strategy() rest.Strategy {
	var none T
	return rest.Strategy{
		Default: onDefault(func(obj T) {
			w.defaults(obj)
			if t := w.template(obj); t != nil {
				podspec.SetDefaults(&t.Spec)
			}
		}),
		TrackGeneration: true,
		SpecChanged: changed(func(obj, old T) bool {
			return !equality.Semantic.DeepEqual(w.spec(obj), w.spec(old)) || w.changed != nil && w.changed(obj, old)
		}),
		PrepareCreate: onCreate(func(obj T) {
			*w.status(obj) = *new(U)
			if t := w.template(obj); t != nil {
				podspec.DropTemplateFields(t, nil)
			}
			if w.prepare != nil {
				w.prepare(obj, none)
			}
		}),
		PrepareUpdate: onUpdate(func(obj, old T) {
			*w.status(obj) = *w.status(old.DeepCopyObject().(T))
			if t := w.template(obj); t != nil {
				podspec.DropTemplateFields(t, w.template(old))
			}
			if w.prepare != nil {
				w.prepare(obj, old)
			}
		}),
		Validate:       check(func(obj T) field.ErrorList { return w.validate(obj, none) }),
		ValidateUpdate: checkUpdate(w.validate),
		Warnings: func(_ context.Context, obj, old rest.Object) []string {
			var all []string
			if w.named && old == nil {
				all = podNameWarning(obj.GetName())
			}
			warned := obj
			if old != nil && w.warnsOfOld {
				warned = old
			}
			if t := w.template(warned.(T)); t != nil && (old == nil || obj.GetGeneration() != old.GetGeneration()) {
				all = append(all, podspec.TemplateWarnings(t, field.NewPath("spec", "template"))...)
			}
			if w.warnings != nil {
				all = append(all, w.warnings(obj.(T))...)
			}
			return all
		},
	}
}

// podNameWarning warns of the name of a new object by which its pods cannot have host names.
func podNameWarning(name string) []string {
	if messages := validation.IsDNS1123Label(name); len(messages) > 0 {
		return []string{fmt.Sprintf("metadata.name: this is used in Pod names and hostnames, which can result in surprising behavior; a DNS label is recommended: %v", messages)}
	}
	return nil
}

func (w *workload[T, S, U]) statusSubresource() rest.Subresource {
	return rest.Subresource{Name: "status", Strategy: &rest.Strategy{
		PrepareUpdate: onUpdate(func(obj, old T) {
			*w.spec(obj) = *w.spec(old.DeepCopyObject().(T))
			if w.keep != nil {
				w.keep(obj, old)
			}
		}),
		ValidateUpdate: checkUpdate(w.validateStatus),
	}}
}

// validatePodSelector returns the selector of a workload of the named kind and its errors. ok is
// not set if it cannot be read.
func validatePodSelector(s *metav1.LabelSelector, kind string, path *field.Path) (selector labels.Selector, ok bool, errs field.ErrorList) {
	if s == nil {
		errs = field.ErrorList{field.Required(path, "")}
	} else {
		errs = unversionedvalidation.ValidateLabelSelector(s, unversionedvalidation.LabelSelectorValidationOptions{}, path)
		errs = append(errs, validateSelects(s, kind, path)...)
	}
	selector, err := metav1.LabelSelectorAsSelector(s)
	return selector, err == nil, errs
}

// validateSelects rejects a selector that selects everything.
func validateSelects(s *metav1.LabelSelector, kind string, path *field.Path) field.ErrorList {
	if s == nil || len(s.MatchLabels)+len(s.MatchExpressions) > 0 {
		return nil
	}
	return field.ErrorList{field.Invalid(path, s, "empty selector is invalid for "+kind)}
}

// validatePods returns the errors of the template of a workload of the named kind. old is the
// stored template, nil on create.
func validatePods(t, old *corev1.PodTemplateSpec, selector labels.Selector, kind string, path *field.Path) field.ErrorList {
	errs := validateSelected(t, selector, path)
	errs = append(errs, podspec.ValidateTemplate(t, path, templateOptions(old))...)
	return append(errs, validateEndless(t, kind, path)...)
}

// templateOptions returns the options of a template; old is nil on create.
func templateOptions(old *corev1.PodTemplateSpec) podspec.Options {
	if old == nil {
		return podspec.Options{}
	}
	return podspec.Options{Old: &old.Spec, OldMeta: &old.ObjectMeta}
}

func validateSelected(t *corev1.PodTemplateSpec, selector labels.Selector, path *field.Path) field.ErrorList {
	if selector.Matches(labels.Set(t.Labels)) {
		return nil
	}
	return field.ErrorList{field.Invalid(path.Child("metadata", "labels"), t.Labels, "`selector` does not match template `labels`")}
}

// validateEndless rejects templates of pods that come to an end.
func validateEndless(t *corev1.PodTemplateSpec, kind string, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	if policy := t.Spec.RestartPolicy; policy != corev1.RestartPolicyAlways {
		errs = append(errs, field.NotSupported(path.Child("spec", "restartPolicy"), policy, []corev1.RestartPolicy{corev1.RestartPolicyAlways}))
	}
	if t.Spec.ActiveDeadlineSeconds != nil {
		errs = append(errs, field.Forbidden(path.Child("spec", "activeDeadlineSeconds"), "activeDeadlineSeconds in "+kind+" is not Supported"))
	}
	return errs
}

// nonNegative is ValidateNonnegativeField for fields that may be unset.
func nonNegative[N ~int32 | ~int64](value *N, path *field.Path) field.ErrorList {
	return apivalidation.ValidateNonnegativeField(int64(ptr.Deref(value, 0)), path)
}

// count is a number of a status.
type count struct {
	field string
	value int64
	// ofReplicas is set for a number of pods that are counted in replicas as well.
	ofReplicas bool
}

// validateCounts returns the errors of the numbers of a status, replicas among them.
func validateCounts(replicas int32, counts ...count) field.ErrorList {
	var errs field.ErrorList
	path := field.NewPath("status")
	for _, c := range counts {
		errs = append(errs, apivalidation.ValidateNonnegativeField(c.value, path.Child(c.field))...)
	}
	for _, c := range counts {
		if c.ofReplicas && c.value > int64(replicas) {
			errs = append(errs, field.Invalid(path.Child(c.field), c.value, "cannot be greater than status.replicas"))
		}
	}
	return errs
}

// validateAvailable rejects more available replicas than ready ones; ready names their field.
func validateAvailable(available, readyReplicas int32, ready string) field.ErrorList {
	if available <= readyReplicas {
		return nil
	}
	return field.ErrorList{field.Invalid(field.NewPath("status", "availableReplicas"), available, "cannot be greater than "+ready)}
}

// validateCollisions rejects a decrease of status.collisionCount.
func validateCollisions(now, before *int32) field.ErrorList {
	if before == nil || now != nil && *now >= *before {
		return nil
	}
	return field.ErrorList{field.Invalid(field.NewPath("status", "collisionCount"), ptr.Deref(now, 0), "cannot be decremented")}
}

// podColumns are the columns of the containers and the selector of a template.
func podColumns() []metav1.TableColumnDefinition {
	return []metav1.TableColumnDefinition{
		wide("Containers", "string", "The names of the containers."),
		wide("Images", "string", "The images of the containers."),
		wide("Selector", "string", "The labels of the pods."),
	}
}
