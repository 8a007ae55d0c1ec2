package custom

import (
	"context"
	"fmt"
	"maps"
	"slices"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/managedfields"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/apimachinery/pkg/version"
	"k8s.io/kube-openapi/pkg/validation/spec"

	"portico/resource"
	"portico/resource/rest"
)

// custom is the behaviour of one version of a custom resource.
type custom struct {
	kinds   *Kinds
	outline *Outline
	version *apiextensionsv1.CustomResourceDefinitionVersion // without its schema
	kind    *rest.Kind
}

// verbs are in the order of kube-apiserver's discovery of custom resources.
var verbs = []string{"delete", "deletecollection", "get", "list", "patch", "create", "update", "watch"}

// Kind returns the row of one version of a definition, under its accepted names; nil if the
// definition does not have that version. It builds no schema.
func (k *Kinds) Kind(o *Outline, version string) *rest.Kind {
	v := o.Version(version)
	if v == nil {
		return nil
	}
	names := o.Status.AcceptedNames
	c := &custom{kinds: k, outline: o, version: v}
	c.kind = &rest.Kind{
		Info: resource.Info{
			Group: o.Spec.Group, Versions: []string{version}, StorageVersion: StorageVersion(o.CustomResourceDefinition),
			Resource: names.Plural, Singular: names.Singular, Kind: names.Kind, ListKind: names.ListKind,
			ShortNames: names.ShortNames, Categories: names.Categories,
			Namespaced: o.Spec.Scope == apiextensionsv1.NamespaceScoped, Path: o.StoragePath(),
		},
		Equivalents:  c.equivalents,
		Verbs:        verbs,
		Schema:       c.schema,
		SchemaInputs: func(string) string { return c.schemaInputs() },
		Deprecated:   func(string) string { return c.deprecation() },
		Ownership:    c.types(func(b *built) typesFunc { return b.ownership }),
		Converted:    c.types(func(b *built) typesFunc { return b.converted }),
		Strategy: rest.Strategy{
			TrackGeneration: true, SpecChanged: changedOutsideMetadata, LooseFinalizers: true, Check: c.checkKind,
			PrepareCreate: c.prepareCreate, PrepareUpdate: c.prepareUpdate,
			Validate: c.validate, ValidateUpdate: c.validateUpdate, Prevalidated: c.prevalidated, Warnings: finalizerWarnings,
		},
	}
	codec := &codec{id: &identity{}, kinds: k, outline: o, gvk: c.kind.GVK(version), storage: c.kind.GVK(c.kind.StorageVersion)}
	c.kind.Codec = codec
	if o.hasWebhook() {
		c.kind.Prepare = codec.prepare
	}
	if c.hasStatus() {
		c.kind.Subresources = append(c.kind.Subresources, rest.Subresource{Name: "status", Strategy: &rest.Strategy{
			PrepareUpdate: prepareStatus, ValidateUpdate: c.validateStatus, Prevalidated: c.statusPrevalidated, LooseFinalizers: true,
		}})
	}
	if c.scale() != nil {
		c.kind.Subresources = append(c.kind.Subresources, c.scaleView())
	}
	c.setColumns()
	c.setFields(codec)
	return c.kind
}

func (c *custom) hasStatus() bool { return hasSubresource(c.version, "status") }

// scale returns where the version has its scale fields; nil: there is no scale subresource.
func (c *custom) scale() *apiextensionsv1.CustomResourceSubresourceScale {
	if c.version.Subresources == nil {
		return nil
	}
	return c.version.Subresources.Scale
}

// hasSubresource reports whether a version has a subresource; every version has "", the object itself.
func hasSubresource(v *apiextensionsv1.CustomResourceDefinitionVersion, name string) bool {
	switch {
	case name == "":
		return true
	case v.Subresources == nil:
		return false
	case name == "status":
		return v.Subresources.Status != nil
	}
	return name == "scale" && v.Subresources.Scale != nil
}

// equivalents returns the other versions of the resource or of its subresource. As upstream, these are also
// versions that are not served.
func (c *custom) equivalents(subresource string) []schema.GroupVersion {
	var out []schema.GroupVersion
	for i := range c.outline.Spec.Versions {
		if v := &c.outline.Spec.Versions[i]; v.Name != c.version.Name && hasSubresource(v, subresource) {
			out = append(out, schema.GroupVersion{Group: c.outline.Spec.Group, Version: v.Name})
		}
	}
	return out
}

