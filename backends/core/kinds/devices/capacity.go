package devices

import (
	"fmt"
	"math"
	"strconv"

	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"portico/backends/core/kinds/rules"
)

// maxValidValues is how many values a policy may list.
const maxValidValues = 10

// capacity checks how a capacity may be requested, if several claims share it.
func capacity(c *resourcev1.DeviceCapacity, shared bool, path *field.Path) field.ErrorList {
	p := c.RequestPolicy
	switch {
	case p == nil:
		return nil
	case !shared:
		return field.ErrorList{field.Forbidden(path, "allowMultipleAllocations must be true")}
	case len(p.ValidValues) > 0 && p.ValidRange != nil:
		return field.ErrorList{field.Forbidden(path, `exactly one policy can be specified, cannot specify "validValues" and "validRange" at the same time`)}
	case len(p.ValidValues) > 0 && p.Default == nil:
		return field.ErrorList{field.Required(path.Child("default"), "required when validValues is defined")}
	case len(p.ValidValues) > 0:
		return validValues(p, c.Value, path.Child("validValues"))
	case p.ValidRange != nil && p.Default == nil:
		return field.ErrorList{field.Required(path.Child("default"), "required when validRange is defined")}
	case p.ValidRange != nil:
		return validRange(p, c.Value, path.Child("validRange"))
	}
	return nil
}

func validValues(p *resourcev1.CapacityRequestPolicy, total resource.Quantity, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	values := p.ValidValues
	for i := 1; i < len(values); i++ {
		if values[i-1].Cmp(values[i]) > 0 {
			errs = append(errs, field.Invalid(path.Index(i), values[i].String(), "values must be sorted in ascending order"))
		}
	}
	known := false
	if n := len(values); n > maxValidValues {
		errs = append(errs, field.TooMany(path, n, maxValidValues))
	} else {
		keys := make([]string, n)
		for i, v := range values {
			if v.Cmp(total) > 0 {
				errs = append(errs, field.Invalid(path.Index(i), v.String(), "option is larger than capacity value: "+total.String()))
			}
			known = known || v.Cmp(*p.Default) == 0
			keys[i] = strconv.FormatInt(v.Value(), 10)
		}
		errs = append(errs, rules.Unique(keys, path)...)
	}
	if !known {
		errs = append(errs, field.Invalid(path, p.Default.String(), "default value is not valid according to the requestPolicy"))
	}
	return errs
}

// bound is a quantity of a range, with the name of its field; nil if there is none.
type bound struct {
	name string
	*resource.Quantity
}

func (b bound) invalid(path *field.Path, message string) *field.Error {
	return field.Invalid(path.Child(b.name), b.String(), message)
}

func validRange(p *resourcev1.CapacityRequestPolicy, total resource.Quantity, path *field.Path) field.ErrorList {
	r, initial := p.ValidRange, p.Default
	if r.Min == nil {
		return field.ErrorList{field.Required(path.Child("min"), "required when validRange is defined")}
	}
	var errs field.ErrorList
	for _, c := range []struct {
		field   string
		value   *resource.Quantity
		wrong   int // the order of value and than that is an error
		than    *resource.Quantity
		message string
	}{
		{"min", r.Min, 1, &total, "min is larger than capacity value: "},
		{"default", initial, -1, r.Min, "default is less than min: "},
		{"max", r.Min, 1, r.Max, "min is larger than max: "},
		{"max", r.Max, 1, &total, "max is larger than capacity value: "},
		{"default", initial, 1, r.Max, "default is more than max: "},
	} {
		if c.value != nil && c.than != nil && c.value.Cmp(*c.than) == c.wrong {
			errs = append(errs, bound{c.field, c.value}.invalid(path, c.message+c.than.String()))
		}
	}
	if r.Step == nil {
		return errs
	}
	return append(errs, steps(bound{"default", initial}, bound{"min", r.Min}, bound{"max", r.Max}, bound{"step", r.Step}, total, path)...)
}

// integer returns the error of a bound that int64 cannot hold.
func (b bound) integer(path *field.Path) *field.Error {
	switch {
	case b.Sign() < 0:
		return b.invalid(path, apivalidation.IsNegativeErrorMsg)
	case b.CmpInt64(math.MaxInt64) > 0:
		return b.invalid(path, "must not be larger than 9223372036854775807")
	}
	return nil
}

// steps requires that the default and the maximum are whole steps above the minimum.
func steps(initial, least, most, step bound, total resource.Quantity, path *field.Path) field.ErrorList {
	if step.Sign() <= 0 {
		return field.ErrorList{step.invalid(path, "must be greater than zero")}
	}
	var errs field.ErrorList
	next := least.DeepCopy()
	next.Add(*step.Quantity)
	if next.Cmp(total) > 0 {
		errs = append(errs, step.invalid(path, fmt.Sprintf("one step %s is larger than capacity value: %s", next.String(), total.String())))
	}
	wide := false
	for _, b := range []bound{initial, least, most, step} {
		if b.Quantity == nil {
			continue
		}
		if err := b.integer(path); err != nil {
			wide, errs = true, append(errs, err)
		}
	}
	if wide {
		return errs
	}
	for _, b := range []bound{initial, most} {
		if b.Quantity != nil && (b.Value()-least.Value())%step.Value() != 0 {
			errs = append(errs, bound{"step", b.Quantity}.invalid(path, fmt.Sprintf("value is not a multiple of a given step (%s) from (%s)", step.String(), least.String())))
		}
	}
	return errs
}
