package kinds

import (
	resourcev1 "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"portico/backends/core/kinds/devices"
	"portico/resource"
	"portico/resource/rest"
)

// deviceTaintRules is the row of resource.k8s.io/v1 DeviceTaintRule.
func deviceTaintRules() *rest.Kind {
	return &rest.Kind{
		Info: resource.Info{
			Group: resourcev1.GroupName, Versions: []string{"v1"}, Resource: "devicetaintrules", Kind: "DeviceTaintRule",
		},
		Strategy: rest.Strategy{
			Default:         onDefault(devices.SetObjectDefaults_DeviceTaintRule),
			TrackGeneration: true,
			PrepareCreate:   onCreate(func(r *resourcev1.DeviceTaintRule) { r.Status = resourcev1.DeviceTaintRuleStatus{} }),
			PrepareUpdate: onUpdate(func(r, old *resourcev1.DeviceTaintRule) {
				old.Status.DeepCopyInto(&r.Status)
				devices.RenewTaint(&r.Spec.Taint, &old.Spec.Taint)
			}),
			Validate:       check(func(r *resourcev1.DeviceTaintRule) field.ErrorList { return devices.TaintRule(r, nil) }),
			ValidateUpdate: checkUpdate(devices.TaintRule),
		},
		Subresources: []rest.Subresource{{Name: "status", Strategy: &rest.Strategy{
			Resets: []string{"metadata", "spec"},
			PrepareUpdate: onUpdate(func(r, old *resourcev1.DeviceTaintRule) {
				old.Spec.DeepCopyInto(&r.Spec)
				metav1.ResetObjectMetaForStatus(r, old)
			}),
			ValidateUpdate: checkUpdate(devices.TaintRuleStatus),
		}}},
		Columns: []metav1.TableColumnDefinition{
			nameColumn(),
			column("Key", "string", "The key of the taint."),
			column("Value", "string", "The value of the taint."),
			column("Effect", "string", "What the taint does to the pods that use the devices."),
			column("TimeAdded", "string", "Time since the taint was added."),
			ageColumn(),
		},
		Cells: cells(func(r *resourcev1.DeviceTaintRule) []any {
			added := ""
			if t := r.Spec.Taint.TimeAdded; t != nil {
				added = age(*t)
			}
			return []any{r.Name, r.Spec.Taint.Key, r.Spec.Taint.Value, string(r.Spec.Taint.Effect), added, age(r.CreationTimestamp)}
		}),
	}
}
