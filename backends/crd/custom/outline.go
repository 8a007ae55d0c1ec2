package custom

import (
	"encoding/json"
	"fmt"
	"slices"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"portico/resource"
)

// Outline is a stored definition without its schemas, which are most of it and rarely
// needed. Immutable.
type Outline struct {
	*apiextensionsv1.CustomResourceDefinition
	// Stored is the whole definition.
	Stored *resource.Object
}

// skipped is a JSON value that is not decoded.
type skipped struct{}

func (*skipped) UnmarshalJSON([]byte) error { return nil }

// NewOutline decodes a stored definition without its schemas and managedFields.
func NewOutline(o *resource.Object) (*Outline, error) {
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
	return &Outline{CustomResourceDefinition: crd, Stored: o}, nil
}

// StoragePath returns where the definition's objects are kept. It uses the plural of the
// specification, which never changes, and not that of the accepted names.
func (o *Outline) StoragePath() string { return o.Spec.Group + "/" + o.Spec.Names.Plural }

// version returns a version of the definition, served or not; nil if it has none of that
// name.
func (o *Outline) version(name string) *apiextensionsv1.CustomResourceDefinitionVersion {
	i := slices.IndexFunc(o.Spec.Versions, func(v apiextensionsv1.CustomResourceDefinitionVersion) bool { return v.Name == name })
	if i < 0 {
		return nil
	}
	return &o.Spec.Versions[i]
}

// StorageVersion returns the version that objects are stored in; "" if there is none,
// which validation rejects.
func StorageVersion(crd *apiextensionsv1.CustomResourceDefinition) string {
	for _, v := range crd.Spec.Versions {
		if v.Storage {
			return v.Name
		}
	}
	return ""
}
