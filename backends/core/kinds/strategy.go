package kinds

import (
	"context"
	"fmt"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/operation"
	"k8s.io/apimachinery/pkg/api/validate/content"
	apivalidation "k8s.io/apimachinery/pkg/api/validation"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/go-logr/logr"
	"k8s.io/klog/v2"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/endpoints/request"
	registry "k8s.io/apiserver/pkg/registry/rest"
	"k8s.io/apiserver/pkg/warning"
	"sigs.k8s.io/structured-merge-diff/v6/fieldpath"

	"portico/resource"
	"portico/resource/rest"
)

// strategy calls a strategy of kube-apiserver, which takes objects of the internal version, with objects of the
// storage version.
type strategy struct {
	hub         schema.GroupVersionKind
	info        *resource.Info
	subresource string
	// create is nil for a subresource.
	create registry.RESTCreateStrategy
	update registry.RESTUpdateStrategy
	warn   rest.Warn
}

// rules returns the rest.Strategy that calls s.
func (s strategy) rules() rest.Strategy {
	out := rest.Strategy{
		Default:           s.setDefaults,
		Check:             s.check,
		ValidatesMetadata: true,
		PrepareUpdate:     s.prepareUpdate,
		ValidateUpdate:    s.validateUpdate,
		Warnings:          s.warnings,
		Resets:            s.resets(),
	}
	if s.create != nil {
		out.PrepareCreate, out.Validate = s.prepareCreate, s.validate
	}
	if g, ok := s.update.(registry.GarbageCollectionDeleteStrategy); ok {
		switch g.DefaultGarbageCollectionPolicy(s.requestContext(context.Background())) {
		case registry.OrphanDependents:
			out.DefaultPropagation = metav1.DeletePropagationOrphan
		case registry.Unsupported:
			out.IgnorePropagation = true
		}
	}
	if g, ok := s.update.(registry.RESTGracefulDeleteStrategy); ok {
		out.Grace = func(obj rest.Object, asked *int64) int64 {
			options := &metav1.DeleteOptions{GracePeriodSeconds: asked}
			if !g.CheckGracefulDelete(context.Background(), mustInternal(obj), options) || options.GracePeriodSeconds == nil {
				return 0
			}
			return *options.GracePeriodSeconds
		}
	}
	return out
}

// subresourceOf returns a subresource of the resource that updates the stored object.
func (s strategy) subresourceOf(name string, update registry.RESTUpdateStrategy) rest.Subresource {
	s.subresource, s.create, s.update = name, nil, update
	rules := s.rules()
	return rest.Subresource{Name: name, Strategy: &rules}
}

// resets returns the paths of the fields that the strategy resets in the storage version.
func (s strategy) resets() []string {
	paths := []string{}
	if r, ok := s.update.(registry.ResetFieldsStrategy); ok {
		if set := r.GetResetFields()[fieldpath.APIVersion(s.hub.GroupVersion().String())]; set != nil {
			set.Iterate(func(p fieldpath.Path) { paths = append(paths, p.String()[len("."):]) })
		}
	}
	return paths
}

// setDefaults sets the defaults of obj, and gives it the form of an object that was converted to the internal version and
// back, as each is in kube-apiserver (stringData of a Secret is in data). If obj cannot be converted, it stays as it is,
// and check refuses it.
func (s strategy) setDefaults(obj rest.Object) {
	scheme.Default(obj)
	if in, err := Internal(obj); err == nil {
		s.set(obj, in)
	}
}

func (s strategy) prepareCreate(ctx context.Context, obj rest.Object) {
	in := mustInternal(obj)
	s.create.PrepareForCreate(s.requestContext(ctx), in)
	s.set(obj, in)
}

func (s strategy) prepareUpdate(ctx context.Context, obj, old rest.Object) {
	in, was := mustInternal(obj), StoredInternal(old)
	s.update.PrepareForUpdate(s.requestContext(ctx), in, was)
	s.set(obj, in)
	s.set(old, was) // the strategy normalizes it
}

func (s strategy) validate(ctx context.Context, obj rest.Object) field.ErrorList {
	ctx, in := s.requestContext(ctx), mustInternal(obj)
	errs := s.create.Validate(ctx, in)
	if len(errs) == 0 { // the order of registry.ValidateCreate
		m, err := meta.Accessor(in)
		if err != nil {
			return field.ErrorList{field.InternalError(field.NewPath("metadata"), err)}
		}
		errs = apivalidation.ValidateObjectMetaAccessor(m, s.create.NamespaceScoped(), pathSegment, field.NewPath("metadata"))
	}
	if errs = s.validateDeclaratively(ctx, in, nil, errs, operation.Create); len(errs) == 0 {
		s.create.Canonicalize(in)
		s.set(obj, in)
	}
	return errs
}

