package devices

import (
	"slices"

	resourcev1 "k8s.io/api/resource/v1"
	metav1validation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/utils/ptr"

	"portico/backends/core/kinds/rules"
)

// device names an allocated device, or a share of one. Its form in JSON is in messages.
type device struct{ Driver, Pool, Device, ShareID string }

func allocatedDevice(r *resourcev1.DeviceRequestAllocationResult) device {
	return device{r.Driver, r.Pool, r.Device, string(ptr.Deref(r.ShareID, types.UID("")))}
}

func reportedDevice(s *resourcev1.AllocatedDeviceStatus) device {
	return device{s.Driver, s.Pool, s.Device, ptr.Deref(s.ShareID, "")}
}

// allocated returns the devices of an allocation.
func allocated(a *resourcev1.AllocationResult) map[device]bool {
	all := map[device]bool{}
	for _, r := range results(a) {
		all[allocatedDevice(&r)] = true
	}
	return all
}

func results(a *resourcev1.AllocationResult) []resourcev1.DeviceRequestAllocationResult {
	if a == nil {
		return nil
	}
	return a.Devices.Results
}

// DropDeallocated removes the reports about devices that are not allocated any more.
func DropDeallocated(claim, old *resourcev1.ResourceClaim) {
	was, is := allocated(old.Status.Allocation), allocated(claim.Status.Allocation)
	claim.Status.Devices = slices.DeleteFunc(claim.Status.Devices, func(s resourcev1.AllocatedDeviceStatus) bool {
		d := reportedDevice(&s)
		return was[d] && !is[d]
	})
	if len(claim.Status.Devices) == 0 {
		claim.Status.Devices = nil
	}
}

// AdminAccessGranted returns the path of the first result with access to devices in use that
// old has not, nil if there is none.
func AdminAccessGranted(status, old *resourcev1.ResourceClaimStatus) *field.Path {
	granted := func(s *resourcev1.ResourceClaimStatus) int {
		return slices.IndexFunc(results(s.Allocation), func(r resourcev1.DeviceRequestAllocationResult) bool { return isTrue(r.AdminAccess) })
	}
	if i := granted(status); i >= 0 && granted(old) < 0 {
		return field.NewPath("status", "allocation", "devices", "results").Index(i).Child("adminAccess")
	}
	return nil
}

// ClaimStatus returns the errors of a changed status.
func ClaimStatus(claim, old *resourcev1.ResourceClaim) field.ErrorList {
	status, path := &claim.Status, field.NewPath("status")
	reserved := path.Child("reservedFor")
	errs := each(status.ReservedFor, resourcev1.ResourceClaimReservedForMaxSize, reserved, consumer)
	devices := allocated(status.Allocation)
	errs = append(errs, each(status.Devices, len(status.Devices), path.Child("devices"),
		func(s *resourcev1.AllocatedDeviceStatus, path *field.Path) field.ErrorList {
			return deviceStatus(s, devices, path)
		})...)
	switch {
	case len(status.ReservedFor) == 0:
	case status.Allocation == nil:
		errs = append(errs, field.Forbidden(reserved, "may not be specified when `allocated` is not set"))
	case claim.DeletionTimestamp != nil && slices.ContainsFunc(status.ReservedFor, func(c resourcev1.ResourceClaimConsumerReference) bool {
		return !slices.Contains(old.Status.ReservedFor, c)
	}):
		errs = append(errs, field.Forbidden(reserved, "new entries may not be added while `deallocationRequested` or `deletionTimestamp` are set"))
	}
	if status.Allocation != nil && old.Status.Allocation == nil {
		errs = append(errs, allocation(status.Allocation, requestNames(&claim.Spec.Devices), path.Child("allocation"))...)
	}
	return append(errs, tagged(Validate_ResourceClaim, claim, old)...)
}

func consumer(c *resourcev1.ResourceClaimConsumerReference, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	for _, f := range [][2]string{{"resource", c.Resource}, {"name", c.Name}, {"uid", string(c.UID)}} {
		if f[1] == "" {
			errs = append(errs, field.Required(path.Child(f[0]), ""))
		}
	}
	return errs
}

func deviceStatus(s *resourcev1.AllocatedDeviceStatus, devices map[device]bool, path *field.Path) field.ErrorList {
	errs := driverName(s.Driver, path.Child("driver"))
	errs = append(errs, poolName(s.Pool, path.Child("pool"))...)
	errs = append(errs, rules.DNSLabel(s.Device, path.Child("device"))...)
	if d := reportedDevice(s); !devices[d] {
		errs = append(errs, field.Invalid(path, d, "must be an allocated device in the claim"))
	}
	conditions := path.Child("conditions")
	if n := len(s.Conditions); n > resourcev1.AllocatedDeviceStatusMaxConditions {
		errs = append(errs, field.TooMany(conditions, n, resourcev1.AllocatedDeviceStatusMaxConditions))
	}
	errs = append(errs, metav1validation.ValidateConditions(s.Conditions, conditions)...)
	if s.Data != nil && len(s.Data.Raw) > 0 {
		errs = append(errs, jsonObject(s.Data, resourcev1.AllocatedDeviceStatusDataMaxLength, path.Child("data"))...)
	}
	if s.NetworkData != nil {
		errs = append(errs, each(s.NetworkData.IPs, resourcev1.NetworkDeviceDataMaxIPs, path.Child("networkData", "ips"),
			func(ip *string, path *field.Path) field.ErrorList {
				return validation.IsValidInterfaceAddress(path, *ip)
			})...)
	}
	return errs
}

func allocation(a *resourcev1.AllocationResult, names map[string]bool, path *field.Path) field.ErrorList {
	errs := each(a.Devices.Results, resourcev1.AllocationResultsMaxSize, path.Child("devices", "results"),
		func(r *resourcev1.DeviceRequestAllocationResult, path *field.Path) field.ErrorList {
			errs := reference(r.Request, names, path.Child("request"))
			errs = append(errs, rules.DNSLabel(r.Device, path.Child("device"))...)
			errs = append(errs, bindingConditions(r.BindingConditions, r.BindingFailureConditions, path)...)
			return append(errs, tolerations(r.Tolerations, path)...)
		})
	// Those of the class and those of the claim.
	errs = append(errs, each(a.Devices.Config, 2*resourcev1.DeviceConfigMaxSize, path.Child("devices", "config"),
		func(c *resourcev1.DeviceAllocationConfiguration, path *field.Path) field.ErrorList {
			return append(references(c.Requests, names, path.Child("requests")), configuration(&c.DeviceConfiguration, false, path)...)
		})...)
	if a.NodeSelector != nil {
		errs = append(errs, rules.NodeSelector(a.NodeSelector, false, path.Child("nodeSelector"))...)
	}
	return errs
}
