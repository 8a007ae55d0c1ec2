package custom

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"sync"

	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/conversion"
	structuralschema "k8s.io/apiextensions-apiserver/pkg/apiserver/schema"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/cel"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/defaulting"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/validation"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/managedfields"
	celconfig "k8s.io/apiserver/pkg/apis/cel"

	"portico/backends/crd/prevalidate"
	"portico/resource"
	"portico/resource/bytelru"
	"portico/resource/rest"
)

const (
	// maxSchemaBytes bounds the memory of built schemas, roughly.
	maxSchemaBytes = 64 << 20
	// schemaFactor is the number of bytes that a built schema takes for each byte of the
	// definition that it is made from, measured over the definitions of two dozen
	// projects with everything built. schemaBase is what each takes in addition.
	schemaFactor = 18
	schemaBase   = 32 << 10
)

// errNoSchema is the error for a version of a definition that has no schema.
var errNoSchema = errors.New("the version has no schema")

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
	data, err := definitionJSON(o)
	if err == nil {
		err = json.Unmarshal(data, &in)
	}
	if err != nil {
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

// Version returns a version of the definition, served or not; nil if it has none of that
// name.
func (o *Outline) Version(name string) *apiextensionsv1.CustomResourceDefinitionVersion {
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

// Kinds makes the rows of custom resources and keeps the schemas of those used last. Safe
// for concurrent use.
type Kinds struct {
	bodies      *bodies
	scale       *rest.Kind // of every scale subresource
	built       *bytelru.Cache[*Outline, func() (*built, error)]
	converters  *conversion.CRConverterFactory
	conversions *conversions
}

// NewKinds returns Kinds that keep up to 64 MiB of schemas and 32 MiB of converted objects.
func NewKinds(webhooks WebhookClients) (*Kinds, error) {
	converters, err := newConverters(webhooks)
	if err != nil {
		return nil, fmt.Errorf("make clients of conversion webhooks: %w", err)
	}
	validation.RegisterMetrics()
	return &Kinds{
		bodies: newBodies(), scale: rest.ScaleKind(), built: bytelru.New[*Outline, func() (*built, error)](maxSchemaBytes),
		converters: converters, conversions: newConversions(),
	}, nil
}

// Metrics returns the prefixes of the metrics of conversion webhooks and of validation in the
// registry of component-base.
func Metrics() []string {
	return []string{"apiserver_conversion_webhook_", "apiserver_crd_conversion_webhook_", "apiextensions_apiserver_validation_"}
}

// Forget removes what is built for a definition.
func (k *Kinds) Forget(o *Outline) { k.built.Remove(o) }

// schemas returns what is built for a definition, and builds it once for all callers.
func (k *Kinds) schemas(o *Outline) (*built, error) {
	return k.built.GetOrAdd(o, func() (func() (*built, error), int) {
		return sync.OnceValues(func() (*built, error) { return k.build(o) }), schemaBase + schemaFactor*len(o.Stored.Data)
	})()
}

// schema returns the built schema of one version.
func (k *Kinds) schema(o *Outline, version string) (*versionSchema, error) {
	b, err := k.schemas(o)
	if err != nil {
		return nil, err
	}
	one := b.versions[version]
	if one == nil {
		return nil, fmt.Errorf("definition %s, version %s: %w", o.Name, version, errNoSchema)
	}
	return one, nil
}

// typesFunc returns types for field ownership.
type typesFunc = func() (managedfields.TypeConverter, error)

// built is what is built for one definition.
type built struct {
	versions map[string]*versionSchema
	// ownership tracks field ownership. converted is for objects in other versions than the request's, which may
	// have unknown fields.
	ownership, converted typesFunc
	// converter calls the conversion webhook; nil: there is none.
	converter func() (*converter, error)
}

// versionSchema is the schema of one version of a definition. Its parts are built when
// first needed and shared; safe for concurrent use.
type versionSchema struct {
	// structural prunes and defaults; its defaults are pruned themselves.
	structural *structuralschema.Structural
	// preserving reports that nothing is pruned.
	preserving bool
	// validators check objects.
	validators func() (*validators, error)
	// compiled checks the bytes of objects.
	compiled func() *prevalidate.Schema
}

// validators are those of one version. Safe for concurrent use.
type validators struct {
	object *limited
	// status checks the status alone; nil: there is no such property.
	status *limited
	// rules are the CEL rules; nil: there are none.
	rules *cel.Validator
}

// build reads the schemas of a stored definition.
func (k *Kinds) build(o *Outline) (*built, error) {
	crd := &apiextensionsv1.CustomResourceDefinition{}
	data, err := definitionJSON(o.Stored)
	if err == nil {
		err = json.Unmarshal(data, crd)
	}
	if err != nil {
		return nil, fmt.Errorf("read definition %s: %w", o.Name, err)
	}
	b := &built{versions: map[string]*versionSchema{}}
	for i := range crd.Spec.Versions {
		v := &crd.Spec.Versions[i]
		read := newSchema
		switch {
		case crd.Spec.PreserveUnknownFields:
			read = newPreserving
		case v.Schema == nil:
			continue
		}
		s, err := read(v.Schema)
		if err != nil {
			return nil, fmt.Errorf("build schema of %s %s: %w", o.Name, v.Name, err)
		}
		b.versions[v.Name] = s
	}
	b.ownership = sync.OnceValues(func() (managedfields.TypeConverter, error) { return newOwnership(o, b, o.Spec.PreserveUnknownFields) })
	b.converted = sync.OnceValues(func() (managedfields.TypeConverter, error) { return newOwnership(o, b, true) })
	b.converter = sync.OnceValues(func() (*converter, error) { return k.newConverter(o) })
	return b, nil
}

func newSchema(in *apiextensionsv1.CustomResourceValidation) (*versionSchema, error) {
	props, err := schemaProps(in)
	if err != nil {
		return nil, err
	}
	if props == nil {
		return nil, errNoSchema
	}
	structural, err := structuralschema.NewStructural(props)
	if err != nil {
		return nil, err
	}
	// Defaults are shared with the definition and must not be pruned in place.
	structural = structural.DeepCopy()
	if err := defaulting.PruneDefaults(structural); err != nil {
		return nil, err
	}
	return schemaOf(props, structural), nil
}

// newPreserving is newSchema for a definition with preserveUnknownFields. Such a definition
// cannot be created, but another server may have stored it. Its objects have fields that
// no schema declares, and the schema, if there is one, need not be structural.
func newPreserving(in *apiextensionsv1.CustomResourceValidation) (*versionSchema, error) {
	props, err := schemaProps(in)
	if err != nil {
		return nil, err
	}
	anything := &apiextensions.JSONSchemaProps{Type: "object", XPreserveUnknownFields: new(true)}
	if props == nil {
		props = anything
	}
	structural, err := structuralschema.NewStructural(props)
	if err != nil {
		structural, err = structuralschema.NewStructural(anything)
	}
	if err != nil {
		return nil, err
	}
	s := schemaOf(props, structural)
	s.preserving = true
	return s, nil
}

// schemaProps converts a schema to the internal type; nil: there is none.
func schemaProps(in *apiextensionsv1.CustomResourceValidation) (*apiextensions.JSONSchemaProps, error) {
	if in == nil {
		return nil, nil
	}
	internal := &apiextensions.CustomResourceValidation{}
	if err := apiextensionsv1.Convert_v1_CustomResourceValidation_To_apiextensions_CustomResourceValidation(in, internal, nil); err != nil {
		return nil, err
	}
	return internal.OpenAPIV3Schema, nil
}

func schemaOf(props *apiextensions.JSONSchemaProps, structural *structuralschema.Structural) *versionSchema {
	return &versionSchema{
		structural: structural,
		validators: sync.OnceValues(func() (*validators, error) { return newValidators(props, structural) }),
		compiled:   sync.OnceValue(func() *prevalidate.Schema { return prevalidate.Compile(props) }),
	}
}

func newValidators(props *apiextensions.JSONSchemaProps, structural *structuralschema.Structural) (*validators, error) {
	object, err := newLimited(props)
	if err != nil {
		return nil, err
	}
	v := &validators{object: object, rules: cel.NewValidator(structural, true, celconfig.PerCallLimit)}
	if status, ok := props.Properties["status"]; ok {
		if v.status, err = newLimited(&status); err != nil {
			return nil, err
		}
	}
	return v, nil
}
