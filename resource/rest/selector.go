package rest

import (
	"fmt"
	"slices"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"

	"portico/resource"
)

// metadataNamespace is the field label of metadata.namespace, which every kind has.
const metadataNamespace = "metadata.namespace"

// Selector parses the label and field selectors of a query. name, if not empty, is the name
// in the path of a legacy watch, and one more condition. Errors are 400s (docs/wire.md 5.1,
// 5.7).
func (k *Kind) Selector(version, labelText, fieldText, name string) (resource.Selector, error) {
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
			s.Fields = fields.OneTermEqualSelector(metav1.ObjectNameField, name)
		} else if selected, ok := s.Fields.RequiresExactMatch(metav1.ObjectNameField); !ok || selected != name {
			return s, apierrors.NewBadRequest("fieldSelector metadata.name doesn't match requested name")
		}
	}
	if s.Fields != nil && k.Fields != nil {
		s.Extract, s.Names, s.By = k.extractFields, k.FieldLabels, k
		if k.FieldsBy != nil {
			s.By = k.FieldsBy
		}
		extracted := func(r fields.Requirement) bool { return slices.Contains(k.FieldLabels, r.Field) }
		if slices.ContainsFunc(s.Fields.Requirements(), extracted) {
			s.Convert = k.Prepare
		}
	}
	return s, nil
}

// checkFields is the 400 for a field label that the kind does not have.
func (k *Kind) checkFields(version string, s fields.Selector) error {
	for _, requirement := range s.Requirements() {
		label := requirement.Field
		if label == metav1.ObjectNameField || label == metadataNamespace || slices.Contains(k.FieldLabels, label) {
			continue
		}
		if len(k.FieldLabels) > 0 || !k.HasGoType(version) {
			return apierrors.NewBadRequest("field label not supported: " + label)
		}
		return apierrors.NewBadRequest(fmt.Sprintf("%q is not a known field selector: only %q, %q", label, metav1.ObjectNameField, metadataNamespace))
	}
	return nil
}

// extractFields is resource.Selector.Extract. An object that cannot be decoded has no
// fields, so that it does not make the whole list fail.
func (k *Kind) extractFields(o *resource.Object) map[string]string {
	if k.StoredFields != nil {
		if values, ok := k.StoredFields(o); ok {
			return values
		}
	}
	obj, err := k.Codec.DecodeStored(o)
	if err != nil {
		return nil
	}
	return k.Fields(obj)
}
