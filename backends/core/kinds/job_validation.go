package kinds

import (
	"fmt"
	"slices"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	metav1validation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/utils/ptr"

	"portico/backends/core/kinds/podspec"
	"portico/backends/core/kinds/rules"
)

// Limits of jobs.
const (
	maxIndexedParallelism = 100_000
	maxFailedIndexes      = 100_000
	// manyCompletions is the number of completions above which the other limits are
	// parallelismOfMany and failedIndexesOfMany.
	manyCompletions     = 100_000
	parallelismOfMany   = 10_000
	failedIndexesOfMany = 10_000
	maxPolicyRules      = 20
	maxExitCodes        = 255
	maxPodConditions    = 20
	maxManagedBy        = 63
	maxIndexesText      = 64 * 1024
)

func isIndexed(spec *batchv1.JobSpec) bool {
	return ptr.Deref(spec.CompletionMode, batchv1.NonIndexedCompletion) == batchv1.IndexedCompletion
}

func validateJob(job *batchv1.Job) field.ErrorList {
	path := field.NewPath("spec")
	errs := validateGeneratedSelector(job)
	errs = append(errs, validateJobSpec(&job.Spec, nil, path)...)
	errs = append(errs, validateJobSelector(&job.Spec, false, path)...)
	return append(errs, validateIndexedName(job)...)
}

// validateGeneratedSelector requires the labels that the server generated.
func validateGeneratedSelector(job *batchv1.Job) field.ErrorList {
	if ptr.Deref(job.Spec.ManualSelector, false) || job.Spec.Selector == nil {
		return nil
	}
	var errs field.ErrorList
	want := jobLabels(job)
	for key, value := range want {
		at := field.NewPath("spec", "template", "metadata", "labels").Key(key)
		got, ok := job.Spec.Template.Labels[key]
		message := fmt.Sprintf("must be '%s'", value)
		if !ok {
			errs = append(errs, field.Required(at, message))
		} else if got != value {
			errs = append(errs, field.Invalid(at, job.Spec.Template.Labels, message))
		}
	}
	if s, err := metav1.LabelSelectorAsSelector(job.Spec.Selector); err == nil && !s.Matches(labels.Set(want)) {
		errs = append(errs, field.Invalid(field.NewPath("spec", "selector"), job.Spec.Selector, "`selector` not auto-generated"))
	}
	return errs
}

// validateIndexedName requires a name to which the highest index can be added.
func validateIndexedName(job *batchv1.Job) field.ErrorList {
	n := ptr.Deref(job.Spec.Completions, 0)
	if !isIndexed(&job.Spec) || n <= 0 {
		return nil
	}
	host := fmt.Sprintf("%s-%d", job.Name, n-1)
	if len(validation.IsDNS1123Label(host)) == 0 {
		return nil
	}
	return field.ErrorList{field.Invalid(field.NewPath("metadata", "name"), job.Name, "will not able to create pod with invalid DNS label: "+host)}
}

// validateJobSelector requires a selector of the pods of the template. lax permits values that
// no label can have.
func validateJobSelector(spec *batchv1.JobSpec, lax bool, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	if spec.Selector == nil {
		errs = append(errs, field.Required(path.Child("selector"), ""))
	} else {
		errs = append(errs, metav1validation.ValidateLabelSelector(spec.Selector,
			metav1validation.LabelSelectorValidationOptions{AllowInvalidLabelValueInSelector: lax}, path.Child("selector"))...)
	}
	if s, err := metav1.LabelSelectorAsSelector(spec.Selector); err == nil && !s.Matches(labels.Set(spec.Template.Labels)) {
		errs = append(errs, field.Invalid(path.Child("template", "metadata", "labels"), spec.Template.Labels, "`selector` does not match template `labels`"))
	}
	return errs
}

