package kinds

import (
	"cmp"
	"fmt"
	"slices"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	unversionedvalidation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/utils/ptr"

	"portico/backends/core/kinds/podspec"
	"portico/backends/core/kinds/rules"
	"portico/resource"
	"portico/resource/rest"
)

// statefulSets is the row of apps/v1 StatefulSet.
// They are stored as JSON: as protobuf, in which kube-apiserver stores them, the claim templates lose
// their apiVersion and kind.
func statefulSets(scheme *runtime.Scheme) *rest.Kind {
	info := resource.Info{
		Group: appsv1.GroupName, Versions: []string{"v1"}, Resource: "statefulsets", Kind: "StatefulSet",
		ShortNames: []string{"sts"}, Categories: []string{"all"}, Namespaced: true,
	}
	w := &workload[*appsv1.StatefulSet, appsv1.StatefulSetSpec, appsv1.StatefulSetStatus]{
		spec:           func(sts *appsv1.StatefulSet) *appsv1.StatefulSetSpec { return &sts.Spec },
		status:         func(sts *appsv1.StatefulSet) *appsv1.StatefulSetStatus { return &sts.Status },
		template:       func(sts *appsv1.StatefulSet) *corev1.PodTemplateSpec { return &sts.Spec.Template },
		defaults:       defaultStatefulSet,
		validate:       validateStatefulSet,
		validateStatus: validateStatefulSetStatus,
		warnings:       statefulSetWarnings,
	}
	strategy := w.strategy()
	strategy.ValidateName = apivalidation.NameIsDNSLabel
	return withDefaults(&rest.Kind{
		Info:     info,
		Codec:    rest.TypedJSON(scheme, appsv1.SchemeGroupVersion.WithKind(info.Kind), nil),
		Strategy: strategy,
		Subresources: []rest.Subresource{
			scale(&info, func(sts *appsv1.StatefulSet) **int32 { return &sts.Spec.Replicas },
				func(sts *appsv1.StatefulSet) (int32, labels.Selector, error) {
					return selected(sts.Status.Replicas, sts.Spec.Selector)
				}),
			w.statusSubresource(),
		},
		Columns: append([]metav1.TableColumnDefinition{
			nameColumn(), column("Ready", "string", "The ready and the desired pods."), ageColumn(),
		}, podColumns()[:2]...),
		Cells: cells(func(sts *appsv1.StatefulSet) []any {
			names, images := containerCells(sts.Spec.Template.Spec.Containers)
			ready := fmt.Sprintf("%d/%d", sts.Status.ReadyReplicas, ptr.Deref(sts.Spec.Replicas, 0))
			return []any{sts.Name, ready, age(sts.CreationTimestamp), names, images}
		}),
		UnconditionalUpdate: true,
	})
}

func defaultStatefulSet(sts *appsv1.StatefulSet) {
	spec := &sts.Spec
	rules.Default(&spec.Replicas, 1)
	rules.Default(&spec.RevisionHistoryLimit, 10)
	spec.PodManagementPolicy = cmp.Or(spec.PodManagementPolicy, appsv1.OrderedReadyPodManagement)
	s := &spec.UpdateStrategy
	if s.Type == "" {
		s.Type = appsv1.RollingUpdateStatefulSetStrategyType
		rules.Default(&s.RollingUpdate, appsv1.RollingUpdateStatefulSetStrategy{})
	}
	if s.Type == appsv1.RollingUpdateStatefulSetStrategyType && s.RollingUpdate != nil {
		rules.Default(&s.RollingUpdate.Partition, 0)
		rules.Default(&s.RollingUpdate.MaxUnavailable, intstr.FromInt32(1))
	}
	rules.Default(&spec.PersistentVolumeClaimRetentionPolicy, appsv1.StatefulSetPersistentVolumeClaimRetentionPolicy{})
	retain := spec.PersistentVolumeClaimRetentionPolicy
	retain.WhenDeleted = cmp.Or(retain.WhenDeleted, appsv1.RetainPersistentVolumeClaimRetentionPolicyType)
	retain.WhenScaled = cmp.Or(retain.WhenScaled, appsv1.RetainPersistentVolumeClaimRetentionPolicyType)
	for i := range spec.VolumeClaimTemplates {
		claim := &spec.VolumeClaimTemplates[i]
		claim.APIVersion, claim.Kind = "v1", "PersistentVolumeClaim"
		claim.Status.Phase = cmp.Or(claim.Status.Phase, corev1.ClaimPending)
		podspec.SetClaimDefaults(&claim.Spec)
		rules.RoundUp(claim.Status.Capacity)
		rules.RoundUp(claim.Status.AllocatedResources)
	}
}

