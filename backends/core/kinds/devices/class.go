package devices

import (
	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1validation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"portico/backends/core/kinds/rules"
)

// Class returns the errors of a class, those of its name included; old is nil on create.
func Class(class, old *resourcev1.DeviceClass) field.ErrorList {
	path := field.NewPath("spec")
	errs := selectors(class.Spec.Selectors, old != nil && equality.Semantic.DeepEqual(class.Spec.Selectors, old.Spec.Selectors), path.Child("selectors"))
	stored := old != nil && equality.Semantic.DeepEqual(class.Spec.Config, old.Spec.Config)
	errs = append(errs, each(class.Spec.Config, resourcev1.DeviceConfigMaxSize, path.Child("config"),
		func(c *resourcev1.DeviceClassConfiguration, path *field.Path) field.ErrorList {
			return configuration(&c.DeviceConfiguration, stored, path)
		})...)
	return append(errs, tagged(Validate_DeviceClass, class, old)...)
}

// TaintRule returns the errors of a rule; old is nil on create.
func TaintRule(rule, old *resourcev1.DeviceTaintRule) field.ErrorList {
	path := field.NewPath("spec")
	errs := taint(&rule.Spec.Taint, path.Child("taint"))
	if s := rule.Spec.DeviceSelector; s != nil {
		path = path.Child("deviceSelector")
		for _, f := range []struct {
			name  string
			value *string
			check func(string, *field.Path) field.ErrorList
		}{{"driver", s.Driver, driverName}, {"pool", s.Pool, poolName}, {"device", s.Device, rules.DNSLabel}} {
			if f.value != nil {
				errs = append(errs, f.check(*f.value, path.Child(f.name))...)
			}
		}
	}
	return append(errs, tagged(Validate_DeviceTaintRule, rule, old)...)
}

// TaintRuleStatus returns the errors of a changed status.
func TaintRuleStatus(rule, old *resourcev1.DeviceTaintRule) field.ErrorList {
	path := field.NewPath("status", "conditions")
	errs := metav1validation.ValidateConditions(rule.Status.Conditions, path)
	if n := len(rule.Status.Conditions); n > resourcev1.DeviceTaintRuleStatusMaxConditions {
		errs = append(errs, field.TooMany(path, n, resourcev1.DeviceTaintRuleStatusMaxConditions))
	}
	return append(errs, tagged(Validate_DeviceTaintRule, rule, old)...)
}

// RenewTaint sets the time of a taint if its effect changes and the writer does not set it.
func RenewTaint(taint, old *resourcev1.DeviceTaint) {
	if taint.Effect != old.Effect && taint.TimeAdded.Equal(old.TimeAdded) {
		taint.TimeAdded = now()
	}
}

func taint(t *resourcev1.DeviceTaint, path *field.Path) field.ErrorList {
	errs := metav1validation.ValidateLabelName(t.Key, path.Child("key"))
	return append(errs, rules.Invalid(path.Child("value"), t.Value, validation.IsValidLabelValue(t.Value))...)
}
