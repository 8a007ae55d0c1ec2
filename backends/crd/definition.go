package crd

import (
	"context"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"sync"
	"time"

	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/validation"
	"k8s.io/apiextensions-apiserver/pkg/client/applyconfiguration"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/managedfields"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"portico/resource"
	"portico/resource/rest"
)

// definitions is the behaviour of CustomResourceDefinitions.
type definitions struct {
	scheme *runtime.Scheme
	// peers returns the stored definitions of a group as of now.
	peers func(group string) []*apiextensionsv1.CustomResourceDefinition
	// totals returns what discovery has of all definitions.
	totals func() *totals
	claims *claims
}

// newDefinitionKind returns the row of CustomResourceDefinitions. Its schema is
// that of the Go type; validation is upstream's, on its internal type.
func newDefinitionKind(peers func(group string) []*apiextensionsv1.CustomResourceDefinition, totals func() *totals) *rest.Kind {
	d := &definitions{scheme: definitionScheme(), peers: peers, totals: totals, claims: newClaims()}
	return &rest.Kind{
		Info: resource.Info{
			Group: apiextensionsv1.GroupName, Versions: []string{"v1"}, Kind: "CustomResourceDefinition",
			Resource: "customresourcedefinitions", Singular: "customresourcedefinition",
			ShortNames: []string{"crd", "crds"}, Categories: []string{"api-extensions"},
			Path: apiextensionsv1.GroupName + "/customresourcedefinitions",
		},
		Codec:         rest.TypedJSON(d.scheme, apiextensionsv1.SchemeGroupVersion.WithKind("CustomResourceDefinition")),
		ReturnDeleted: true,
		Ownership: sync.OnceValues(func() (managedfields.TypeConverter, error) {
			return applyconfiguration.NewTypeConverter(d.scheme), nil
		}),
		Strategy: rest.Strategy{
			Default: func(obj rest.Object) { d.scheme.Default(obj) },
			// Validation checks the name against the names within.
			ValidateName:    func(string, bool) []string { return nil },
			Check:           checkSchemaDepth,
			TrackGeneration: true,
			SpecChanged:     func(obj, old rest.Object) bool { return !unchangedSpec(asDefinition(obj), asDefinition(old)) },
			PrepareCreate:   prepareDefinition,
			PrepareUpdate:   prepareDefinitionUpdate,
			Allocate:        d.allocate,
			Validate:        d.validate,
			ValidateUpdate:  d.validateUpdate,
			Warnings:        d.warnings,
			LooseFinalizers: true,
			// The first DELETE begins the deletion even where nothing else holds
			// the object: what it defines has to be deleted first.
			Holds:       func(obj rest.Object) bool { return obj.GetDeletionTimestamp() == nil },
			BeginDelete: d.beginDelete,
			// Its objects always go with it, and with them what they own.
			IgnorePropagation: true,
		},
		Subresources: []rest.Subresource{{Name: "status", Strategy: &rest.Strategy{
			PrepareUpdate: prepareDefinitionStatus, ValidateUpdate: validateDefinitionStatus, LooseFinalizers: true,
		}}},
		Columns: definitionColumns(),
		Cells:   definitionCells,
	}
}

// definitionScheme knows the version served and the internal one.
func definitionScheme() *runtime.Scheme {
	s := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{apiextensionsv1.AddToScheme, apiextensions.AddToScheme} {
		if err := add(s); err != nil {
			panic(fmt.Sprintf("crd: build scheme: %v", err)) // a mistake in this program
		}
	}
	return s
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
	crd, was := asDefinition(obj), asDefinition(old)
	crd.Status = *was.Status.DeepCopy()
	addStoredVersion(crd)
	// Only what was so before may be not structural.
	if findCondition(crd, apiextensionsv1.NonStructuralSchema) == nil || unchangedSpec(crd, was) {
		return
	}
	if c := structuralCondition(crd); c != nil {
		setCondition(crd, *c, time.Now())
		return
	}
	removeCondition(crd, apiextensionsv1.NonStructuralSchema)
}

// addStoredVersion notes that objects are stored in the storage version from
// now on.
func addStoredVersion(crd *apiextensionsv1.CustomResourceDefinition) {
	if v := storageVersion(crd); v != "" && !slices.Contains(crd.Status.StoredVersions, v) {
		crd.Status.StoredVersions = append(crd.Status.StoredVersions, v)
	}
}

