package rest

import (
	"fmt"
	"slices"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"

	"portico/resource"
)

// The fields that every kind can be selected by.
const (
	fieldName      = "metadata.name"
	fieldNamespace = "metadata.namespace"
)

// selector reads label and field selectors as in a query. name, if not empty,
// is the object that the path names, which is one more condition (legacy
// watches). Errors are 400s (docs/wire.md 5.1, 5.7).
func (k *Kind) selector(version, labelText, fieldText, name string) (resource.Selector, error) {
	var s resource.Selector
	if labelText != "" {
		parsed, err := labels.Parse(labelText)
		if err != nil {
			return s, apierrors.NewBadRequest(err.Error())
		}
		s.Labels = parsed
	}
	if fieldText != "" {
		parsed, err := fields.ParseSelector(fieldText)
		if err != nil {
			return s, apierrors.NewBadRequest(err.Error())
		}
		if err := k.checkFields(version, parsed); err != nil {
			return s, err
		}
		s.Fields = parsed
	}
	if name != "" {
		if s.Fields == nil || s.Fields.Empty() {
			s.Fields = fields.OneTermEqualSelector(fieldName, name)
		} else if selected, ok := s.Fields.RequiresExactMatch(fieldName); !ok || selected != name {
			return s, apierrors.NewBadRequest("fieldSelector metadata.name doesn't match requested name")
		}
	}
	if s.Fields != nil && k.Fields != nil {
		s.Extract, s.Names, s.By = k.extractFields, k.FieldLabels, k
		if k.FieldsBy != nil {
			s.By = k.FieldsBy
		}
	}
	return s, nil
}

// checkFields refuses fields that the kind cannot be selected by.
func (k *Kind) checkFields(version string, s fields.Selector) error {
	for _, requirement := range s.Requirements() {
		label := requirement.Field
		if label == fieldName || label == fieldNamespace || slices.Contains(k.FieldLabels, label) {
			continue
		}
		if len(k.FieldLabels) > 0 || !k.typed(version) {
			return apierrors.NewBadRequest("field label not supported: " + label)
		}
		return apierrors.NewBadRequest(fmt.Sprintf("%q is not a known field selector: only %q, %q", label, fieldName, fieldNamespace))
	}
	return nil
}

// extractFields is resource.Selector.Extract. An object that cannot be decoded
// has no fields, so that it does not keep others from being found.
func (k *Kind) extractFields(o *resource.Object) map[string]string {
	obj, err := k.Codec.DecodeStored(o)
	if err != nil {
		return map[string]string{}
	}
	return k.Fields(obj)
}
