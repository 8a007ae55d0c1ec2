package devices

import (
	"regexp"
	"strings"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"portico/backends/core/kinds/rules"
)

// Slice returns the errors of a slice; old is nil on create.
func Slice(slice, old *resourcev1.ResourceSlice) field.ErrorList {
	spec, path := &slice.Spec, field.NewPath("spec")
	errs := driverName(spec.Driver, path.Child("driver"))
	errs = append(errs, pool(&spec.Pool, path.Child("pool"))...)
	before := map[string]*resourcev1.Device{}
	if old != nil {
		errs = append(errs, apivalidation.ValidateImmutableField(spec.Pool.Name, old.Spec.Pool.Name, path.Child("pool", "name"))...)
		errs = append(errs, apivalidation.ValidateImmutableField(spec.Driver, old.Spec.Driver, path.Child("driver"))...)
		errs = append(errs, apivalidation.ValidateImmutableField(spec.NodeName, old.Spec.NodeName, path.Child("nodeName"))...)
		for i := range old.Spec.Devices {
			before[old.Spec.Devices[i].Name] = &old.Spec.Devices[i]
		}
	}
	errs = append(errs, placement(spec, path)...)
	if spec.SharedCounters != nil && spec.Devices != nil {
		errs = append(errs, field.Invalid(path, "", "only one of `sharedCounters` or `devices` is allowed"))
	}
	at := path.Child("devices")
	if n, limit := len(spec.Devices), maxDevices(spec.Devices); n > limit {
		errs = append(errs, field.TooMany(at, n, limit))
	} else {
		names := make([]string, n)
		for i := range spec.Devices {
			d := &spec.Devices[i]
			names[i] = d.Name
			errs = append(errs, sliceDevice(d, before[d.Name], isTrue(spec.PerDeviceNodeSelection), at.Index(i))...)
		}
		errs = append(errs, rules.Unique(names, at)...)
	}
	errs = append(errs, each(spec.SharedCounters, resourcev1.ResourceSliceMaxCounterSets, path.Child("sharedCounters"),
		func(s *resourcev1.CounterSet, path *field.Path) field.ErrorList {
			return counters(s.Counters, resourcev1.ResourceSliceMaxCountersPerCounterSet, path)
		})...)
	return append(errs, tagged(Validate_ResourceSlice, slice, old)...)
}

func pool(p *resourcev1.ResourcePool, path *field.Path) field.ErrorList {
	errs := poolName(p.Name, path.Child("name"))
	if p.ResourceSliceCount <= 0 {
		errs = append(errs, field.Invalid(path.Child("resourceSliceCount"), p.ResourceSliceCount, "must be greater than zero"))
	}
	if p.Generation < 0 {
		errs = append(errs, field.Invalid(path.Child("generation"), p.Generation, "must be greater than or equal to zero"))
	}
	return errs
}

// maxDevices returns how many devices a slice may have: fewer if they make it large.
func maxDevices(all []resourcev1.Device) int {
	for i := range all {
		if len(all[i].Taints) > 0 || len(all[i].ConsumesCounters) > 0 || listAttributes(&all[i]) {
			return resourcev1.ResourceSliceMaxDevicesWithAdvancedFeatures
		}
	}
	return resourcev1.ResourceSliceMaxDevices
}

// nodes says on which nodes devices are, in one of several ways.
type nodes struct {
	name     *string
	selector *corev1.NodeSelector
	all      *bool
}

// check returns the ways that are set.
func (n nodes) check(emptyName string, path *field.Path) (set []string, errs field.ErrorList) {
	if at := path.Child("nodeName"); n.name != nil && *n.name != "" {
		set = append(set, "`nodeName`")
		errs = append(errs, rules.Invalid(at, *n.name, apivalidation.NameIsDNSSubdomain(*n.name, false))...)
	} else if n.name != nil {
		errs = append(errs, field.Invalid(at, "", emptyName))
	}
	if n.selector != nil {
		set = append(set, "`nodeSelector`")
		errs = append(errs, rules.NodeSelector(n.selector, false, path.Child("nodeSelector"))...)
	}
	return flag(n.all, "allNodes", path, set, errs)
}

// flag adds the name of a field that is true; it must not be false.
func flag(b *bool, name string, path *field.Path, set []string, errs field.ErrorList) ([]string, field.ErrorList) {
	if isTrue(b) {
		set = append(set, "`"+name+"`")
	} else if b != nil {
		errs = append(errs, field.Invalid(path.Child(name), false, "must be either unset or set to true"))
	}
	return set, errs
}

func placement(spec *resourcev1.ResourceSliceSpec, path *field.Path) field.ErrorList {
	set, errs := nodes{spec.NodeName, spec.NodeSelector, spec.AllNodes}.check("must be either unset or set to a non-empty string", path)
	if spec.NodeSelector != nil && len(spec.NodeSelector.NodeSelectorTerms) != 1 {
		errs = append(errs, field.Invalid(path.Child("nodeSelector", "nodeSelectorTerms"), spec.NodeSelector.NodeSelectorTerms, "must have exactly one node selector term"))
	}
	set, errs = flag(spec.PerDeviceNodeSelection, "perDeviceNodeSelection", path, set, errs)
	const required = "exactly one of `nodeName`, `nodeSelector`, `allNodes`, `perDeviceNodeSelection` is required"
	return append(errs, exactlyOne(set, required, required+", but multiple fields are set", path)...)
}

