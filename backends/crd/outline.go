package crd

import (
	"encoding/json"
	"fmt"
	"slices"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"portico/resource"
)

// outline is a stored definition without its schemas, which are most of it and
// rarely needed. Immutable.
type outline struct {
	*apiextensionsv1.CustomResourceDefinition
	// stored is the whole definition.
	stored *resource.Object
}

// skipped is a JSON value that is not decoded.
type skipped struct{}

func (*skipped) UnmarshalJSON([]byte) error { return nil }

// newOutline reads a stored definition's outline.
func newOutline(o *resource.Object) (*outline, error) {
	// The outer fields hide those of the embedded types.
	type version struct {
		apiextensionsv1.CustomResourceDefinitionVersion
		Schema skipped `json:"schema"`
	}
	type spec struct {
		apiextensionsv1.CustomResourceDefinitionSpec
		Versions []version `json:"versions"`
	}
	type meta struct {
		metav1.ObjectMeta
		ManagedFields skipped `json:"managedFields"`
	}
	var in struct {
		metav1.TypeMeta
		Metadata meta                                           `json:"metadata"`
		Spec     spec                                           `json:"spec"`
		Status   apiextensionsv1.CustomResourceDefinitionStatus `json:"status"`
	}
	if err := json.Unmarshal(o.Data, &in); err != nil {
		return nil, fmt.Errorf("read definition %s: %w", o.Name, err)
	}
	crd := &apiextensionsv1.CustomResourceDefinition{
		TypeMeta: in.TypeMeta, ObjectMeta: in.Metadata.ObjectMeta, Spec: in.Spec.CustomResourceDefinitionSpec, Status: in.Status,
	}
	crd.Spec.Versions = make([]apiextensionsv1.CustomResourceDefinitionVersion, len(in.Spec.Versions))
	for i := range in.Spec.Versions {
		crd.Spec.Versions[i] = in.Spec.Versions[i].CustomResourceDefinitionVersion
	}
	return &outline{CustomResourceDefinition: crd, stored: o}, nil
}

// storagePath is where the definition's objects are kept. The plural is part of
// the definition's name: unlike the names accepted, it is there from the start
// and never changes.
func (o *outline) storagePath() string { return o.Spec.Group + "/" + o.Spec.Names.Plural }

// knows reports whether the definition has that version, served or not.
func (o *outline) knows(version string) bool {
	return slices.ContainsFunc(o.Spec.Versions, func(v apiextensionsv1.CustomResourceDefinitionVersion) bool { return v.Name == version })
}
