package crd

import (
	"encoding/json"
	"errors"
	"fmt"
	"sync"

	"github.com/hashicorp/golang-lru/v2/simplelru"
	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	structuralschema "k8s.io/apiextensions-apiserver/pkg/apiserver/schema"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/cel"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/defaulting"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/validation"
	celconfig "k8s.io/apiserver/pkg/apis/cel"

	"k8s.io/apimachinery/pkg/util/managedfields"

	"portico/backends/crd/accept"
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
	// acceptor knows most objects that need none of the above.
	acceptor func() *accept.Acceptor
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
		acceptor:   sync.OnceValue(func() *accept.Acceptor { return accept.Compile(props) }),
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

// schemas keeps what is built for the definitions used last, within a number
// of bytes. It is the named cache "schemas". Safe for concurrent use.
type schemas struct {
	mu    sync.Mutex
	lru   *simplelru.LRU[*serving, *schemaEntry]
	bytes int
	limit int
}

// schemaEntry is built once; everybody else who wants it waits.
type schemaEntry struct {
	build func() (*built, error)
	cost  int
}

func newSchemas(limit int) *schemas {
	c := &schemas{limit: limit}
	// NewLRU fails only for a size below 1.
	c.lru, _ = simplelru.NewLRU(max(limit/schemaBase, 1), func(_ *serving, e *schemaEntry) { c.bytes -= e.cost })
	return c
}

// get returns what is built for a definition, or builds it. The definition used
// last is kept even if it alone is above the budget.
func (c *schemas) get(s *serving) (*built, error) {
	c.mu.Lock()
	e, ok := c.lru.Get(s)
	if !ok {
		e = &schemaEntry{
			build: sync.OnceValues(func() (*built, error) { return build(s.outline) }),
			cost:  schemaBase + schemaFactor*len(s.outline.stored.Data),
		}
		c.lru.Add(s, e)
		c.bytes += e.cost
		for c.bytes > c.limit && c.lru.Len() > 1 {
			c.lru.RemoveOldest()
		}
	}
	c.mu.Unlock()
	return e.build()
}

// forget drops what is built for a definition that is served no more.
func (c *schemas) forget(s *serving) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.lru.Remove(s)
}