func validateStatefulSet(sts, old *appsv1.StatefulSet) field.ErrorList {
	path := field.NewPath("spec")
	if old == nil {
		errs := validateStatefulSetSpec(&sts.Spec, nil, true, path)
		for i := range sts.Spec.VolumeClaimTemplates {
			at := path.Child("volumeClaimTemplates").Index(i).Child("spec")
			errs = append(errs, podspec.ValidateClaimSpec(&sts.Spec.VolumeClaimTemplates[i].Spec, at, podspec.ClaimOptions{})...)
		}
		if name := sts.Spec.ServiceName; name != "" {
			errs = append(errs, rules.DNSLabel(name, path.Child("serviceName"))...)
		}
		return errs
	}
	// A template that a later release rejects is not checked again.
	checkPods := len(validateStatefulSetSpec(&old.Spec, &old.Spec, true, path)) == 0
	errs := validateStatefulSetSpec(&sts.Spec, &old.Spec, checkPods, path)
	errs = append(errs, apivalidation.ValidateImmutableField(sts.Spec.Selector, old.Spec.Selector, path.Child("selector"))...)
	errs = append(errs, apivalidation.ValidateImmutableField(sts.Spec.VolumeClaimTemplates, old.Spec.VolumeClaimTemplates, path.Child("volumeClaimTemplates"))...)
	errs = append(errs, apivalidation.ValidateImmutableField(sts.Spec.ServiceName, old.Spec.ServiceName, path.Child("serviceName"))...)
	return append(errs, apivalidation.ValidateImmutableField(sts.Spec.PodManagementPolicy, old.Spec.PodManagementPolicy, path.Child("podManagementPolicy"))...)
}

// validateStatefulSetSpec returns the errors of what may be updated, and with checkPods those
// of the template. old is nil on create.
func validateStatefulSetSpec(spec, old *appsv1.StatefulSetSpec, checkPods bool, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	var oldTemplate *corev1.PodTemplateSpec
	var oldType appsv1.StatefulSetUpdateStrategyType
	if old != nil {
		oldTemplate, oldType = &old.Template, old.UpdateStrategy.Type
	}
	switch policy, at := spec.PodManagementPolicy, path.Child("podManagementPolicy"); policy {
	case "":
		errs = append(errs, field.Required(at, ""))
	case appsv1.OrderedReadyPodManagement, appsv1.ParallelPodManagement:
	default:
		errs = append(errs, field.Invalid(at, policy, "must be 'OrderedReady' or 'Parallel'"))
	}
	errs = append(errs, validateStatefulSetStrategy(&spec.UpdateStrategy, oldType, path.Child("updateStrategy"))...)
	if p, at := spec.PersistentVolumeClaimRetentionPolicy, path.Child("persistentVolumeClaimRetentionPolicy"); p != nil {
		errs = append(errs, validateRetention(p.WhenDeleted, at.Child("whenDeleted"))...)
		errs = append(errs, validateRetention(p.WhenScaled, at.Child("whenScaled"))...)
	}
	errs = append(errs, nonNegative(spec.Replicas, path.Child("replicas"))...)
	errs = append(errs, nonNegative(&spec.MinReadySeconds, path.Child("minReadySeconds"))...)
	if spec.Ordinals != nil {
		errs = append(errs, nonNegative(&spec.Ordinals.Start, path.Child("ordinals", "start"))...)
	}
	selector, ok, selectorErrs := validatePodSelector(spec.Selector, "statefulset", path.Child("selector"))
	errs = append(errs, selectorErrs...)
	template := path.Child("template")
	if !ok {
		errs = append(errs, field.Invalid(path.Child("selector"), spec.Selector, ""))
	} else {
		errs = append(errs, validateSelected(&spec.Template, selector, template)...)
		if checkPods {
			errs = append(errs, podspec.ValidateTemplate(asRun(spec), template, templateOptions(oldTemplate))...)
		} else {
			errs = append(errs, unversionedvalidation.ValidateLabels(spec.Template.Labels, template.Child("labels"))...)
			errs = append(errs, apivalidation.ValidateAnnotations(spec.Template.Annotations, template.Child("annotations"))...)
			errs = append(errs, podspec.ValidateAnnotations(spec.Template.Annotations, &spec.Template.Spec, template.Child("annotations"), templateOptions(oldTemplate))...)
		}
	}
	return append(errs, validateEndless(&spec.Template, "StatefulSet", template)...)
}

