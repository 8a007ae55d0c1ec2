package devices

import resourcev1 "k8s.io/api/resource/v1"

// The functions of this file remove the fields that are off by default in kube-apiserver,
// unless the stored object has them. old is nil on create.

// DropSpec removes derivedAttributes from the requests of a claim.
func DropSpec(spec, old *resourcev1.ResourceClaimSpec) {
	if old != nil && visitDerived(old, func(a *[]resourcev1.DeviceDerivedAttribute) bool { return len(*a) > 0 }) {
		return
	}
	visitDerived(spec, func(a *[]resourcev1.DeviceDerivedAttribute) bool { *a = nil; return false })
}

// visitDerived calls visit for the field of each request until it returns true.
func visitDerived(spec *resourcev1.ResourceClaimSpec, visit func(*[]resourcev1.DeviceDerivedAttribute) bool) bool {
	for i := range spec.Devices.Requests {
		r := &spec.Devices.Requests[i]
		if r.Exactly != nil && visit(&r.Exactly.DerivedAttributes) {
			return true
		}
		for j := range r.FirstAvailable {
			if visit(&r.FirstAvailable[j].DerivedAttributes) {
				return true
			}
		}
	}
	return false
}

// DropStatus removes skipNodeOperations from the results of an allocation.
func DropStatus(status, old *resourcev1.ResourceClaimStatus) {
	for _, r := range results(old.Allocation) {
		if len(r.SkipNodeOperations) > 0 {
			return
		}
	}
	all := results(status.Allocation)
	for i := range all {
		all[i].SkipNodeOperations = nil
	}
}

// sliceField is a field of slices: whether it is there, and what removes it.
type sliceField struct {
	used func(*resourcev1.ResourceSlice) bool
	drop func(*resourcev1.ResourceSlice)
}

// sliceFields are those that are off.
var sliceFields = []sliceField{
	{
		func(s *resourcev1.ResourceSlice) bool { return s.Spec.PartitionTypeAttribute != nil },
		func(s *resourcev1.ResourceSlice) { s.Spec.PartitionTypeAttribute = nil },
	},
	{
		func(s *resourcev1.ResourceSlice) bool { return len(s.Spec.SkipNodeOperations) > 0 },
		func(s *resourcev1.ResourceSlice) { s.Spec.SkipNodeOperations = nil },
	},
	ofDevices(
		func(d *resourcev1.Device) bool { return len(d.NodeAllocatableResources) > 0 },
		func(d *resourcev1.Device) { d.NodeAllocatableResources = nil },
	),
	ofDevices(
		func(d *resourcev1.Device) bool {
			for _, c := range d.ConsumesCounters {
				if len(c.CompatibilityGroups) > 0 {
					return true
				}
			}
			return false
		},
		func(d *resourcev1.Device) {
			for i := range d.ConsumesCounters {
				d.ConsumesCounters[i].CompatibilityGroups = nil
			}
		},
	),
	ofDevices(listAttributes, func(d *resourcev1.Device) {
		for name, a := range d.Attributes {
			a.BoolValues, a.IntValues, a.StringValues, a.VersionValues = nil, nil, nil, nil
			d.Attributes[name] = a
		}
	}),
}

func ofDevices(used func(*resourcev1.Device) bool, drop func(*resourcev1.Device)) sliceField {
	return sliceField{
		func(s *resourcev1.ResourceSlice) bool {
			for i := range s.Spec.Devices {
				if used(&s.Spec.Devices[i]) {
					return true
				}
			}
			return false
		},
		func(s *resourcev1.ResourceSlice) {
			for i := range s.Spec.Devices {
				drop(&s.Spec.Devices[i])
			}
		},
	}
}

func listAttributes(d *resourcev1.Device) bool {
	for _, a := range d.Attributes {
		if a.BoolValues != nil || a.IntValues != nil || a.StringValues != nil || a.VersionValues != nil {
			return true
		}
	}
	return false
}

// DropSlice removes the fields of slices.
func DropSlice(slice, old *resourcev1.ResourceSlice) {
	for _, f := range sliceFields {
		if old == nil || !f.used(old) {
			f.drop(slice)
		}
	}
}
