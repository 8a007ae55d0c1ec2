package kinds

import (
	"fmt"
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	nodev1 "k8s.io/api/node/v1"
	"k8s.io/apimachinery/pkg/api/validate/content"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	metav1validation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"portico/backends/core/kinds/podspec"
	"portico/backends/core/kinds/rules"
	"portico/resource"
	"portico/resource/rest"
)

// runtimeClasses is the row of node.k8s.io/v1 RuntimeClass.
func runtimeClasses() *rest.Kind {
	return &rest.Kind{
		Info: resource.Info{Group: nodev1.GroupName, Versions: []string{"v1"}, Resource: "runtimeclasses", Kind: "RuntimeClass"},
		Strategy: rest.Strategy{
			LooseFinalizers: true,
			Validate: check(func(c *nodev1.RuntimeClass) field.ErrorList {
				return validateRuntimeClass(c, content.IsDNS1123Label)
			}),
			ValidateUpdate: checkUpdate(func(c, old *nodev1.RuntimeClass) field.ErrorList {
				return append(validateRuntimeClass(c, validation.IsDNS1123Label), rules.Immutable(c.Handler, old.Handler, field.NewPath("handler"))...)
			}),
			Warnings: warn(runtimeClassWarnings),
		},
		Columns: []metav1.TableColumnDefinition{
			nameColumn(), column("Handler", "string", "The configuration of the container runtime."), ageColumn(),
		},
		Cells: cells(func(c *nodev1.RuntimeClass) []any {
			return []any{c.Name, c.Handler, age(c.CreationTimestamp)}
		}),
		CreateOnUpdate: true,
	}
}

func runtimeClassWarnings(c *nodev1.RuntimeClass) []string {
	if c.Scheduling == nil {
		return nil
	}
	var warnings []string
	for _, key := range slices.Sorted(maps.Keys(c.Scheduling.NodeSelector)) {
		if message := rules.DeprecatedNodeLabel(key); message != "" {
			warnings = append(warnings, fmt.Sprintf("scheduling.nodeSelector: %s", message))
		}
	}
	return warnings
}

// validateRuntimeClass validates a class. label returns the errors of a DNS label, the words of
// which differ between creations and updates.
func validateRuntimeClass(c *nodev1.RuntimeClass, label func(string) []string) field.ErrorList {
	handler := field.NewPath("handler")
	errs := rules.Present(c.Handler, handler)
	if c.Handler != "" {
		errs = rules.Invalid(handler, c.Handler, label(c.Handler))
	}
	if c.Overhead != nil {
		r := &corev1.ResourceRequirements{Limits: c.Overhead.PodFixed}
		errs = append(errs, rules.ResourceRequirements(r, rules.ContainerResourceName, false, field.NewPath("overhead"))...)
	}
	if c.Scheduling == nil {
		return errs
	}
	path := field.NewPath("scheduling")
	if c.Scheduling.NodeSelector != nil {
		errs = append(errs, metav1validation.ValidateLabels(c.Scheduling.NodeSelector, path.Child("nodeSelector"))...)
	}
	path = path.Child("tolerations")
	errs = append(errs, podspec.ValidateTolerations(c.Scheduling.Tolerations, path, false)...)
	seen := map[corev1.Toleration]bool{}
	for i, t := range c.Scheduling.Tolerations {
		key := t
		key.TolerationSeconds = nil
		if seen[key] {
			errs = append(errs, field.Duplicate(path.Index(i), t))
		}
		seen[key] = true
	}
	return errs
}
