package crd

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/validation"
	"k8s.io/apiextensions-apiserver/pkg/client/applyconfiguration"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/managedfields"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/client-go/util/cert"

	"portico/resource"
	"portico/resource/rest"
)

// definitions is the behaviour of CustomResourceDefinitions.
type definitions struct {
	scheme *runtime.Scheme
	// peers returns the stored definitions of a group.
	peers func(group string) []*apiextensionsv1.CustomResourceDefinition
}

// newDefinitionKind returns the row of CustomResourceDefinitions. Its schema is
// that of the Go type; validation is upstream's, on its internal type.
func newDefinitionKind(peers func(group string) []*apiextensionsv1.CustomResourceDefinition) *rest.Kind {
	d := &definitions{scheme: definitionScheme(), peers: peers}
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
			TrackGeneration: true,
			PrepareCreate:   d.prepareCreate,
			PrepareUpdate:   d.prepareUpdate,
			Validate:        d.validate,
			ValidateUpdate:  d.validateUpdate,
			Warnings:        d.warnings,
			LooseFinalizers: true,
			// The first DELETE begins the deletion even where nothing else holds
			// the object: what it defines has to be deleted first.
			Holds:       func(obj rest.Object) bool { return obj.GetDeletionTimestamp() == nil },
			BeginDelete: beginDelete,
		},
		Subresources: []rest.Subresource{{Name: "status", Strategy: &rest.Strategy{
			PrepareUpdate: prepareDefinitionStatus, ValidateUpdate: d.validateStatus, LooseFinalizers: true,
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

func (d *definitions) prepareCreate(_ context.Context, obj rest.Object) {
	crd := asDefinition(obj)
	crd.Status = apiextensionsv1.CustomResourceDefinitionStatus{}
	d.settle(crd)
}

func (d *definitions) prepareUpdate(_ context.Context, obj, old rest.Object) {
	crd := asDefinition(obj)
	crd.Status = *asDefinition(old).Status.DeepCopy()
	d.settle(crd)
}

// settle computes the status with the write itself, so that who wrote reads in
// the answer whether the definition is served.
func (d *definitions) settle(crd *apiextensionsv1.CustomResourceDefinition) {
	if v := storageVersion(crd); v != "" && !slices.Contains(crd.Status.StoredVersions, v) {
		crd.Status.StoredVersions = append(crd.Status.StoredVersions, v)
	}
	settle(crd, d.peers(crd.Spec.Group), time.Now())
}

func prepareDefinitionStatus(_ context.Context, obj, old rest.Object) {
	asDefinition(obj).Spec = asDefinition(old).Spec
}

// beginDelete has the objects of a definition deleted before it goes.
func beginDelete(obj rest.Object) {
	crd := asDefinition(obj)
	if !slices.Contains(crd.Finalizers, apiextensionsv1.CustomResourceCleanupFinalizer) {
		crd.Finalizers = append(crd.Finalizers, apiextensionsv1.CustomResourceCleanupFinalizer)
	}
	if c := findCondition(crd, apiextensionsv1.Terminating); c != nil {
		return // it has begun already
	}
	setCondition(crd, apiextensionsv1.CustomResourceDefinitionCondition{
		Type: apiextensionsv1.Terminating, Status: apiextensionsv1.ConditionTrue, Reason: "InstanceDeletionPending",
		Message: "CustomResourceDefinition marked for deletion; CustomResource deletion will begin soon",
	}, time.Now())
}

// validate checks a new definition. The names accepted are no names of the
// user's, who is told once of a bad one.
func (d *definitions) validate(ctx context.Context, obj rest.Object) field.ErrorList {
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

func (d *definitions) validateUpdate(ctx context.Context, obj, old rest.Object) field.ErrorList {
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

func (d *definitions) validateStatus(ctx context.Context, obj, old rest.Object) field.ErrorList {
	in, errs := d.internal(obj)
	if errs != nil {
		return errs
	}
	was, errs := d.internal(old)
	if errs != nil {
		return errs
	}
	return withoutMetaErrors(validation.ValidateUpdateCustomResourceDefinitionStatus(ctx, in, was))
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

// definitionColumns are the columns of kubectl get crd.
func definitionColumns() []metav1.TableColumnDefinition {
	docs := metav1.ObjectMeta{}.SwaggerDoc()
	return []metav1.TableColumnDefinition{
		{Name: "Name", Type: "string", Format: "name", Description: docs["name"]},
		{Name: "Scope", Type: "string", Description: "Whether the objects are in namespaces"},
		{Name: "Versions", Type: "string", Description: "The served versions, preferred first; the stored one has a star"},
		{Name: "Created At", Type: "date", Description: docs["creationTimestamp"]},
		{Name: "Group", Type: "string", Priority: 1, Description: "The API group of the objects"},
		{Name: "Kind", Type: "string", Priority: 1, Description: "The kind of the objects"},
		{Name: "ShortNames", Type: "string", Priority: 1, Description: "Short names of the resource"},
		{Name: "Established", Type: "string", Priority: 1, Description: "Whether the objects can be reached"},
	}
}

func definitionCells(obj runtime.Object) ([]any, error) {
	crd, ok := obj.(*apiextensionsv1.CustomResourceDefinition)
	if !ok {
		return nil, fmt.Errorf("make table row: it is a %T", obj)
	}
	versions := servedVersions(crd)
	for i, v := range versions {
		if v == storageVersion(crd) {
			versions[i] = v + "*"
		}
	}
	established := string(apiextensionsv1.ConditionFalse)
	if isEstablished(crd) {
		established = string(apiextensionsv1.ConditionTrue)
	}
	return []any{
		crd.Name, string(crd.Spec.Scope), strings.Join(versions, ","), crd.CreationTimestamp.UTC().Format(time.RFC3339),
		crd.Spec.Group, crd.Spec.Names.Kind, strings.Join(crd.Spec.Names.ShortNames, ","), established,
	}, nil
}

// validBundle reports whether a CA bundle can be used; none at all leaves it to
// the system's authorities.
func validBundle(pem []byte) bool {
	if len(pem) == 0 {
		return true
	}
	_, err := cert.ParseCertsPEM(pem)
	return err == nil
}

// unchangedSpec reports whether two definitions specify the same.
func unchangedSpec(a, b *apiextensionsv1.CustomResourceDefinition) bool {
	return apiequality.Semantic.DeepEqual(a.Spec, b.Spec)
}