// validateJobSpec validates everything but the selector. old is nil on create.
func validateJobSpec(spec, old *batchv1.JobSpec, path *field.Path) field.ErrorList {
	errs := slices.Concat(
		nonNegative(spec.Parallelism, path.Child("parallelism")),
		nonNegative(spec.Completions, path.Child("completions")),
		nonNegative(spec.ActiveDeadlineSeconds, path.Child("activeDeadlineSeconds")),
		nonNegative(spec.BackoffLimit, path.Child("backoffLimit")),
		nonNegative(spec.TTLSecondsAfterFinished, path.Child("ttlSecondsAfterFinished")),
		nonNegative(spec.BackoffLimitPerIndex, path.Child("backoffLimitPerIndex")),
		nonNegative(spec.MaxFailedIndexes, path.Child("maxFailedIndexes")),
	)
	if spec.MaxFailedIndexes != nil && spec.BackoffLimitPerIndex == nil {
		errs = append(errs, field.Required(path.Child("backoffLimitPerIndex"), "when maxFailedIndexes is specified"))
	}
	if by := spec.ManagedBy; by != nil {
		errs = append(errs, validation.IsDomainPrefixedPath(path.Child("managedBy"), *by)...)
		if len(*by) > maxManagedBy {
			errs = append(errs, field.TooLong(path.Child("managedBy"), "", maxManagedBy))
		}
	}
	errs = append(errs, validateCompletionMode(spec, path)...)
	if spec.PodFailurePolicy != nil {
		errs = append(errs, validatePodFailurePolicy(spec, path.Child("podFailurePolicy", "rules"))...)
	}
	if spec.SuccessPolicy != nil {
		errs = append(errs, validateSuccessPolicy(spec, path.Child("successPolicy"))...)
	}
	if p := spec.PodReplacementPolicy; p != nil {
		supported := []batchv1.PodReplacementPolicy{batchv1.Failed}
		if spec.PodFailurePolicy == nil {
			supported = append(supported, batchv1.TerminatingOrFailed)
		}
		errs = append(errs, rules.Supported(*p, path.Child("podReplacementPolicy"), supported...)...)
	}
	var template *corev1.PodTemplateSpec
	if old != nil {
		template = &old.Template
	}
	errs = append(errs, podspec.ValidateTemplate(&spec.Template, path.Child("template"), templateOptions(template))...)
	return append(errs, validateEnding(spec, path.Child("template", "spec", "restartPolicy"))...)
}

// validateEnding requires a restart policy by which pods come to an end.
func validateEnding(spec *batchv1.JobSpec, path *field.Path) field.ErrorList {
	switch policy := spec.Template.Spec.RestartPolicy; policy {
	case corev1.RestartPolicyAlways, "":
		return field.ErrorList{field.Required(path, fmt.Sprintf("valid values: %q, %q", corev1.RestartPolicyOnFailure, corev1.RestartPolicyNever))}
	case corev1.RestartPolicyOnFailure:
		if spec.PodFailurePolicy != nil {
			return field.ErrorList{field.Invalid(path, policy, fmt.Sprintf("only %q is supported when podFailurePolicy is specified", corev1.RestartPolicyNever))}
		}
		return nil
	default:
		return rules.Supported(policy, path, corev1.RestartPolicyOnFailure, corev1.RestartPolicyNever)
	}
}

// validateCompletionMode validates the fields that the completion mode allows or limits.
func validateCompletionMode(spec *batchv1.JobSpec, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	mode := ptr.Deref(spec.CompletionMode, batchv1.NonIndexedCompletion)
	errs = append(errs, rules.Supported(mode, path.Child("completionMode"), batchv1.NonIndexedCompletion, batchv1.IndexedCompletion)...)
	failed, parallelism := ptr.Deref(spec.MaxFailedIndexes, 0), ptr.Deref(spec.Parallelism, 0)
	atMost := func(name string, value, limit int32, suffix string) {
		if value > limit {
			errs = append(errs, field.Invalid(path.Child(name), value, fmt.Sprintf("must be less than or equal to %d%s", limit, suffix)))
		}
	}
	switch mode {
	case batchv1.NonIndexedCompletion:
		for name, value := range map[string]*int32{"backoffLimitPerIndex": spec.BackoffLimitPerIndex, "maxFailedIndexes": spec.MaxFailedIndexes} {
			if value != nil {
				errs = append(errs, field.Invalid(path.Child(name), *value, "requires indexed completion mode"))
			}
		}
	case batchv1.IndexedCompletion:
		atMost("parallelism", parallelism, maxIndexedParallelism, " when completion mode is Indexed")
		atMost("maxFailedIndexes", failed, maxFailedIndexes, "")
		if spec.Completions == nil {
			return append(errs, field.Required(path.Child("completions"), "when completion mode is Indexed"))
		}
		if spec.MaxFailedIndexes != nil && failed > *spec.Completions {
			errs = append(errs, field.Invalid(path.Child("maxFailedIndexes"), failed, "must be less than or equal to completions"))
		}
		if *spec.Completions > manyCompletions && spec.BackoffLimitPerIndex != nil {
			const many = " when completions are above 100000 and used with backoff limit per index"
			if spec.MaxFailedIndexes == nil {
				errs = append(errs, field.Required(path.Child("maxFailedIndexes"), fmt.Sprintf("must be specified when completions is above %d", manyCompletions)))
			}
			atMost("parallelism", parallelism, parallelismOfMany, many)
			atMost("maxFailedIndexes", failed, failedIndexesOfMany, many)
		}
	}
	return errs
}

