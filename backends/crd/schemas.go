package crd

import (
	"encoding/json"
	"errors"
	"fmt"
	"sync"

	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	structuralschema "k8s.io/apiextensions-apiserver/pkg/apiserver/schema"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/cel"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/defaulting"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/validation"
	celconfig "k8s.io/apiserver/pkg/apis/cel"

	"k8s.io/apimachinery/pkg/util/managedfields"

	"portico/backends/crd/prevalidate"
	"portico/resource/bytelru"
)

const (
	// defaultSchemaBytes bounds the memory of built schemas, roughly.
	defaultSchemaBytes = 64 << 20
	// schemaFactor is how many bytes a built schema takes for each byte of the
	// definition it is made from, measured over the definitions of two dozen
	// projects with everything built; schemaBase is what each costs besides.
	schemaFactor = 18
	schemaBase   = 32 << 10
)

// errNotServed is why a schema that is not there cannot be built.
var errNotServed = errors.New("the version has no schema")

// versionSchema is what one version of a definition is checked with. Its parts are
// built when first needed and shared; safe for concurrent use.
type versionSchema struct {
	// structural prunes and defaults; its defaults are pruned themselves.
	structural *structuralschema.Structural
	// preserving says that nothing is pruned.
	preserving bool
	// checks validates objects.
	checks func() (*checks, error)
	// defaults are those of structural; nil: there are none.
	defaults func() *defaultNode
	// compiled knows most objects that need none of the above.
	compiled func() *prevalidate.Schema
}

// checks are the validators of one version. Safe for concurrent use.
type checks struct {
	whole validation.SchemaValidator
	// status checks the status alone; nil: there is no such property.
	status validation.SchemaValidator
	// rules are the CEL rules; nil: there are none.
	rules *cel.Validator
}

// built is everything that is built for one definition.
type built struct {
	versions map[string]*versionSchema
	// ownership is what field ownership is tracked with.
	ownership func() (managedfields.TypeConverter, error)
}

// build reads the schemas of a stored definition.
func build(o *outline) (*built, error) {
	crd := &apiextensionsv1.CustomResourceDefinition{}
	if err := json.Unmarshal(o.stored.Data, crd); err != nil {
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
	b.ownership = sync.OnceValues(func() (managedfields.TypeConverter, error) { return newOwnership(o, b) })
	return b, nil
}

func newSchema(in *apiextensionsv1.CustomResourceValidation) (*versionSchema, error) {
	props, err := schemaProps(in)
	if err != nil {
		return nil, err
	}
	if props == nil {
		return nil, errNotServed
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
	return schemaOver(props, structural), nil
}

// newPreserving is newSchema for a definition with preserveUnknownFields. None
// such can be made any more, but another server may have stored it: then its
// objects hold what no schema tells of, and the schema, if there is one, need
// not be structural.
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
	s := schemaOver(props, structural)
	s.preserving = true
	return s, nil
}

// schemaProps reads a schema; nil: there is none.
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

func schemaOver(props *apiextensions.JSONSchemaProps, structural *structuralschema.Structural) *versionSchema {
	return &versionSchema{
		structural: structural,
		defaults:   sync.OnceValue(func() *defaultNode { return compileDefaults(structural) }),
		checks:     sync.OnceValues(func() (*checks, error) { return newChecks(props, structural) }),
		compiled:   sync.OnceValue(func() *prevalidate.Schema { return prevalidate.Compile(props) }),
	}
}

func newChecks(props *apiextensions.JSONSchemaProps, structural *structuralschema.Structural) (*checks, error) {
	whole, err := newBounded(props)
	if err != nil {
		return nil, err
	}
	c := &checks{whole: whole, rules: cel.NewValidator(structural, true, celconfig.PerCallLimit)}
	if status, ok := props.Properties["status"]; ok {
		if c.status, err = newBounded(&status); err != nil {
			return nil, err
		}
	}
	return c, nil
}

// schemas caches what is built for the definitions used last, within a number of bytes.
// Safe for concurrent use.
type schemas struct {
	built *bytelru.Cache[*serving, func() (*built, error)]
}

func newSchemas(limit int) *schemas {
	return &schemas{built: bytelru.New[*serving, func() (*built, error)](limit)}
}

// get returns what is built for a definition, or builds it once for all callers.
func (c *schemas) get(s *serving) (*built, error) {
	return c.built.GetOrAdd(s, func() (func() (*built, error), int) {
		return sync.OnceValues(func() (*built, error) { return build(s.outline) }), schemaBase + schemaFactor*len(s.outline.stored.Data)
	})()
}

// forget removes what is built for a definition that is served no more.
func (c *schemas) forget(s *serving) { c.built.Remove(s) }
