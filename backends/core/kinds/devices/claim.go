package devices

import (
	"strings"

	resourcev1 "k8s.io/api/resource/v1"
	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"portico/backends/core/kinds/rules"
)

// Claim returns the errors of a new claim.
func Claim(claim *resourcev1.ResourceClaim) field.ErrorList {
	return append(claimSpec(&claim.Spec, field.NewPath("spec")), tagged(Validate_ResourceClaim, claim, nil)...)
}

// ClaimUpdate returns the errors of a changed claim: its spec must not change.
func ClaimUpdate(claim, old *resourcev1.ResourceClaim) field.ErrorList {
	return tagged(Validate_ResourceClaim, claim, old)
}

// Template returns the errors of a template of claims, without those of its metadata; old is
// nil on create.
func Template(template, old *resourcev1.ResourceClaimTemplate) field.ErrorList {
	errs := claimSpec(&template.Spec.Spec, field.NewPath("spec", "spec"))
	if old != nil {
		errs = append(errs, apivalidation.ValidateImmutableField(template.Spec, old.Spec, field.NewPath("spec"))...)
	}
	return append(errs, tagged(Validate_ResourceClaimTemplate, template, old)...)
}

// AdminAccess returns the path of the first request for access to devices in use, nil if
// there is none.
func AdminAccess(spec *resourcev1.ResourceClaimSpec) *field.Path {
	for i, r := range spec.Devices.Requests {
		if r.Exactly != nil && isTrue(r.Exactly.AdminAccess) {
			return field.NewPath("spec", "devices", "requests").Index(i).Child("adminAccess") // as kube-apiserver
		}
	}
	return nil
}

func claimSpec(spec *resourcev1.ResourceClaimSpec, path *field.Path) field.ErrorList {
	claim, path := &spec.Devices, path.Child("devices")
	names := requestNames(claim)
	errs := each(claim.Requests, resourcev1.DeviceRequestsMaxSize, path.Child("requests"), request)
	errs = append(errs, each(claim.Constraints, resourcev1.DeviceConstraintsMaxSize, path.Child("constraints"),
		func(c *resourcev1.DeviceConstraint, path *field.Path) field.ErrorList {
			errs := references(c.Requests, names, path.Child("requests"))
			if c.MatchAttribute == nil && c.DistinctAttribute == nil {
				errs = append(errs, field.Required(path, `exactly one of "matchAttribute" or "distinctAttribute" is required, but multiple fields are set`))
			}
			return errs
		})...)
	return append(errs, each(claim.Config, resourcev1.DeviceConfigMaxSize, path.Child("config"),
		func(c *resourcev1.DeviceClaimConfiguration, path *field.Path) field.ErrorList {
			return append(references(c.Requests, names, path.Child("requests")), configuration(&c.DeviceConfiguration, false, path)...)
		})...)
}

func request(r *resourcev1.DeviceRequest, path *field.Path) field.ErrorList {
	errs := rules.DNSLabel(r.Name, path.Child("name"))
	switch exact, alternatives := r.Exactly, len(r.FirstAvailable) > 0; {
	case exact == nil && !alternatives:
		return append(errs, field.Required(path, "exactly one of `exactly` or `firstAvailable` is required"))
	case exact != nil && alternatives:
		return append(errs, field.Invalid(path, nil, "exactly one of `exactly` or `firstAvailable` is required, but multiple fields are set"))
	case exact != nil:
		path = path.Child("exactly")
		if class := path.Child("deviceClassName"); exact.DeviceClassName == "" {
			errs = append(errs, field.Required(class, ""))
		} else {
			errs = append(errs, rules.Subdomain(exact.DeviceClassName, class)...)
		}
		return append(errs, requested(exact.Selectors, exact.AllocationMode, exact.Count, exact.Tolerations, path)...)
	}
	return append(errs, each(r.FirstAvailable, resourcev1.FirstAvailableDeviceRequestMaxSize, path.Child("firstAvailable"),
		func(r *resourcev1.DeviceSubRequest, path *field.Path) field.ErrorList {
			errs := rules.DNSLabel(r.Name, path.Child("name"))
			return append(errs, requested(r.Selectors, r.AllocationMode, r.Count, r.Tolerations, path)...)
		})...)
}

// requested checks what requests and their alternatives have in common.
func requested(s []resourcev1.DeviceSelector, mode resourcev1.DeviceAllocationMode, count int64, t []resourcev1.DeviceToleration, path *field.Path) field.ErrorList {
	errs := selectors(s, false, path.Child("selectors"))
	switch {
	case mode == resourcev1.DeviceAllocationModeAll && count != 0:
		errs = append(errs, field.Invalid(path.Child("count"), count, "must not be specified when allocationMode is 'All'"))
	case mode == resourcev1.DeviceAllocationModeExactCount && count <= 0:
		errs = append(errs, field.Invalid(path.Child("count"), count, "must be greater than zero"))
	}
	return append(errs, tolerations(t, path)...)
}

func tolerations(list []resourcev1.DeviceToleration, path *field.Path) field.ErrorList {
	return each(list, len(list), path.Child("tolerations"), func(t *resourcev1.DeviceToleration, path *field.Path) field.ErrorList {
		path = path.Child("value")
		switch {
		case t.Operator == resourcev1.DeviceTolerationOpEqual:
			return rules.Invalid(path, t.Value, validation.IsValidLabelValue(t.Value))
		case t.Operator == resourcev1.DeviceTolerationOpExists && t.Value != "":
			return field.ErrorList{field.Invalid(path, t.Value, "must be empty for operator `Exists`")}
		}
		return nil
	})
}

// requestNames returns the names of the requests of a claim, and those of their alternatives
// after a slash.
func requestNames(claim *resourcev1.DeviceClaim) map[string]bool {
	names := map[string]bool{}
	for _, r := range claim.Requests {
		names[r.Name] = true
		for _, alternative := range r.FirstAvailable {
			names[r.Name+"/"+alternative.Name] = true
		}
	}
	return names
}

// references requires names that are known.
func references(names []string, known map[string]bool, path *field.Path) field.ErrorList {
	return each(names, resourcev1.DeviceRequestsMaxSize, path, func(name *string, path *field.Path) field.ErrorList {
		return reference(*name, known, path)
	})
}

func reference(name string, known map[string]bool, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	if strings.Count(name, "/") < 2 {
		for part := range strings.SplitSeq(name, "/") {
			errs = append(errs, rules.DNSLabel(part, path)...)
		}
	}
	if !known[name] {
		errs = append(errs, field.Invalid(path, name, "must be the name of a request in the claim or the name of a request and a subrequest separated by '/'"))
	}
	return errs
}

func isTrue(b *bool) bool { return b != nil && *b }
