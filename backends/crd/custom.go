package crd

import (
	"cmp"
	"context"
	"crypto/sha256"
	"fmt"
	"slices"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/managedfields"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/apimachinery/pkg/version"
	"k8s.io/kube-openapi/pkg/validation/spec"

	"portico/resource"
	"portico/resource/rest"
)

// custom is the behaviour of one served version of a custom resource.
type custom struct {
	server  *Server
	serving *serving
	version *apiextensionsv1.CustomResourceDefinitionVersion // without its schema
	kind    *rest.Kind
	fields  []path // selectable
}

// newKind makes the row of one served version. It builds no schema.
func (s *Server) newKind(v *serving, version *apiextensionsv1.CustomResourceDefinitionVersion) *rest.Kind {
	names, spec := v.outline.Status.AcceptedNames, v.outline.Spec
	c := &custom{server: s, serving: v, version: version}
	k := &rest.Kind{
		Info: resource.Info{
			Group: spec.Group, Versions: []string{version.Name}, StorageVersion: storageVersion(v.outline.CustomResourceDefinition),
			Resource: names.Plural, Singular: names.Singular, Kind: names.Kind, ListKind: names.ListKind,
			ShortNames: clip(names.ShortNames), Categories: clip(names.Categories),
			Namespaced: spec.Scope == apiextensionsv1.NamespaceScoped, Path: v.outline.storagePath(),
		},
		Schema:       c.schema,
		SchemaInputs: func(string) string { return c.inputs() },
		Deprecated:   func(string) string { return c.deprecation() },
		Ownership:    c.ownership,
	}
	c.kind = k
	k.Codec = &codec{id: &identity{}, server: s, serving: v, gvk: k.GVK(version.Name), storage: k.GVK(k.StorageVersion)}
	k.Strategy = rest.Strategy{
		TrackGeneration: true, SpecChanged: changedOutsideMetadata, LooseFinalizers: true,
		PrepareCreate: c.prepareCreate, PrepareUpdate: c.prepareUpdate,
		Validate: c.validate, ValidateUpdate: c.validateUpdate, Prevalidated: c.prevalidated, Warnings: finalizerWarnings,
	}
	if sub := version.Subresources; sub != nil && sub.Scale != nil {
		k.Subresources = append(k.Subresources, c.scaleView(sub.Scale))
	}
	if c.hasStatus() {
		k.Subresources = append(k.Subresources, rest.Subresource{Name: "status", Strategy: &rest.Strategy{
			PrepareUpdate: prepareStatus, ValidateUpdate: c.validateStatus, Prevalidated: c.statusPrevalidated,
			TrackGeneration: false, LooseFinalizers: true,
		}})
	}
	c.setColumns()
	c.setFields()
	return k
}

func (c *custom) hasStatus() bool {
	return c.version.Subresources != nil && c.version.Subresources.Status != nil
}

// schema is the version's OpenAPI schema.
func (c *custom) schema(version string) (*spec.Schema, error) {
	s, err := c.server.schemaOf(c.serving, version)
	if err != nil {
		return nil, err
	}
	out := s.structural.Unfold().ToKubeOpenAPI()
	if s.preserving {
		out.AddExtension("x-kubernetes-preserve-unknown-fields", true)
	}
	return out, nil
}

// inputs identifies the schema: the definition's bytes say more than that, but
// they are at hand, and a generation is a specification.
func (c *custom) inputs() string {
	o := c.serving.outline
	sum := sha256.Sum256(fmt.Appendf(nil, "%s %d %s", o.UID, o.Generation, c.version.Name))
	return fmt.Sprintf("%x", sum)
}

func (c *custom) ownership() (managedfields.TypeConverter, error) {
	b, err := c.server.schemas.get(c.serving)
	if err != nil {
		return nil, err
	}
	return b.ownership()
}

// deprecation is the warning for requests of a deprecated version: the
// definition's own, or one that names the best version to use instead.
func (c *custom) deprecation() string {
	v := c.version
	switch {
	case !v.Deprecated:
		return ""
	case v.DeprecationWarning != nil:
		return *v.DeprecationWarning
	}
	spec := &c.serving.outline.Spec
	text := fmt.Sprintf("%s/%s %s is deprecated", spec.Group, v.Name, spec.Names.Kind)
	var better []string
	for _, o := range spec.Versions {
		if o.Served && !o.Deprecated && version.CompareKubeAwareVersionStrings(v.Name, o.Name) < 0 {
			better = append(better, o.Name)
		}
	}
	if len(better) == 0 {
		return text
	}
	best := slices.MaxFunc(better, func(a, b string) int { return cmp.Compare(version.CompareKubeAwareVersionStrings(a, b), 0) })
	return fmt.Sprintf("%s; use %s/%s %s", text, spec.Group, best, spec.Names.Kind)
}

// prepareCreate drops the status where it has a view of its own.
func (c *custom) prepareCreate(_ context.Context, obj rest.Object) {
	if c.hasStatus() {
		delete(content(obj), "status")
	}
}

// prepareUpdate keeps the status where it has a view of its own.
func (c *custom) prepareUpdate(_ context.Context, obj, old rest.Object) {
	if c.hasStatus() {
		keep(content(obj), content(old), "status")
	}
}

// prepareStatus keeps everything but the status, and the record of who owns
// which field of it.
func prepareStatus(_ context.Context, obj, old rest.Object) {
	u, was := obj.(*unstructured.Unstructured), old.(*unstructured.Unstructured)
	status, found := u.Object["status"]
	managed := u.GetManagedFields()
	u.Object = was.DeepCopy().Object
	u.SetManagedFields(managed)
	delete(u.Object, "status")
	if found {
		u.Object["status"] = status
	}
}

// keep gives obj the field as old has it.
func keep(obj, old map[string]any, name string) {
	if value, ok := old[name]; ok {
		obj[name] = value
	} else {
		delete(obj, name)
	}
}

// changedOutsideMetadata is what makes a new generation of a custom resource.
func changedOutsideMetadata(obj, old rest.Object) bool {
	a, b := content(obj), content(old)
	return !apiequality.Semantic.DeepEqual(withoutMetadata(a), withoutMetadata(b))
}

func withoutMetadata(object map[string]any) map[string]any {
	out := make(map[string]any, len(object))
	for name, value := range object {
		if name != "metadata" {
			out[name] = value
		}
	}
	return out
}

// content returns an object's fields. Everything that this package decodes is
// unstructured.
func content(obj rest.Object) map[string]any { return obj.(*unstructured.Unstructured).Object }

// internalError makes of what should not happen to a definition that was
// validated an error of the object.
func internalError(err error) field.ErrorList {
	return field.ErrorList{field.InternalError(nil, err)}
}