func validatePodFailurePolicy(spec *batchv1.JobSpec, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	if n := len(spec.PodFailurePolicy.Rules); n > maxPolicyRules {
		errs = append(errs, field.TooMany(path, n, maxPolicyRules))
	}
	names := map[string]bool{}
	for _, c := range slices.Concat(spec.Template.Spec.Containers, spec.Template.Spec.InitContainers) {
		names[c.Name] = true
	}
	for i, rule := range spec.PodFailurePolicy.Rules {
		at := path.Index(i)
		if rule.Action == batchv1.PodFailurePolicyActionFailIndex {
			if spec.BackoffLimitPerIndex == nil {
				errs = append(errs, field.Invalid(at.Child("action"), rule.Action, "requires the backoffLimitPerIndex to be set"))
			}
		} else {
			errs = append(errs, listed(rule.Action, at.Child("action"), batchv1.PodFailurePolicyActionCount, batchv1.PodFailurePolicyActionFailIndex,
				batchv1.PodFailurePolicyActionFailJob, batchv1.PodFailurePolicyActionIgnore)...)
		}
		if rule.OnExitCodes != nil {
			errs = append(errs, validateExitCodes(rule.OnExitCodes, names, at.Child("onExitCodes"))...)
		}
		errs = append(errs, validateFailureConditions(rule.OnPodConditions, at.Child("onPodConditions"))...)
		switch conditions := len(rule.OnPodConditions) > 0; {
		case conditions && rule.OnExitCodes != nil:
			errs = append(errs, field.Invalid(at, field.OmitValueType{}, "specifying both OnExitCodes and OnPodConditions is not supported"))
		case !conditions && rule.OnExitCodes == nil:
			errs = append(errs, field.Invalid(at, field.OmitValueType{}, "specifying one of OnExitCodes and OnPodConditions is required"))
		}
	}
	return errs
}

// listed is rules.Enum with an error that lists the values if there is none.
func listed[T ~string](value T, path *field.Path, supported ...T) field.ErrorList {
	if value == "" {
		return field.ErrorList{field.Required(path, fmt.Sprintf("valid values: %q", supported))}
	}
	return rules.Supported(value, path, supported...)
}

func validateFailureConditions(patterns []batchv1.PodFailurePolicyOnPodConditionsPattern, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	if len(patterns) > maxPodConditions {
		errs = append(errs, field.TooMany(path, len(patterns), maxPodConditions))
	}
	for i, p := range patterns {
		errs = append(errs, rules.QualifiedName(string(p.Type), path.Index(i).Child("type"))...)
		errs = append(errs, listed(p.Status, path.Index(i).Child("status"), corev1.ConditionFalse, corev1.ConditionTrue, corev1.ConditionUnknown)...)
	}
	return errs
}

func validateExitCodes(codes *batchv1.PodFailurePolicyOnExitCodesRequirement, containers map[string]bool, path *field.Path) field.ErrorList {
	errs := listed(codes.Operator, path.Child("operator"), batchv1.PodFailurePolicyOnExitCodesOpIn, batchv1.PodFailurePolicyOnExitCodesOpNotIn)
	if name := codes.ContainerName; name != nil && !containers[*name] {
		errs = append(errs, field.Invalid(path.Child("containerName"), *name, "must be one of the container or initContainer names in the pod template"))
	}
	values := path.Child("values")
	switch n := len(codes.Values); {
	case n == 0:
		errs = append(errs, field.Invalid(values, codes.Values, "at least one value is required"))
	case n > maxExitCodes:
		errs = append(errs, field.TooMany(values, n, maxExitCodes))
	}
	seen := map[int32]bool{}
	for i, code := range codes.Values {
		if code == 0 && codes.Operator == batchv1.PodFailurePolicyOnExitCodesOpIn {
			errs = append(errs, field.Invalid(values.Index(i), code, "must not be 0 for the In operator"))
		}
		if seen[code] {
			errs = append(errs, field.Duplicate(values.Index(i), code))
		}
		seen[code] = true
	}
	if !slices.IsSorted(codes.Values) {
		errs = append(errs, field.Invalid(values, codes.Values, "must be ordered"))
	}
	return errs
}