func validateRetention(p appsv1.PersistentVolumeClaimRetentionPolicyType, path *field.Path) field.ErrorList {
	return rules.Supported(p, path, appsv1.RetainPersistentVolumeClaimRetentionPolicyType, appsv1.DeletePersistentVolumeClaimRetentionPolicyType)
}

// asRun returns the template with what a controller changes in pods: their host names, and
// volumes of the claims.
func asRun(spec *appsv1.StatefulSetSpec) *corev1.PodTemplateSpec {
	t := spec.Template
	t.Spec.Hostname, t.Spec.Subdomain = "", ""
	if len(spec.VolumeClaimTemplates) == 0 {
		return &t
	}
	volumes := make([]corev1.Volume, 0, len(spec.VolumeClaimTemplates)+len(t.Spec.Volumes))
	names := map[string]bool{}
	for _, claim := range spec.VolumeClaimTemplates {
		if !names[claim.Name] {
			names[claim.Name] = true
			volumes = append(volumes, corev1.Volume{Name: claim.Name, VolumeSource: corev1.VolumeSource{
				PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: claim.Name},
			}})
		}
	}
	others := slices.DeleteFunc(slices.Clone(t.Spec.Volumes), func(v corev1.Volume) bool { return names[v.Name] })
	t.Spec.Volumes = append(volumes, others...)
	return &t
}

// validateStatefulSetStrategy accepts Recreate, which is off by default, if old is Recreate.
func validateStatefulSetStrategy(s *appsv1.StatefulSetUpdateStrategy, old appsv1.StatefulSetUpdateStrategyType, path *field.Path) field.ErrorList {
	rolling := path.Child("rollingUpdate")
	recreate := old == appsv1.RecreateStatefulSetStrategyType
	switch {
	case s.Type == "":
		return field.ErrorList{field.Required(path, "")}
	case s.Type == appsv1.RollingUpdateStatefulSetStrategyType && s.RollingUpdate != nil:
		errs := nonNegative(s.RollingUpdate.Partition, rolling.Child("partition"))
		if m := s.RollingUpdate.MaxUnavailable; m != nil {
			path := rolling.Child("maxUnavailable")
			errs = append(errs, rules.IntOrPercent(*m, path)...)
			if rules.PercentValue(*m) == 0 {
				errs = append(errs, field.Invalid(path, *m, "cannot be 0"))
			}
			errs = append(errs, rules.AtMost100Percent(*m, path)...)
		}
		return errs
	case s.Type == appsv1.RollingUpdateStatefulSetStrategyType:
		return nil
	case s.Type == appsv1.OnDeleteStatefulSetStrategyType || s.Type == appsv1.RecreateStatefulSetStrategyType && recreate:
		if s.RollingUpdate != nil {
			return field.ErrorList{field.Invalid(rolling, s.RollingUpdate, "only allowed for updateStrategy 'RollingUpdate'")}
		}
		return nil
	case recreate:
		return field.ErrorList{field.Invalid(path, *s, "must be 'RollingUpdate', 'OnDelete', or 'Recreate'")}
	}
	return field.ErrorList{field.Invalid(path, *s, "must be 'RollingUpdate' or 'OnDelete'")}
}

func validateStatefulSetStatus(sts, old *appsv1.StatefulSet) field.ErrorList {
	s := &sts.Status
	errs := validateCounts(s.Replicas,
		count{"replicas", int64(s.Replicas), false},
		count{"readyReplicas", int64(s.ReadyReplicas), true},
		count{"currentReplicas", int64(s.CurrentReplicas), true},
		count{"updatedReplicas", int64(s.UpdatedReplicas), true},
		count{"availableReplicas", int64(s.AvailableReplicas), true},
		count{"observedGeneration", s.ObservedGeneration, false},
		count{"collisionCount", int64(ptr.Deref(s.CollisionCount, 0)), false})
	errs = append(errs, validateAvailable(s.AvailableReplicas, s.ReadyReplicas, "status.readyReplicas")...)
	return append(errs, validateCollisions(s.CollisionCount, old.Status.CollisionCount)...)
}

func statefulSetWarnings(sts *appsv1.StatefulSet) []string {
	var warnings []string
	for i := range sts.Spec.VolumeClaimTemplates {
		warnings = append(warnings, podspec.ClaimWarnings(&sts.Spec.VolumeClaimTemplates[i].Spec, field.NewPath("spec", "volumeClaimTemplates").Index(i))...)
	}
	if limit := sts.Spec.RevisionHistoryLimit; limit != nil && *limit < 0 {
		warnings = append(warnings, "spec.revisionHistoryLimit: a negative value retains all historical revisions; a value >= 0 is recommended")
	}
	return warnings
}
