package crd

import (
	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/validation"
	"k8s.io/kube-openapi/pkg/validation/spec"
	"k8s.io/kube-openapi/pkg/validation/strfmt"
	"k8s.io/kube-openapi/pkg/validation/validate"
)

// maxSchemaErrors is after how many errors an object is not looked at further.
// Upstream's validator compares every error with all before it: the half million
// that fit into a body would keep a processor busy for hours.
const maxSchemaErrors = 1000

// bounded is upstream's validator of one schema, which gives up on objects that
// are all wrong. Safe for concurrent use.
type bounded struct {
	ratcheting validation.SchemaValidator
	schema     *spec.Schema
}

func newBounded(props *apiextensions.JSONSchemaProps) (validation.SchemaValidator, error) {
	ratcheting, schema, err := validation.NewSchemaValidator(props)
	if err != nil {
		return nil, err
	}
	return &bounded{ratcheting: ratcheting, schema: schema}, nil
}

// Validate implements validation.SchemaValidator.
func (b *bounded) Validate(value any, _ ...validation.ValidationOption) *validate.Result {
	v := &validating{}
	return v.node(b.schema, nil, "", strfmt.Default).Validate(value)
}

// ValidateUpdate implements validation.SchemaValidator. What is valid needs no
// forgiveness for what did not change. What has too many errors to look for it
// has more than can be forgiven, unless the old value has as many.
func (b *bounded) ValidateUpdate(value, old any, options ...validation.ValidationOption) *validate.Result {
	result := b.Validate(value)
	if result.IsValid() {
		return result
	}
	if len(result.Errors) >= maxSchemaErrors && len(b.Validate(old).Errors) < maxSchemaErrors {
		return result
	}
	return b.ratcheting.ValidateUpdate(value, old, options...)
}

// validating counts the errors of one validation. It sees the fields and
// elements that are reached without a choice (anyOf, not), whose errors are
// errors of the whole.
type validating struct{ errors int }

func (v *validating) node(schema *spec.Schema, root any, path string, formats strfmt.Registry) validate.ValueValidator {
	if v.errors >= maxSchemaErrors {
		return &validatingNode{of: v}
	}
	return &validatingNode{
		SchemaValidator: validate.NewSchemaValidator(schema, root, path, formats, func(o *validate.SchemaValidatorOptions) {
			o.NewValidatorForField = func(_ string, schema *spec.Schema, root any, path string, formats strfmt.Registry, _ ...validate.Option) validate.ValueValidator {
				return v.node(schema, root, path, formats)
			}
			o.NewValidatorForIndex = func(_ int, schema *spec.Schema, root any, path string, formats strfmt.Registry, _ ...validate.Option) validate.ValueValidator {
				return v.node(schema, root, path, formats)
			}
		}),
		of: v,
	}
}

// validatingNode validates one value and what is in it.
type validatingNode struct {
	*validate.SchemaValidator
	of *validating
}

// Validate finds nothing once there are errors enough.
func (n *validatingNode) Validate(value any) *validate.Result {
	before := n.of.errors
	if before >= maxSchemaErrors {
		return &validate.Result{}
	}
	result := n.SchemaValidator.Validate(value)
	// Those of what is in it are counted already.
	if own := len(result.Errors) - (n.of.errors - before); own > 0 {
		n.of.errors += own
	}
	return result
}