func validateSuccessPolicy(spec *batchv1.JobSpec, path *field.Path) field.ErrorList {
	if !isIndexed(spec) {
		return field.ErrorList{field.Invalid(path, *spec.SuccessPolicy, "requires indexed completion mode")}
	}
	var errs field.ErrorList
	path = path.Child("rules")
	switch n := len(spec.SuccessPolicy.Rules); {
	case n == 0:
		errs = append(errs, field.Required(path, "at least one rules must be specified when the successPolicy is specified"))
	case n > maxPolicyRules:
		errs = append(errs, field.TooMany(path, n, maxPolicyRules))
	}
	completions := ptr.Deref(spec.Completions, 0)
	for i, rule := range spec.SuccessPolicy.Rules {
		at := path.Index(i)
		if rule.SucceededCount == nil && rule.SucceededIndexes == nil {
			errs = append(errs, field.Required(at, "at least one of succeededCount or succeededIndexes must be specified"))
		}
		var total int32
		if text := rule.SucceededIndexes; text != nil {
			if len(*text) > maxIndexesText {
				errs = append(errs, field.TooLong(at.Child("succeededIndexes"), "", maxIndexesText))
			}
			all, err := parseIndexes(*text, completions)
			if err != nil {
				errs = append(errs, field.Invalid(at.Child("succeededIndexes"), *text, "error parsing succeededIndexes: "+err.Error()))
				all = nil
			}
			for _, in := range all {
				total += in.last - in.first + 1
			}
		}
		if rule.SucceededCount != nil {
			count, at := *rule.SucceededCount, at.Child("succeededCount")
			errs = append(errs, apivalidation.ValidateNonnegativeField(int64(count), at)...)
			if count > completions {
				errs = append(errs, field.Invalid(at, count, fmt.Sprintf("must be less than or equal to %d (the number of specified completions)", completions)))
			}
			if rule.SucceededIndexes != nil && count > total {
				errs = append(errs, field.Invalid(at, count, fmt.Sprintf("must be less than or equal to %d (the number of indexes in the specified succeededIndexes field)", total)))
			}
		}
	}
	return errs
}

func validateJobUpdate(job, old *batchv1.Job) field.ErrorList {
	path := field.NewPath("spec")
	spec, was := &job.Spec, &old.Spec
	errs := validateJobSpec(spec, was, path)
	errs = append(errs, validateJobSelector(spec, metav1validation.LabelSelectorHasInvalidLabelValue(was.Selector), path)...)
	errs = append(errs, validateCompletionsUpdate(spec, was, path)...)
	errs = append(errs, validateJobTemplateUpdate(job, old, path.Child("template"))...)
	for _, f := range []struct {
		name     string
		now, was any
	}{
		{"selector", spec.Selector, was.Selector},
		{"completionMode", spec.CompletionMode, was.CompletionMode},
		{"podFailurePolicy", spec.PodFailurePolicy, was.PodFailurePolicy},
		{"backoffLimitPerIndex", spec.BackoffLimitPerIndex, was.BackoffLimitPerIndex},
		{"managedBy", spec.ManagedBy, was.ManagedBy},
		{"successPolicy", spec.SuccessPolicy, was.SuccessPolicy},
	} {
		errs = append(errs, apivalidation.ValidateImmutableField(f.now, f.was, path.Child(f.name))...)
	}
	return append(errs, validateIndexedName(job)...)
}

// validateCompletionsUpdate permits a change of the completions of an indexed job together with
// its parallelism.
func validateCompletionsUpdate(spec, old *batchv1.JobSpec, path *field.Path) field.ErrorList {
	at := path.Child("completions")
	if !isIndexed(spec) {
		return apivalidation.ValidateImmutableField(spec.Completions, old.Completions, at)
	}
	if spec.Completions == nil || ptr.Equal(spec.Completions, old.Completions) || *spec.Completions == ptr.Deref(spec.Parallelism, 0) {
		return nil
	}
	return field.ErrorList{field.Invalid(at, spec.Completions, fmt.Sprintf("can only be modified in tandem with %s", at.Root().Child("parallelism")))}
}

// validateJobTemplateUpdate permits changes of a suspended job without pods to where its pods
// run and what resources they get.
func validateJobTemplateUpdate(job, old *batchv1.Job, path *field.Path) field.ErrorList {
	if !ptr.Deref(old.Spec.Suspend, false) || old.Status.Active != 0 ||
		old.Status.StartTime != nil && !hasJobCondition(old, batchv1.JobSuspended, corev1.ConditionTrue) {
		return apivalidation.ValidateImmutableField(&job.Spec.Template, &old.Spec.Template, path)
	}
	spec, was := &job.Spec.Template.Spec, old.Spec.Template.Spec.DeepCopy()
	was.NodeSelector, was.Tolerations, was.SchedulingGates = spec.NodeSelector, spec.Tolerations, spec.SchedulingGates
	switch {
	case spec.Affinity != nil:
		rules.Default(&was.Affinity, corev1.Affinity{})
		was.Affinity.NodeAffinity = spec.Affinity.NodeAffinity
	case was.Affinity != nil:
		if was.Affinity.NodeAffinity = nil; *was.Affinity == (corev1.Affinity{}) {
			was.Affinity = nil
		}
	}
	keepResources(was.Containers, spec.Containers)
	keepResources(was.InitContainers, spec.InitContainers)
	return apivalidation.ValidateImmutableField(*spec, *was, path.Child("spec"))
}

// keepResources copies the resources of containers of the same names.
func keepResources(to, from []corev1.Container) {
	if len(to) != len(from) {
		return
	}
	for i := range from {
		if to[i].Name == from[i].Name {
			to[i].Resources = from[i].Resources
		}
	}
}
