package plugins

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"

	"k8s.io/kubernetes/pkg/apis/core"
	corev1conversion "k8s.io/kubernetes/pkg/apis/core/v1"
	"k8s.io/kubernetes/pkg/apis/core/validation"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"portico/backends/core/kinds/podspec"
	"portico/resource"
	"portico/resource/rest"
)

// Annotations of a namespace with JSON lists of tolerations.
const (
	defaultTolerations = "scheduler.alpha.kubernetes.io/defaultTolerations"
	allowedTolerations = "scheduler.alpha.kubernetes.io/tolerationsWhitelist"
)

// tolerationConfiguration is the configuration of the plugin: the lists of namespaces that have
// none.
type tolerationConfiguration struct {
	metav1.TypeMeta `json:",inline"`
	Default         []corev1.Toleration `json:"default,omitempty"`
	Whitelist       []corev1.Toleration `json:"whitelist,omitempty"`
}

// newPodTolerationRestriction adds the default tolerations of its namespace to a new pod, and
// rejects those that the namespace does not allow.
func newPodTolerationRestriction(cfg *Config) (rest.Admission, error) {
	p := &tolerationRestriction{namespaces: cfg.Resource("", "namespaces")}
	if err := cfg.files.decodeKind("PodTolerationRestriction", "podtolerationrestriction.admission.k8s.io/v1alpha1", &p.config.TypeMeta, &p.config); err != nil {
		return nil, err
	}
	at := field.NewPath("podtolerationrestriction")
	errs := slices.Concat(validateTolerations(p.config.Default, at.Child("default")), validateTolerations(p.config.Whitelist, at.Child("whitelist")))
	if len(errs) > 0 {
		return nil, fmt.Errorf("invalid config: %w", errs.ToAggregate())
	}
	return p, nil
}

// validateTolerations returns the errors that a pod with these tolerations would have.
func validateTolerations(tolerations []corev1.Toleration, path *field.Path) field.ErrorList {
	in := make([]core.Toleration, len(tolerations))
	for i := range tolerations {
		if err := corev1conversion.Convert_v1_Toleration_To_core_Toleration(&tolerations[i], &in[i], nil); err != nil {
			return field.ErrorList{field.InternalError(path.Index(i), err)}
		}
	}
	return validation.ValidateTolerations(in, path, validation.PodValidationOptions{})
}

type tolerationRestriction struct {
	namespaces *rest.Resource
	config     tolerationConfiguration
}

// Mutate implements rest.Admission.
func (p *tolerationRestriction) Mutate(ctx context.Context, a *rest.Attributes) error {
	pod := podOf(a)
	if pod == nil {
		return nil
	}
	var extra []corev1.Toleration
	if a.Operation == rest.Create {
		given, ok, err := p.annotated(ctx, a, defaultTolerations)
		if err != nil {
			return err
		}
		if extra = p.config.Default; ok {
			extra = given
		}
	}
	if !bestEffort(pod) {
		extra = append(slices.Clone(extra), corev1.Toleration{Key: corev1.TaintNodeMemoryPressure, Operator: corev1.TolerationOpExists, Effect: corev1.TaintEffectNoSchedule})
	}
	if len(extra) > 0 {
		pod.Spec.Tolerations = mergeTolerations(pod.Spec.Tolerations, extra)
	}
	return p.Validate(ctx, a)
}

// Validate implements rest.Admission.
func (p *tolerationRestriction) Validate(ctx context.Context, a *rest.Attributes) error {
	pod := podOf(a)
	if pod == nil || len(pod.Spec.Tolerations) == 0 {
		return nil
	}
	allowed, ok, err := p.annotated(ctx, a, allowedTolerations)
	if err != nil {
		return err
	}
	scope := "namespace"
	if !ok {
		allowed, scope = p.config.Whitelist, "cluster"
	}
	if len(allowed) > 0 && !allTolerated(pod.Spec.Tolerations, allowed) {
		return forbidden(a, fmt.Errorf("pod tolerations (possibly merged with namespace default tolerations) conflict with its %s whitelist", scope))
	}
	return nil
}

// annotated returns the tolerations in an annotation of the namespace, and whether it has it.
func (p *tolerationRestriction) annotated(ctx context.Context, a *rest.Attributes, annotation string) (list []corev1.Toleration, ok bool, err error) {
	namespace, err := readLive[*corev1.Namespace](ctx, p.namespaces, resource.Key{Name: a.Key.Namespace})
	if err != nil {
		return nil, false, err
	}
	text, ok := namespace.Annotations[annotation]
	if text == "" {
		return nil, ok, nil
	}
	if err := json.Unmarshal([]byte(text), &list); err != nil {
		return nil, false, fmt.Errorf("annotation %s of namespace %s: %w", annotation, namespace.Name, err)
	}
	return list, ok, nil
}

// bestEffort reports whether a pod asks for neither CPU nor memory.
func bestEffort(pod *corev1.Pod) bool {
	asks := func(r *corev1.ResourceRequirements) bool {
		return r.Requests.Cpu().Sign() > 0 || r.Requests.Memory().Sign() > 0 || r.Limits.Cpu().Sign() > 0 || r.Limits.Memory().Sign() > 0
	}
	if class := pod.Status.QOSClass; class != "" {
		return class == corev1.PodQOSBestEffort
	}
	if pod.Spec.Resources != nil && asks(pod.Spec.Resources) {
		return false
	}
	for c := range podspec.Containers(&pod.Spec) {
		if !c.Ephemeral && asks(&c.Resources) {
			return false
		}
	}
	return true
}
