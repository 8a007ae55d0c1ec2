package kinds

import (
	"strings"

	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/utils/ptr"

	"portico/backends/core/kinds/rules"
	"portico/resource"
	"portico/resource/rest"
)

// leases is the row of coordination.k8s.io/v1 Lease. An update requires a resourceVersion, on
// which leader election depends.
func leases() *rest.Kind {
	return &rest.Kind{
		Info: resource.Info{
			Group: coordinationv1.GroupName, Versions: []string{"v1"}, Resource: "leases", Kind: "Lease", Namespaced: true,
		},
		Strategy: rest.Strategy{
			LooseFinalizers: true,
			// Coordinated leader election is behind a gate that is off.
			PrepareCreate: onCreate(func(l *coordinationv1.Lease) { l.Spec.Strategy, l.Spec.PreferredHolder = nil, nil }),
			PrepareUpdate: onUpdate(func(l, old *coordinationv1.Lease) {
				if old.Spec.Strategy == nil {
					l.Spec.Strategy = nil
				}
				if old.Spec.PreferredHolder == nil {
					l.Spec.PreferredHolder = nil
				}
			}),
			Validate:       check(validateLease),
			ValidateUpdate: checkNew(validateLease),
		},
		Columns: []metav1.TableColumnDefinition{
			nameColumn(), column("Holder", "string", "The current or last holder of the lease."), ageColumn(),
		},
		Cells: cells(func(l *coordinationv1.Lease) []any {
			return []any{l.Name, ptr.Deref(l.Spec.HolderIdentity, ""), age(l.CreationTimestamp)}
		}),
		CreateOnUpdate: true,
	}
}

func validateLease(l *coordinationv1.Lease) field.ErrorList {
	var errs field.ErrorList
	spec, path := &l.Spec, field.NewPath("spec")
	if d := spec.LeaseDurationSeconds; d != nil && *d <= 0 {
		errs = append(errs, field.Invalid(path.Child("leaseDurationSeconds"), *d, "must be greater than 0"))
	}
	if n := spec.LeaseTransitions; n != nil && *n < 0 {
		errs = append(errs, field.Invalid(path.Child("leaseTransitions"), *n, "must be greater than or equal to 0"))
	}
	if s := spec.Strategy; s != nil {
		if strings.Contains(string(*s), "/") {
			errs = append(errs, rules.QualifiedName(string(*s), path.Child("strategy"))...)
		} else {
			errs = append(errs, rules.Supported(*s, path.Child("strategy"), coordinationv1.OldestEmulationVersion)...)
		}
	}
	if p := spec.PreferredHolder; p != nil && *p != "" && (spec.Strategy == nil || *spec.Strategy == "") {
		errs = append(errs, field.Forbidden(path.Child("preferredHolder"), "may only be specified if `strategy` is defined"))
	}
	return errs
}
