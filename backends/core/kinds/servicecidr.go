package kinds

import (
	"strings"

	networkingv1 "k8s.io/api/networking/v1"
	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
	netutils "k8s.io/utils/net"

	"portico/resource"
	"portico/resource/rest"
)

// serviceCIDRs is the row of networking.k8s.io/v1 ServiceCIDR.
func serviceCIDRs() *rest.Kind {
	return &rest.Kind{
		Info: resource.Info{Group: networkingv1.GroupName, Versions: []string{"v1"}, Resource: "servicecidrs", Kind: "ServiceCIDR"},
		Strategy: rest.Strategy{
			PrepareCreate: onCreate(func(c *networkingv1.ServiceCIDR) { c.Status = networkingv1.ServiceCIDRStatus{} }),
			PrepareUpdate: onUpdate(func(c, old *networkingv1.ServiceCIDR) { old.Status.DeepCopyInto(&c.Status) }),
			Validate: check(func(c *networkingv1.ServiceCIDR) field.ErrorList {
				return validateCIDRs(&c.Spec)
			}),
			ValidateUpdate: checkUpdate(validateServiceCIDRUpdate),
		},
		Subresources: []rest.Subresource{{Name: "status", Strategy: &rest.Strategy{
			Resets: []string{"metadata", "spec"},
			PrepareUpdate: onUpdate(func(c, old *networkingv1.ServiceCIDR) {
				old.Spec.DeepCopyInto(&c.Spec)
				metav1.ResetObjectMetaForStatus(&c.ObjectMeta, &old.ObjectMeta)
			}),
		}}},
		Columns: []metav1.TableColumnDefinition{
			nameColumn(), column("CIDRs", "string", "The ranges of addresses for services, at most one of each family."), ageColumn(),
		},
		Cells: cells(func(c *networkingv1.ServiceCIDR) []any {
			return []any{c.Name, strings.Join(c.Spec.CIDRs, ","), age(c.CreationTimestamp)}
		}),
		UnconditionalUpdate: true,
	}
}

func validateCIDRs(spec *networkingv1.ServiceCIDRSpec) field.ErrorList {
	path := field.NewPath("spec", "cidrs")
	switch len(spec.CIDRs) {
	case 0:
		return field.ErrorList{field.Required(path, "at least one CIDR required")}
	case 1, 2:
	default:
		return field.ErrorList{field.Invalid(path, spec, "may only hold up to 2 values")}
	}
	var errs field.ErrorList
	families := map[netutils.IPFamily]bool{}
	for i, cidr := range spec.CIDRs {
		errs = append(errs, validation.IsValidCIDR(path.Index(i), cidr)...)
		family := netutils.IPFamilyOfCIDRString(cidr)
		if families[family] && family != netutils.IPFamilyUnknown {
			errs = append(errs, field.Invalid(path, spec.CIDRs,
				"may specify no more than one IP for each IP family, i.e 192.168.0.0/24 and 2001:db8::/64"))
		}
		families[family] = true
	}
	return errs
}

// validateServiceCIDRUpdate permits the addition of the second range alone.
func validateServiceCIDRUpdate(c, old *networkingv1.ServiceCIDR) field.ErrorList {
	path := field.NewPath("spec", "cidrs")
	now, was := c.Spec.CIDRs, old.Spec.CIDRs
	added := len(was) == 1 && len(now) == 2
	if len(now) != len(was) && !added {
		return field.ErrorList{field.Invalid(path, now, apivalidation.FieldImmutableErrorMsg)}
	}
	var errs field.ErrorList
	for i := range was {
		if now[i] != was[i] {
			errs = append(errs, field.Invalid(path.Index(i), now[i], apivalidation.FieldImmutableErrorMsg))
		}
	}
	if added {
		errs = append(errs, validateCIDRs(&c.Spec)...)
	}
	return errs
}
