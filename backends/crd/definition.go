package crd

import (
	"context"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"sync"
	"time"

	"k8s.io/apiextensions-apiserver/pkg/apihelpers"
	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/validation"
	"k8s.io/apiextensions-apiserver/pkg/client/applyconfiguration"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/managedfields"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"portico/backends/crd/custom"
	"portico/resource"
	"portico/resource/rest"
)

// definitions is the behaviour of the kind CustomResourceDefinition.
type definitions struct {
	scheme *runtime.Scheme
	// peers returns the stored definitions of a group, read now.
	peers func(group string) []*apiextensionsv1.CustomResourceDefinition
	// totals returns the discovery of all definitions.
	totals func() *totals
	claims *claims
}

// DefinitionKind returns the row of CustomResourceDefinition for reading what is stored.
func DefinitionKind() *rest.Kind { return newDefinitionKind(nil, nil, nil) }

// newDefinitionKind returns the row of CustomResourceDefinition. Its schema is that of the
// Go type; validation is upstream's, on its internal type.
func newDefinitionKind(peers func(group string) []*apiextensionsv1.CustomResourceDefinition, totals func() *totals, claims *claims) *rest.Kind {
	d := &definitions{scheme: custom.DefinitionScheme(), peers: peers, totals: totals, claims: claims}
	return &rest.Kind{
		Info: resource.Info{
			Group: apiextensionsv1.GroupName, Versions: []string{"v1"}, Kind: "CustomResourceDefinition",
			Resource: "customresourcedefinitions", Singular: "customresourcedefinition",
			ShortNames: []string{"crd", "crds"}, Categories: []string{"api-extensions"},
			Path: apiextensionsv1.GroupName + "/customresourcedefinitions",
		},
		Codec:         custom.DefinitionCodec(),
		ReturnDeleted: true,
		Ownership: sync.OnceValues(func() (managedfields.TypeConverter, error) {
			return applyconfiguration.NewTypeConverter(d.scheme), nil
		}),
		Strategy: rest.Strategy{
			Default: func(obj rest.Object) { d.scheme.Default(obj) },
			// Validation compares the name with the names of the specification.
			ValidateName:    func(string, bool) []string { return nil },
			Check:           checkSchemaDepth,
			TrackGeneration: true,
			SpecChanged:     func(obj, old rest.Object) bool { return !unchangedSpec(asDefinition(obj), asDefinition(old)) },
			PrepareCreate:   prepareDefinition,
			PrepareUpdate:   prepareDefinitionUpdate,
			Allocate:        d.allocate,
			Validate:        d.validate,
			ValidateUpdate:  d.validateUpdate,
			Warnings:        definitionWarnings,
			LooseFinalizers: true,
			// The first DELETE only begins the deletion: the objects of the definition
			// have to be deleted first.
			Holds:       func(obj rest.Object) bool { return obj.GetDeletionTimestamp() == nil },
			BeginDelete: d.beginDelete,
			// The objects of a definition are always deleted with it.
			IgnorePropagation: true,
		},
		Subresources: []rest.Subresource{{Name: "status", Strategy: &rest.Strategy{
			PrepareUpdate: prepareDefinitionStatus, ValidateUpdate: validateDefinitionStatus, LooseFinalizers: true,
		}}},
		Columns: definitionColumns(),
		Cells:   definitionCells,
	}
}

func asDefinition(obj rest.Object) *apiextensionsv1.CustomResourceDefinition {
	return obj.(*apiextensionsv1.CustomResourceDefinition)
}

func prepareDefinition(_ context.Context, obj rest.Object) {
	crd := asDefinition(obj)
	crd.Status = apiextensionsv1.CustomResourceDefinitionStatus{}
	addStoredVersion(crd)
}

func prepareDefinitionUpdate(_ context.Context, obj, old rest.Object) {
	crd := asDefinition(obj)
	crd.Status = *asDefinition(old).Status.DeepCopy()
	addStoredVersion(crd)
}

// addStoredVersion adds the storage version to status.storedVersions.
func addStoredVersion(crd *apiextensionsv1.CustomResourceDefinition) {
	if v := custom.StorageVersion(crd); v != "" && !slices.Contains(crd.Status.StoredVersions, v) {
		crd.Status.StoredVersions = append(crd.Status.StoredVersions, v)
	}
}

