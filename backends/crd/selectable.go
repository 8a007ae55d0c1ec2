package crd

import (
	"context"
	"fmt"
	"strings"

	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// Upstream's internal type has schema and selectable fields once for all versions if they are equal in all, else for each
// version. The conversion decides about schema and fields separately, and validation refuses fields that are not beside
// their schema. Such fields are validated version by version.

// takeSelectableFields removes the selectable fields of a converted definition if they are not beside their schema, and
// reports whether it did.
func takeSelectableFields(in *apiextensions.CustomResourceDefinition) bool {
	spec := &in.Spec
	apart := len(spec.SelectableFields) > 0 && spec.Validation == nil
	for i := range spec.Versions {
		apart = apart || len(spec.Versions[i].SelectableFields) > 0 && spec.Validation != nil
	}
	if !apart {
		return false
	}
	spec.SelectableFields = nil
	for i := range spec.Versions {
		spec.Versions[i].SelectableFields = nil
	}
	return true
}

// validateSelectableFields validates the selectable fields of each version as if the definition had that version only.
// old is nil on create.
func (d *definitions) validateSelectableFields(ctx context.Context, crd, old *apiextensionsv1.CustomResourceDefinition) field.ErrorList {
	var all field.ErrorList
	for i := range crd.Spec.Versions {
		name := crd.Spec.Versions[i].Name
		in, errs := d.internal(onlyVersion(crd, name))
		if errs != nil {
			return errs
		}
		if was := onlyVersion(old, name); was != nil {
			before, errs := d.internal(was)
			if errs != nil {
				return errs
			}
			errs = validation.ValidateCustomResourceDefinitionUpdate(ctx, in, before)
			all = append(all, ofSelectableFields(errs, i)...)
			continue
		}
		all = append(all, ofSelectableFields(validation.ValidateCustomResourceDefinition(ctx, in), i)...)
	}
	return all
}

// onlyVersion returns a definition with one of its versions; nil without that version.
func onlyVersion(crd *apiextensionsv1.CustomResourceDefinition, name string) *apiextensionsv1.CustomResourceDefinition {
	if crd == nil {
		return nil
	}
	for _, v := range crd.Spec.Versions {
		if v.Name == name {
			out := *crd
			out.Spec.Versions = []apiextensionsv1.CustomResourceDefinitionVersion{v}
			return &out
		}
	}
	return nil
}

// ofSelectableFields returns the errors that are about selectable fields, with the path of a version.
func ofSelectableFields(errs field.ErrorList, version int) (out field.ErrorList) {
	for _, e := range errs {
		if rest, ok := strings.CutPrefix(e.Field, "spec.selectableFields"); ok {
			e.Field = fmt.Sprintf("spec.versions[%d].selectableFields%s", version, rest)
			out = append(out, e)
		}
	}
	return out
}
