package custom

import (
	"context"
	"fmt"
	"sync"

	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/apiserver/pkg/cel/common"
	"k8s.io/kube-openapi/pkg/validation/spec"
	"k8s.io/kube-openapi/pkg/validation/strfmt"
	"k8s.io/kube-openapi/pkg/validation/validate"
)

const (
	// maxErrors is the number of errors after which the validation of an object stops.
	// Upstream's validator compares every error with all before it: the half million that
	// fit into a body would keep a processor busy for hours.
	maxErrors = 1000
	// errorText bytes of the text of an error count as one error more: an enum of 1 MB is
	// in the error of each value that is not in it.
	errorText = 1 << 10
)

// limited is upstream's validator of one schema, for values that do not take too many steps
// (cost). It stops after maxErrors, and with its request. Safe for concurrent use.
type limited struct {
	ratcheting validation.SchemaValidator
	schema     *spec.Schema
	patterns   sync.Map // see cost
}

func newLimited(props *apiextensions.JSONSchemaProps) (*limited, error) {
	ratcheting, schema, err := validation.NewSchemaValidator(props)
	if err != nil {
		return nil, err
	}
	return &limited{ratcheting: ratcheting, schema: schema}, nil
}

// create validates a new value. ok is false if the validation ended early: errs has the
// errors until then, or why it has not begun.
func (l *limited) create(ctx context.Context, path *field.Path, value any) (errs field.ErrorList, ok bool) {
	if err := l.tooCostly(path, value); err != nil {
		return field.ErrorList{err}, false
	}
	r := &run{limited: l, ctx: ctx}
	return r.result(validation.ValidateCustomResource(path, value, r))
}

// update is create for a changed value. Errors of values that did not change are ignored,
// unless the validation ended early.
func (l *limited) update(ctx context.Context, path *field.Path, value, old any, unchanged *common.CorrelatedObject) (errs field.ErrorList, ok bool) {
	if err := l.tooCostly(path, value); err != nil {
		return field.ErrorList{err}, false
	}
	r := &run{limited: l, ctx: ctx}
	return r.result(validation.ValidateCustomResourceUpdate(path, value, old, r, validation.WithRatcheting(unchanged)))
}

// run is one validation.
type run struct {
	*limited
	ctx context.Context
	// errors counts the errors of the fields and elements that are reached without anyOf,
	// oneOf or not, which are errors of the whole.
	errors int
}

// ended reports whether the validation is to stop.
func (r *run) ended() bool { return r.errors >= maxErrors || r.ctx.Err() != nil }

func (r *run) result(errs field.ErrorList) (field.ErrorList, bool) {
	if r.ctx.Err() != nil {
		return field.ErrorList{field.InternalError(nil, fmt.Errorf("validation ended with its request: %w", context.Cause(r.ctx)))}, false
	}
	if n := len(errs); n > 0 && r.errors >= maxErrors {
		return append(errs, &field.Error{Type: field.ErrorTypeTooMany, Field: errs[n-1].Field, BadValue: n, Detail: "further errors are omitted"}), false
	}
	return errs, true
}

// Validate implements validation.SchemaValidator.
func (r *run) Validate(value any, _ ...validation.ValidationOption) *validate.Result {
	return r.validator(r.schema, nil, "", strfmt.Default).Validate(value)
}

// ValidateUpdate implements validation.SchemaValidator. A valid value needs no ratcheting,
// and one with too many errors gets none.
func (r *run) ValidateUpdate(value, old any, options ...validation.ValidationOption) *validate.Result {
	result := r.Validate(value)
	if result.IsValid() || r.ended() {
		return result
	}
	return r.ratcheting.ValidateUpdate(value, old, options...)
}

func (r *run) validator(schema *spec.Schema, root any, path string, formats strfmt.Registry) validate.ValueValidator {
	if r.ended() {
		return &countingValidator{run: r}
	}
	return &countingValidator{
		SchemaValidator: validate.NewSchemaValidator(schema, root, path, formats, func(o *validate.SchemaValidatorOptions) {
			o.NewValidatorForField = func(_ string, schema *spec.Schema, root any, path string, formats strfmt.Registry, _ ...validate.Option) validate.ValueValidator {
				return r.validator(schema, root, path, formats)
			}
			o.NewValidatorForIndex = func(_ int, schema *spec.Schema, root any, path string, formats strfmt.Registry, _ ...validate.Option) validate.ValueValidator {
				return r.validator(schema, root, path, formats)
			}
		}),
		run: r,
	}
}

// countingValidator validates one value and the values within.
type countingValidator struct {
	*validate.SchemaValidator
	run *run
}

// Validate finds nothing once the validation has ended.
func (v *countingValidator) Validate(value any) *validate.Result {
	before := v.run.errors
	if v.run.ended() {
		return &validate.Result{}
	}
	result := v.SchemaValidator.Validate(value)
	// Errors of the values within are counted already.
	count := len(result.Errors)
	for _, err := range result.Errors {
		count += len(err.Error()) / errorText
	}
	v.run.errors = max(v.run.errors, before+count)
	return result
}
