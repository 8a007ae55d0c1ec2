package kinds

import (
	"encoding/json"
	"fmt"
	"regexp"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	metav1validation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
	netutils "k8s.io/utils/net"

	"portico/backends/core/kinds/rules"
)

// taintsAnnotation had the taints of nodes in old releases.
const taintsAnnotation = "scheduler.alpha.kubernetes.io/taints"

// nodeFeature is the form of a feature that a node declares.
var nodeFeature = regexp.MustCompile(`^[A-Z][a-zA-Z0-9]*(/[a-zA-Z][a-zA-Z0-9]*)*$`)

// validateNode returns the errors of a node by itself. Paths below metadata that are not those
// of the fields are as upstream.
func validateNode(n *corev1.Node) field.ErrorList {
	meta := field.NewPath("metadata")
	errs := validateNodeAnnotations(n.Annotations, meta.Child("annotations"))
	errs = append(errs, validateTaints(n.Spec.Taints, meta.Child("taints"))...)
	errs = append(errs, validateNodeResources(&n.Status)...)
	if swap := n.Status.NodeInfo.Swap; swap != nil && swap.Capacity != nil && *swap.Capacity <= 0 {
		errs = append(errs, field.Invalid(meta.Child("nodeSwapStatus", "capacity"), *swap.Capacity, "must be greater than zero"))
	}
	errs = append(errs, validateNodeFeatures(n.Status.DeclaredFeatures, field.NewPath("status", "declaredFeatures"))...)
	path, cidrs := field.NewPath("spec", "podCIDRs"), n.Spec.PodCIDRs
	for i, cidr := range cidrs {
		errs = append(errs, validation.IsValidCIDRForLegacyField(path.Index(i), cidr, true, nil)...)
	}
	if len(cidrs) > 1 {
		dual, err := netutils.IsDualStackCIDRStrings(cidrs)
		if err != nil {
			errs = append(errs, field.InternalError(path, fmt.Errorf("invalid PodCIDRs. failed to check with dual stack with error:%v", err)))
		}
		if !dual || len(cidrs) > 2 {
			errs = append(errs, field.Invalid(path, cidrs, "may specify no more than one CIDR for each IP family"))
		}
	}
	return errs
}

// validateNodeUpdate returns the errors of an update of a node or of its status.
func validateNodeUpdate(n, old *corev1.Node) field.ErrorList {
	meta, spec, status := field.NewPath("metadata"), field.NewPath("spec"), field.NewPath("status")
	errs := validateNodeAnnotations(n.Annotations, meta.Child("annotations"))
	errs = append(errs, validateNodeResources(&n.Status)...)
	errs = append(errs, validateNodeFeatures(n.Status.DeclaredFeatures, status.Child("declaredFeatures"))...)
	for i, a := range n.Status.Addresses {
		if slices.Contains(n.Status.Addresses[:i], a) {
			errs = append(errs, field.Duplicate(status.Child("addresses").Index(i), a))
		}
	}
	if len(old.Spec.PodCIDRs) > 0 && !slices.Equal(old.Spec.PodCIDRs, n.Spec.PodCIDRs) {
		errs = append(errs, field.Forbidden(spec.Child("podCIDRs"), `node updates may not change podCIDR except from "" to valid`))
	}
	switch id := n.Spec.ProviderID; {
	case old.Spec.ProviderID == "" || old.Spec.ProviderID == id:
	case id == "":
		errs = append(errs, field.Invalid(spec.Child("providerID"), nil, "field cannot be cleared once set"))
	default:
		errs = append(errs, field.Invalid(spec.Child("providerID"), nil, "field cannot be modified once set"))
	}
	errs = append(errs, validateConfigSource(n.Spec.ConfigSource, false, spec.Child("configSource"))...)
	if c := n.Status.Config; c != nil {
		path := status.Child("config")
		errs = append(errs, validateConfigSource(c.Assigned, true, path.Child("assigned"))...)
		errs = append(errs, validateConfigSource(c.Active, true, path.Child("active"))...)
		errs = append(errs, validateConfigSource(c.LastKnownGood, true, path.Child("lastKnownGood"))...)
	}
	errs = append(errs, validateTaints(n.Spec.Taints, meta.Child("taints"))...)
	if n.Spec.DoNotUseExternalID != old.Spec.DoNotUseExternalID {
		errs = append(errs, field.Forbidden(spec.Child("externalID"), "may not be updated"))
	}
	if p := n.Spec.PodPreemptionPolicy; p != nil && !equality.Semantic.DeepEqual(p, old.Spec.PodPreemptionPolicy) {
		errs = append(errs, field.Forbidden(spec.Child("podPreemptionPolicy"), ""))
	}
	return errs
}

func validateNodeResources(s *corev1.NodeStatus) field.ErrorList {
	var errs field.ErrorList
	for name, q := range s.Capacity {
		errs = append(errs, rules.ResourceQuantity(name, q, field.NewPath("status", "capacity", string(name)))...)
	}
	for name, q := range s.Allocatable {
		errs = append(errs, rules.ResourceQuantity(name, q, field.NewPath("status", "allocatable", string(name)))...)
	}
	return errs
}