func (s strategy) validateUpdate(ctx context.Context, obj, old rest.Object) field.ErrorList {
	ctx, in, was := s.requestContext(ctx), mustInternal(obj), StoredInternal(old)
	// The order of registry.ValidateUpdate.
	m, err := meta.Accessor(in)
	if err != nil {
		return field.ErrorList{field.InternalError(field.NewPath("metadata"), err)}
	}
	errs := apivalidation.ValidateObjectMetaAccessor(m, s.update.NamespaceScoped(), pathSegment, field.NewPath("metadata"))
	errs = append(errs, apivalidation.ValidateObjectMetaAccessorUpdate(m, old, field.NewPath("metadata"))...)
	errs = append(errs, s.update.ValidateUpdate(ctx, in, was)...)
	if errs = s.validateDeclaratively(ctx, in, was, errs, operation.Update); len(errs) == 0 {
		s.update.Canonicalize(in)
		s.set(obj, in)
	}
	return errs
}

// maxComparedErrors is the number of errors beyond which declarative validation does not add its own: it compares each
// error with each other one.
const maxComparedErrors = 100

// validateDeclaratively returns errs with those of declarative validation. old is nil on create.
func (s strategy) validateDeclaratively(ctx context.Context, obj, old runtime.Object, errs field.ErrorList, op operation.Type) field.ErrorList {
	var all any = s.update
	if s.create != nil {
		all = s.create
	}
	declarative, ok := all.(registry.DeclarativeValidationStrategy)
	if !ok || len(errs) > maxComparedErrors {
		return errs
	}
	return declarative.ValidateDeclaratively(ctx, obj, old, errs, op, declarative.DeclarativeValidationConfig(ctx, obj, old))
}

func pathSegment(name string, prefix bool) []string {
	if prefix {
		return content.IsPathSegmentPrefix(name)
	}
	return content.IsPathSegmentName(name)
}

func (s strategy) warnings(ctx context.Context, obj, old rest.Object) []string {
	in := mustInternal(obj)
	if comparesTooMuch(in) {
		return nil
	}
	if old == nil {
		return s.create.WarningsOnCreate(s.requestContext(ctx), in)
	}
	return s.update.WarningsOnUpdate(s.requestContext(ctx), in, StoredInternal(old))
}

// set replaces obj by in, converted to the storage version.
func (s strategy) set(obj rest.Object, in runtime.Object) {
	if err := SetFromInternal(obj, in); err != nil {
		panic(fmt.Sprintf("convert %T: %v", in, err))
	}
}

// check returns a BadRequest if obj cannot be converted, as kube-apiserver does when it decodes the body: an annotation that
// stands for a field of the internal version may be malformed.
func (s strategy) check(_ context.Context, _ string, obj, _ rest.Object) error {
	if _, err := Internal(obj); err != nil {
		return apierrors.NewBadRequest(fmt.Sprintf("%s in version %q cannot be handled as a %s: %v", s.info.Kind, s.hub.Version, s.info.Kind, err))
	}
	return nil
}

// mustInternal is Internal for an object that check has accepted. It panics if the object cannot be converted.
func mustInternal(obj runtime.Object) runtime.Object {
	in, err := Internal(obj)
	if err != nil {
		panic(fmt.Sprintf("convert %T: %v", obj, err))
	}
	return in
}

// requestContext returns ctx with the request info, user, namespace, warning recorder and logger that strategies read.
func (s strategy) requestContext(ctx context.Context) context.Context {
	info := &request.RequestInfo{
		IsResourceRequest: true, APIGroup: s.info.Group, APIVersion: s.info.Versions[0], Resource: s.info.Resource, Subresource: s.subresource,
	}
	if act := resource.ActionFrom(ctx); act != nil {
		info.Verb, info.Namespace, info.Name = act.Verb, act.Namespace, act.Name
		if act.Group == s.info.Group && act.Resource == s.info.Resource {
			info.APIVersion = act.Version
		}
	}
	u := requester(ctx)
	ctx = request.WithUser(ctx, &user.DefaultInfo{Name: u.Name, UID: u.UID, Groups: u.Groups, Extra: u.Extra})
	ctx = warning.WithWarningRecorder(ctx, recorder{ctx, s.warn})
	// Strategies log differences between declarative and handwritten validation, for the developers of Kubernetes.
	ctx = klog.NewContext(ctx, logr.Discard())
	return request.WithNamespace(request.WithRequestInfo(ctx, info), info.Namespace)
}

// recorder sends the warnings of strategies to the client.
type recorder struct {
	ctx  context.Context
	warn rest.Warn
}

// AddWarning implements warning.Recorder.
func (r recorder) AddWarning(_, text string) { r.warn(r.ctx, text) }