// allocate claims the names and updates the status in the write itself, so that the answer
// says whether the definition is served.
func (d *definitions) allocate(_ context.Context, obj, _ rest.Object, dryRun bool) (release func(), err error) {
	crd := asDefinition(obj)
	setStructural(crd)
	if hasItsNames(crd) {
		updateStatus(crd, nil, nil)
		return nil, nil
	}
	peers := d.peers(crd.Spec.Group)
	return d.claims.updateStatus(crd, peers, nil, !dryRun), nil
}

func prepareDefinitionStatus(_ context.Context, obj, old rest.Object) {
	asDefinition(obj).Spec = asDefinition(old).Spec
}

// beginDelete adds the finalizer for the objects of a definition. Only the first DELETE
// finds no grace period.
func (d *definitions) beginDelete(obj rest.Object) {
	crd := asDefinition(obj)
	if crd.DeletionGracePeriodSeconds != nil {
		return
	}
	d.claims.drop(crd.UID)
	// rest counts the beginning of a deletion as a new generation. Upstream does not do
	// so for this kind, and with the old generation the definition stays served: watches
	// receive the deletions of its objects.
	if crd.Generation > 1 {
		crd.Generation--
	}
	if !slices.Contains(crd.Finalizers, apiextensionsv1.CustomResourceCleanupFinalizer) {
		crd.Finalizers = append(crd.Finalizers, apiextensionsv1.CustomResourceCleanupFinalizer)
	}
	apihelpers.SetCRDCondition(crd, apiextensionsv1.CustomResourceDefinitionCondition{
		Type: apiextensionsv1.Terminating, Status: apiextensionsv1.ConditionTrue, Reason: "InstanceDeletionPending",
		Message: "CustomResourceDefinition marked for deletion; CustomResource deletion will begin soon",
	})
}

// validate validates a new definition. The accepted names are left out, so that a bad name
// is reported once.
func (d *definitions) validate(ctx context.Context, obj rest.Object) field.ErrorList {
	if errs := d.bounded(asDefinition(obj), nil); len(errs) > 0 {
		return errs
	}
	in, errs := d.internal(obj)
	if errs != nil {
		return errs
	}
	in.Status.AcceptedNames = apiextensions.CustomResourceDefinitionNames{}
	if custom.StorageVersion(asDefinition(obj)) == "" {
		in.Status.StoredVersions = nil
	}
	apart := takeSelectableFields(in)
	errs = withoutMetaErrors(validation.ValidateCustomResourceDefinition(ctx, in))
	if apart {
		errs = append(errs, d.validateSelectableFields(ctx, asDefinition(obj), nil)...)
	}
	return errs
}

// validateUpdate validates a changed definition. The specification is only validated if it
// changed; most writes of definitions, which are large, leave it unchanged.
func (d *definitions) validateUpdate(ctx context.Context, obj, old rest.Object) field.ErrorList {
	const approval = apiextensionsv1.KubeAPIApprovedAnnotation
	if sameGeneration(obj, old) && obj.GetAnnotations()[approval] == old.GetAnnotations()[approval] {
		return validateStoredVersions(asDefinition(obj))
	}
	if errs := d.bounded(asDefinition(obj), asDefinition(old)); len(errs) > 0 {
		return errs
	}
	in, errs := d.internal(obj)
	if errs != nil {
		return errs
	}
	was, errs := d.internal(old)
	if errs != nil {
		return errs
	}
	in.Status.AcceptedNames = was.Status.AcceptedNames
	apart := takeSelectableFields(in)
	errs = withoutMetaErrors(validation.ValidateCustomResourceDefinitionUpdate(ctx, in, was))
	if apart {
		errs = append(errs, d.validateSelectableFields(ctx, asDefinition(obj), asDefinition(old))...)
	}
	return errs
}

// bounded checks the bounds of discovery (bounds.go) and of patterns.
func (d *definitions) bounded(crd, old *apiextensionsv1.CustomResourceDefinition) field.ErrorList {
	if errs := append(withinBounds(crd, old), withinPatterns(crd, old)...); len(errs) > 0 {
		return errs
	}
	return d.totals().withinTotal(crd, old)
}

