package kinds

import (
	"fmt"
	"maps"
	"strings"

	corev1 "k8s.io/api/core/v1"
	schedulingv1 "k8s.io/api/scheduling/v1"
	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/utils/ptr"

	"portico/backends/core/kinds/rules"
	"portico/resource"
	"portico/resource/rest"
)

const (
	// systemPriorityPrefix begins the names of the classes that the system owns.
	systemPriorityPrefix = "system-"
	// highestUserPriority is the highest value of other classes.
	highestUserPriority = 1_000_000_000
)

// systemPriorityClasses are the classes with the prefix that may exist, with their values.
var systemPriorityClasses = map[string]int32{
	"system-cluster-critical": 2 * highestUserPriority,
	"system-node-critical":    2*highestUserPriority + 1000,
}

// SystemPriorityClasses returns the names of these classes with their values.
func SystemPriorityClasses() map[string]int32 { return maps.Clone(systemPriorityClasses) }

// priorityClasses is the row of scheduling.k8s.io/v1 PriorityClass.
func priorityClasses() *rest.Kind {
	return &rest.Kind{
		Info: resource.Info{
			Group: schedulingv1.GroupName, Versions: []string{"v1"}, Resource: "priorityclasses", Kind: "PriorityClass", ShortNames: []string{"pc"},
		},
		Strategy: rest.Strategy{
			Default:         onDefault(func(pc *schedulingv1.PriorityClass) { rules.Default(&pc.PreemptionPolicy, corev1.PreemptLowerPriority) }),
			TrackGeneration: true,
			SpecChanged:     func(rest.Object, rest.Object) bool { return false }, // as kube-apiserver
			Validate:        check(validatePriorityClass),
			ValidateUpdate:  checkUpdate(validatePriorityClassUpdate),
		},
		Columns: []metav1.TableColumnDefinition{
			nameColumn(),
			column("Value", "integer", "The priority of pods of the class; a higher value is scheduled first."),
			column("Global-Default", "boolean", "Whether pods without a class get this one."),
			ageColumn(),
			column("PreemptionPolicy", "string", "Whether pods of the class displace pods of lower priority."),
		},
		Cells: cells(func(pc *schedulingv1.PriorityClass) []any {
			return []any{pc.Name, int64(pc.Value), pc.GlobalDefault, age(pc.CreationTimestamp), string(ptr.Deref(pc.PreemptionPolicy, ""))}
		}),
		UnconditionalUpdate: true,
	}
}

func validatePriorityClass(pc *schedulingv1.PriorityClass) field.ErrorList {
	var errs field.ErrorList
	if strings.HasPrefix(pc.Name, systemPriorityPrefix) {
		if err := checkSystemPriorityClass(pc); err != nil {
			errs = append(errs, field.Forbidden(field.NewPath("metadata", "name"),
				fmt.Sprintf("priority class names with '%v' prefix are reserved for system use only. error: %v", systemPriorityPrefix, err)))
		}
	} else if pc.Value > highestUserPriority {
		errs = append(errs, field.Forbidden(field.NewPath("value"), fmt.Sprintf("maximum allowed value of a user defined priority is %v", highestUserPriority)))
	}
	if pc.PreemptionPolicy != nil {
		errs = append(errs, rules.Enum(*pc.PreemptionPolicy, field.NewPath("preemptionPolicy"), corev1.PreemptLowerPriority, corev1.PreemptNever)...)
	}
	return errs
}

// checkSystemPriorityClass returns an error for a class that is none of the system's.
func checkSystemPriorityClass(pc *schedulingv1.PriorityClass) error {
	value, known := systemPriorityClasses[pc.Name]
	switch {
	case !known:
		return fmt.Errorf("%v is not a known system priority class", pc.Name)
	case value != pc.Value:
		return fmt.Errorf("value of %v PriorityClass must be %v", pc.Name, value)
	case pc.GlobalDefault:
		return fmt.Errorf("globalDefault of %v PriorityClass must be false", pc.Name)
	}
	return nil
}

func validatePriorityClassUpdate(pc, old *schedulingv1.PriorityClass) field.ErrorList {
	var errs field.ErrorList
	if pc.Value != old.Value {
		errs = append(errs, field.Forbidden(field.NewPath("value"), "may not be changed in an update."))
	}
	return append(errs, apivalidation.ValidateImmutableField(pc.PreemptionPolicy, old.PreemptionPolicy, field.NewPath("preemptionPolicy"))...)
}