// allocate claims the names and computes the status with the write itself, so
// that who wrote reads in the answer whether the definition is served. It is
// for those, too, who bring the status of a stored definition in line later.
func (d *definitions) allocate(_ context.Context, obj, _ rest.Object, dryRun bool) (release func(), err error) {
	crd := asDefinition(obj)
	if hasItsNames(crd) {
		updateStatus(crd, nil, time.Now())
		return nil, nil
	}
	peers := d.peers(crd.Spec.Group)
	return d.claims.updateStatus(crd, peers, time.Now(), !dryRun), nil
}

func prepareDefinitionStatus(_ context.Context, obj, old rest.Object) {
	asDefinition(obj).Spec = asDefinition(old).Spec
}

// beginDelete has the objects of a definition deleted before it goes. A
// deletion that is held, which only the first is, has no grace period.
func (d *definitions) beginDelete(obj rest.Object) {
	crd := asDefinition(obj)
	if crd.DeletionGracePeriodSeconds != nil {
		return
	}
	d.claims.drop(crd.UID)
	// rest counts the beginning of a deletion as a generation. Upstream does not
	// for this kind, and what is served, which is of a generation, goes on
	// unchanged: watches see the objects go.
	if crd.Generation > 1 {
		crd.Generation--
	}
	if !slices.Contains(crd.Finalizers, apiextensionsv1.CustomResourceCleanupFinalizer) {
		crd.Finalizers = append(crd.Finalizers, apiextensionsv1.CustomResourceCleanupFinalizer)
	}
	setCondition(crd, apiextensionsv1.CustomResourceDefinitionCondition{
		Type: apiextensionsv1.Terminating, Status: apiextensionsv1.ConditionTrue, Reason: "InstanceDeletionPending",
		Message: "CustomResourceDefinition marked for deletion; CustomResource deletion will begin soon",
	}, time.Now())
}

// validate checks a new definition. The names accepted are no names of the
// user's, who is told once of a bad one.
func (d *definitions) validate(ctx context.Context, obj rest.Object) field.ErrorList {
	if errs := d.bounded(asDefinition(obj), nil); len(errs) > 0 {
		return errs
	}
	in, errs := d.internal(obj)
	if errs != nil {
		return errs
	}
	in.Status.AcceptedNames = apiextensions.CustomResourceDefinitionNames{}
	if storageVersion(asDefinition(obj)) == "" {
		in.Status.StoredVersions = nil
	}
	return withoutMetaErrors(validation.ValidateCustomResourceDefinition(ctx, in))
}

// validateUpdate checks a changed definition. One that specifies what it did
// before was checked then; that is most writes of the largest objects there are.
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
	return withoutMetaErrors(validation.ValidateCustomResourceDefinitionUpdate(ctx, in, was))
}

// bounded checks what a definition adds to discovery (bounds.go).
func (d *definitions) bounded(crd, old *apiextensionsv1.CustomResourceDefinition) field.ErrorList {
	if errs := withinBounds(crd, old); len(errs) > 0 {
		return errs
	}
	return d.totals().withinTotal(crd, old)
}

// validateStoredVersions checks that every version that objects may be stored in
// is there to read them.
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
		return internalError(err)
	}
	return validation.ValidateCustomResourceDefinitionStatus(in, field.NewPath("status"))
}

// internal converts to the type that validation knows.
func (d *definitions) internal(obj rest.Object) (*apiextensions.CustomResourceDefinition, field.ErrorList) {
	in := &apiextensions.CustomResourceDefinition{}
	// Conversion shares memory with its input, and validation changes nothing.
	if err := d.scheme.Convert(asDefinition(obj), in, nil); err != nil {
		return nil, internalError(err)
	}
	return in, nil
}

// withoutMetaErrors drops what rest finds, too: the rules of metadata that hold
// for every kind.
func withoutMetaErrors(errs field.ErrorList) field.ErrorList {
	return slices.DeleteFunc(errs, func(e *field.Error) bool {
		return strings.HasPrefix(e.Field, "metadata.") && e.Field != "metadata.name" &&
			!strings.HasPrefix(e.Field, "metadata.annotations["+apiextensionsv1.KubeAPIApprovedAnnotation)
	})
}

// unchangedSpec reports whether two definitions specify the same. It takes tens
// of milliseconds for the largest ones; where rest has asked already, see
// sameGeneration.
func unchangedSpec(a, b *apiextensionsv1.CustomResourceDefinition) bool {
	// The first takes half as long as the second, which finds an empty list
	// equal to none.
	return reflect.DeepEqual(&a.Spec, &b.Spec) || apiequality.Semantic.DeepEqual(&a.Spec, &b.Spec)
}

// sameGeneration reports whether a write leaves the specification as it is. It
// holds from when rest has counted generations on, so while validating.
func sameGeneration(obj, old rest.Object) bool { return obj.GetGeneration() == old.GetGeneration() }