// validateStoredVersions checks that the definition has every version that objects may be
// stored in.
func validateStoredVersions(crd *apiextensionsv1.CustomResourceDefinition) field.ErrorList {
	versions := make([]apiextensions.CustomResourceDefinitionVersion, len(crd.Spec.Versions))
	for i, v := range crd.Spec.Versions {
		versions[i].Name, versions[i].Storage = v.Name, v.Storage
	}
	return validation.ValidateCustomResourceDefinitionStoredVersions(crd.Status.StoredVersions, versions, field.NewPath("status", "storedVersions"))
}

func validateDefinitionStatus(_ context.Context, obj, _ rest.Object) field.ErrorList {
	in := &apiextensions.CustomResourceDefinitionStatus{}
	status := &asDefinition(obj).Status
	if err := apiextensionsv1.Convert_v1_CustomResourceDefinitionStatus_To_apiextensions_CustomResourceDefinitionStatus(status, in, nil); err != nil {
		return field.ErrorList{field.InternalError(nil, err)}
	}
	return validation.ValidateCustomResourceDefinitionStatus(in, field.NewPath("status"))
}

// internal converts a definition to the type that upstream's validation takes.
func (d *definitions) internal(obj rest.Object) (*apiextensions.CustomResourceDefinition, field.ErrorList) {
	in := &apiextensions.CustomResourceDefinition{}
	// The result shares memory with obj, which validation does not change.
	if err := d.scheme.Convert(asDefinition(obj), in, nil); err != nil {
		return nil, field.ErrorList{field.InternalError(nil, err)}
	}
	return in, nil
}

// withoutMetaErrors removes the errors of metadata that rest reports for every kind.
func withoutMetaErrors(errs field.ErrorList) field.ErrorList {
	return slices.DeleteFunc(errs, func(e *field.Error) bool {
		return strings.HasPrefix(e.Field, "metadata.") && e.Field != "metadata.name" &&
			!strings.HasPrefix(e.Field, "metadata.annotations["+apiextensionsv1.KubeAPIApprovedAnnotation)
	})
}

// unchangedSpec reports whether two definitions have the same specification. It takes tens
// of milliseconds for the largest; after rest has called it, use sameGeneration.
func unchangedSpec(a, b *apiextensionsv1.CustomResourceDefinition) bool {
	// The first takes half as long. The second also treats an empty list and none as
	// equal.
	return reflect.DeepEqual(&a.Spec, &b.Spec) || apiequality.Semantic.DeepEqual(&a.Spec, &b.Spec)
}

// sameGeneration reports whether a write leaves the specification unchanged. It is valid
// once rest has set the generation, so during validation.
func sameGeneration(obj, old rest.Object) bool { return obj.GetGeneration() == old.GetGeneration() }

// definitionColumns returns the columns of kubectl get crd.
func definitionColumns() []metav1.TableColumnDefinition {
	docs := metav1.ObjectMeta{}.SwaggerDoc()
	return []metav1.TableColumnDefinition{
		{Name: "Name", Type: "string", Format: "name", Description: docs["name"]},
		{Name: "Scope", Type: "string", Description: "Whether the objects are in namespaces"},
		{Name: "Versions", Type: "string", Description: "The served versions; the storage version is marked"},
		{Name: "Created At", Type: "date", Description: docs["creationTimestamp"]},
		{Name: "Group", Type: "string", Priority: 1, Description: "The API group of the objects"},
		{Name: "Kind", Type: "string", Priority: 1, Description: "The kind of the objects"},
		{Name: "ShortNames", Type: "string", Priority: 1, Description: "Short names of the resource"},
		{Name: "Established", Type: "boolean", Priority: 1, Description: "Whether the objects can be reached"},
	}
}

func definitionCells(obj runtime.Object) ([]any, error) {
	crd, ok := obj.(*apiextensionsv1.CustomResourceDefinition)
	if !ok {
		return nil, fmt.Errorf("make table row: it is a %T", obj)
	}
	var versions []string
	for _, v := range crd.Spec.Versions {
		switch {
		case v.Served && v.Storage:
			versions = append(versions, v.Name+"(storage)")
		case v.Served:
			versions = append(versions, v.Name)
		}
	}
	slices.Sort(versions) // as upstream, by name
	return []any{
		crd.Name, string(crd.Spec.Scope), strings.Join(versions, ","), crd.CreationTimestamp.UTC().Format(time.RFC3339),
		crd.Spec.Group, crd.Spec.Names.Kind, strings.Join(crd.Spec.Names.ShortNames, ","), isEstablished(crd),
	}, nil
}