// validateNodeFeatures requires sorted features.
func validateNodeFeatures(features []string, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	for i, f := range features {
		if len(f) > validation.DNS1123SubdomainMaxLength {
			errs = append(errs, field.Invalid(path.Index(i), f, fmt.Sprintf("invalid feature name %q: must be no more than %d characters", f, validation.DNS1123SubdomainMaxLength)))
		} else if !nodeFeature.MatchString(f) {
			errs = append(errs, field.Invalid(path.Index(i), f, fmt.Sprintf("invalid feature name %q: must start with an UpperCamelCase segment, with subsequent segments separated by '/' (e.g., MyFeature or MyFeature/mySubFeature), and contain only alphanumeric characters and slashes", f)))
		}
		switch {
		case i == 0 || features[i-1] < f:
		case features[i-1] == f:
			errs = append(errs, field.Duplicate(path.Index(i), f))
		default:
			errs = append(errs, field.Invalid(path.Index(i), f, "list must be sorted alphabetically"))
		}
	}
	return errs
}

// validateTaints requires taints that are unique by key and effect.
func validateTaints(taints []corev1.Taint, path *field.Path) field.ErrorList {
	type identity struct {
		key    string
		effect corev1.TaintEffect
	}
	var errs field.ErrorList
	seen := map[identity]bool{}
	for i, t := range taints {
		at := path.Index(i)
		errs = append(errs, metav1validation.ValidateLabelName(t.Key, at.Child("key"))...)
		if messages := validation.IsValidLabelValue(t.Value); len(messages) > 0 {
			errs = append(errs, field.Invalid(at.Child("value"), t.Value, strings.Join(messages, ";")))
		}
		errs = append(errs, rules.Enum(t.Effect, at.Child("effect"), rules.TaintEffects...)...)
		if id := (identity{t.Key, t.Effect}); seen[id] {
			duplicate := field.Duplicate(at, t)
			duplicate.Detail = "taints must be unique by key and effect pair"
			errs = append(errs, duplicate)
		} else {
			seen[id] = true
		}
	}
	return errs
}

// validateNodeAnnotations checks the annotations of the scheduler of old releases.
func validateNodeAnnotations(annotations map[string]string, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	if text := annotations[taintsAnnotation]; text != "" {
		var taints []corev1.Taint
		if err := json.Unmarshal([]byte(text), &taints); err != nil {
			errs = append(errs, field.Invalid(path, taintsAnnotation, err.Error()))
		} else {
			errs = append(errs, validateTaints(taints, path.Child(taintsAnnotation))...)
		}
	}
	text := annotations[corev1.PreferAvoidPodsAnnotationKey]
	if text == "" {
		return errs
	}
	var avoid corev1.AvoidPods
	if err := json.Unmarshal([]byte(text), &avoid); err != nil {
		return append(errs, field.Invalid(path.Child("AvoidPods"), corev1.PreferAvoidPodsAnnotationKey, err.Error()))
	}
	for i, p := range avoid.PreferAvoidPods {
		at := path.Child(corev1.PreferAvoidPodsAnnotationKey).Index(i).Child("PodSignature")
		switch owner := p.PodSignature.PodController; {
		case owner == nil:
			errs = append(errs, field.Required(at, ""))
		case owner.Controller == nil || !*owner.Controller:
			errs = append(errs, field.Invalid(at.Child("PodController", "Controller"), false, "must point to a controller"))
		}
	}
	return errs
}

// validateConfigSource returns the errors of a source of the configuration of kubelets. One in
// a status is resolved: it has the identity of its ConfigMap.
func validateConfigSource(s *corev1.NodeConfigSource, resolved bool, path *field.Path) field.ErrorList {
	if s == nil {
		return nil
	}
	m := s.ConfigMap
	if m == nil {
		return field.ErrorList{field.Invalid(path, s, "exactly one reference subfield must be non-nil")}
	}
	path = path.Child("configMap")
	var errs field.ErrorList
	for _, f := range []struct{ name, value string }{{"uid", string(m.UID)}, {"resourceVersion", m.ResourceVersion}} {
		switch at := path.Child(f.name); {
		case resolved && f.value == "":
			errs = append(errs, field.Required(at, ""))
		case !resolved && f.value != "":
			errs = append(errs, field.Forbidden(at, f.name+" must not be set in spec"))
		}
	}
	for _, f := range []struct {
		name, value string
		messages    func(string) []string
	}{
		{"namespace", m.Namespace, validation.IsDNS1123Label},
		{"name", m.Name, func(s string) []string { return apivalidation.NameIsDNSSubdomain(s, false) }},
		{"kubeletConfigKey", m.KubeletConfigKey, validation.IsConfigMapKey},
	} {
		if at := path.Child(f.name); f.value == "" {
			errs = append(errs, field.Required(at, ""))
		} else {
			errs = append(errs, rules.Invalid(at, f.value, f.messages(f.value))...)
		}
	}
	return errs
}