func exactlyOne(set []string, none, several string, path *field.Path) field.ErrorList {
	switch len(set) {
	case 0:
		return field.ErrorList{field.Required(path, none)}
	case 1:
		return nil
	}
	return field.ErrorList{field.Invalid(path, "{"+strings.Join(set, ", ")+"}", several)}
}

// sliceDevice checks a device of a slice. What old has as well is not checked again.
func sliceDevice(d, old *resourcev1.Device, placed bool, path *field.Path) field.ErrorList {
	errs := rules.DNSLabel(d.Name, path.Child("name"))
	if n, limit := len(d.Attributes)+len(d.Capacity), resourcev1.ResourceSliceMaxAttributesAndCapacitiesPerDevice; n > limit {
		errs = append(errs, field.Invalid(path, n, "the total number of attributes and capacities must not exceed 32"))
	}
	if n, limit := len(d.Attributes), resourcev1.ResourceSliceMaxAttributeValuesPerDevice; n > limit {
		errs = append(errs, field.Invalid(path, n, "the total number of attribute values must not exceed 48"))
	}
	errs = append(errs, eachKey(d.Attributes, path.Child("attributes"), attribute)...)
	if old == nil || !equality.Semantic.DeepEqual(old.Capacity, d.Capacity) {
		errs = append(errs, eachKey(d.Capacity, path.Child("capacity"), func(_ string, c resourcev1.DeviceCapacity, path *field.Path) field.ErrorList {
			return capacity(&c, isTrue(d.AllowMultipleAllocations), path.Child("requestPolicy"))
		})...)
	}
	if taints := path.Child("taints"); old == nil || !equality.Semantic.DeepEqual(old.Taints, d.Taints) {
		if n := len(d.Taints); n > resourcev1.DeviceTaintsMaxLength {
			errs = append(errs, field.TooMany(taints, n, resourcev1.DeviceTaintsMaxLength))
		}
		errs = append(errs, each(d.Taints, resourcev1.DeviceTaintsMaxLength, taints, taint)...)
	}
	errs = append(errs, each(d.ConsumesCounters, resourcev1.ResourceSliceMaxDeviceCounterConsumptionsPerDevice, path.Child("consumesCounters"),
		func(c *resourcev1.DeviceCounterConsumption, path *field.Path) field.ErrorList {
			return counters(c.Counters, resourcev1.ResourceSliceMaxCountersPerDeviceCounterConsumption, path)
		})...)
	if placed {
		set, nodeErrs := nodes{d.NodeName, d.NodeSelector, d.AllNodes}.check("must not be empty", path)
		const required = "exactly one of `nodeName`, `nodeSelector`, or `allNodes` is required when `perDeviceNodeSelection` is set to true in the ResourceSlice spec"
		errs = append(append(errs, nodeErrs...), exactlyOne(set, required, required, path)...)
	} else if d.NodeName != nil || d.NodeSelector != nil || d.AllNodes != nil {
		errs = append(errs, field.Invalid(path, nil, "`nodeName`, `nodeSelector` and `allNodes` can only be set if `perDeviceNodeSelection` is set to true in the ResourceSlice spec"))
	}
	return append(errs, bindingConditions(d.BindingConditions, d.BindingFailureConditions, path)...)
}

func counters(m map[string]resourcev1.Counter, limit int, path *field.Path) field.ErrorList {
	if len(m) > limit {
		return field.ErrorList{field.TooMany(path.Child("counters"), len(m), limit)}
	}
	return nil
}

// semanticVersion is the syntax of semver.org 2.0.0.
var semanticVersion = func() *regexp.Regexp {
	const number, word = `(0|[1-9]\d*)`, `[0-9A-Za-z-]+`
	const prerelease = `(0|[1-9]\d*|\d*[A-Za-z-][0-9A-Za-z-]*)`
	return regexp.MustCompile(`^` + number + `\.` + number + `\.` + number +
		`(-` + prerelease + `(\.` + prerelease + `)*)?(\+` + word + `(\.` + word + `)*)?$`)
}()

func attribute(key string, a resourcev1.DeviceAttribute, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	tooLong := func(s string, path *field.Path) {
		if len(s) > resourcev1.DeviceAttributeMaxValueLength {
			errs = append(errs, field.TooLong(path, "", resourcev1.DeviceAttributeMaxValueLength))
		}
	}
	// The tags report it as well, under the whole key.
	if len(key) > maxKey && a.StringValue == nil && a.VersionValue == nil && a.IntValue == nil && a.BoolValue == nil {
		errs = append(errs, field.Invalid(path, "", "exactly one value must be specified"))
	}
	if a.StringValue != nil {
		tooLong(*a.StringValue, path.Child("string"))
	}
	if v := a.VersionValue; v != nil {
		if !semanticVersion.MatchString(*v) {
			errs = append(errs, field.Invalid(path.Child("version"), *v, "must be a string compatible with semver.org spec 2.0.0"))
		}
		tooLong(*v, path.Child("version"))
	}
	return errs
}