// schema returns the version's OpenAPI schema.
func (c *custom) schema(version string) (*spec.Schema, error) {
	s, err := c.kinds.schema(c.outline, version)
	if err != nil {
		return nil, err
	}
	out := s.structural.Unfold().ToKubeOpenAPI()
	if s.preserving {
		out.AddExtension("x-kubernetes-preserve-unknown-fields", true)
	}
	return out, nil
}

// schemaInputs identifies the schema: one generation of a definition has one specification.
func (c *custom) schemaInputs() string {
	return fmt.Sprintf("%s %d %s", c.outline.UID, c.outline.Generation, c.version.Name)
}

// types returns rest.Kind.Ownership or rest.Kind.Converted.
func (c *custom) types(of func(*built) typesFunc) typesFunc {
	return func() (managedfields.TypeConverter, error) {
		b, err := c.kinds.schemas(c.outline)
		if err != nil {
			return nil, err
		}
		return of(b)()
	}
}

// deprecation returns the warning for requests of a deprecated version: the definition's
// own, or one that names the best version to use instead; "": the version is not deprecated.
func (c *custom) deprecation() string {
	v := c.version
	switch {
	case !v.Deprecated:
		return ""
	case v.DeprecationWarning != nil:
		return *v.DeprecationWarning
	}
	spec := &c.outline.Spec
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
	return fmt.Sprintf("%s; use %s/%s %s", text, spec.Group, slices.MaxFunc(better, version.CompareKubeAwareVersionStrings), spec.Names.Kind)
}

// checkKind is the 422 for an object of another kind or version, which the body of a request
// or a mutating webhook may have set. A status update ignores both.
func (c *custom) checkKind(_ context.Context, _ string, obj, _ rest.Object) error {
	got, want := obj.GetObjectKind().GroupVersionKind(), c.kind.GVK(c.version.Name)
	var errs field.ErrorList
	if got.Kind != want.Kind {
		errs = append(errs, field.Invalid(field.NewPath("kind"), got.Kind, "must be "+want.Kind))
	}
	if got.GroupVersion() != want.GroupVersion() {
		errs = append(errs, field.Invalid(field.NewPath("apiVersion"), got.GroupVersion().String(), "must be "+want.GroupVersion().String()))
	}
	if len(errs) == 0 {
		return nil
	}
	return apierrors.NewInvalid(got.GroupKind(), obj.GetName(), errs)
}

// prepareCreate drops the status of a kind with the status subresource.
func (c *custom) prepareCreate(_ context.Context, obj rest.Object) {
	if c.hasStatus() {
		delete(content(obj), "status")
	}
}

// prepareUpdate keeps the status of a kind with the status subresource.
func (c *custom) prepareUpdate(_ context.Context, obj, old rest.Object) {
	if c.hasStatus() {
		copyField(content(obj), content(old), "status")
	}
}

// prepareStatus keeps everything but the status and managedFields.
func prepareStatus(_ context.Context, obj, old rest.Object) {
	u, was := obj.(*unstructured.Unstructured), old.(*unstructured.Unstructured)
	next := was.DeepCopy()
	copyField(next.Object, u.Object, "status")
	next.SetManagedFields(u.GetManagedFields())
	u.Object = next.Object
}

// copyField sets a field of to as it is in from, or removes it.
func copyField(to, from map[string]any, name string) {
	if value, ok := from[name]; ok {
		to[name] = value
	} else {
		delete(to, name)
	}
}

// changedOutsideMetadata reports whether an update makes a new generation.
func changedOutsideMetadata(obj, old rest.Object) bool {
	return !apiequality.Semantic.DeepEqual(withoutMetadata(content(obj)), withoutMetadata(content(old)))
}

func withoutMetadata(object map[string]any) map[string]any {
	out := maps.Clone(object)
	delete(out, "metadata")
	return out
}

// content returns an object's fields. Everything that this package decodes is
// unstructured.
func content(obj rest.Object) map[string]any { return obj.(*unstructured.Unstructured).Object }

// internalError is the validation error for a failure that the validation of definitions
// should have ruled out.
func internalError(err error) field.ErrorList {
	return field.ErrorList{field.InternalError(nil, err)}
}
