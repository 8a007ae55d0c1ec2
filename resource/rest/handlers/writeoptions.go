package handlers

import (
	"cmp"
	"fmt"
	"net/http"
	"net/url"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	metavalidation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/conversion"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"portico/resource"
	"portico/resource/bodylimit"
	"portico/resource/rest/managedfields"
)

// writeOptions are the validated query options of a create, update or patch.
type writeOptions struct {
	// object is CreateOptions, UpdateOptions, PatchOptions or DeleteOptions, with its kind.
	object  runtime.Object
	manager string
	// managerName is the field manager: the option, or a name made from the User-Agent.
	managerName string
	dryRun      bool
	validation  string
}

// asCreate returns the options as CreateOptions, for an update that creates.
func (o writeOptions) asCreate() runtime.Object {
	opts := &metav1.CreateOptions{FieldManager: o.manager, FieldValidation: o.validation, DryRun: o.dryRunOption()}
	opts.SetGroupVersionKind(optionsKind("CreateOptions"))
	return opts
}

// asUpdate returns the options as UpdateOptions, which admission sees also for a patch.
func (o writeOptions) asUpdate() runtime.Object {
	if opts, ok := o.object.(*metav1.UpdateOptions); ok {
		return opts
	}
	opts := &metav1.UpdateOptions{FieldManager: o.manager, FieldValidation: o.validation, DryRun: o.dryRunOption()}
	opts.SetGroupVersionKind(optionsKind("UpdateOptions"))
	return opts
}

func (o writeOptions) dryRunOption() []string {
	if o.dryRun {
		return []string{metav1.DryRunAll}
	}
	return nil
}

func createOptions(r *http.Request) (writeOptions, error) {
	opts := &metav1.CreateOptions{}
	err := readOptions(r, opts, "CreateOptions", metav1.Convert_url_Values_To_v1_CreateOptions, metavalidation.ValidateCreateOptions)
	return newWriteOptions(r, opts, opts.FieldManager, opts.FieldValidation, opts.DryRun), err
}

func updateOptions(r *http.Request) (writeOptions, error) {
	opts := &metav1.UpdateOptions{}
	err := readOptions(r, opts, "UpdateOptions", metav1.Convert_url_Values_To_v1_UpdateOptions, metavalidation.ValidateUpdateOptions)
	return newWriteOptions(r, opts, opts.FieldManager, opts.FieldValidation, opts.DryRun), err
}

func patchOptions(r *http.Request, patchType types.PatchType) (writeOptions, error) {
	opts := &metav1.PatchOptions{}
	err := readOptions(r, opts, "PatchOptions", metav1.Convert_url_Values_To_v1_PatchOptions,
		func(opts *metav1.PatchOptions) field.ErrorList {
			return metavalidation.ValidatePatchOptions(opts, patchType)
		})
	return newWriteOptions(r, opts, opts.FieldManager, opts.FieldValidation, opts.DryRun), err
}

// readOptions parses and validates the query of r as opts of a kind.
func readOptions[T runtime.Object](r *http.Request, opts T, kind string, convert func(*url.Values, T, conversion.Scope) error, validate func(T) field.ErrorList) error {
	query := r.URL.Query()
	if err := convert(&query, opts, nil); err != nil {
		return apierrors.NewBadRequest(err.Error())
	}
	opts.GetObjectKind().SetGroupVersionKind(optionsKind(kind))
	return badOptions(kind, validate(opts))
}

func newWriteOptions(r *http.Request, object runtime.Object, manager, validation string, dryRun []string) writeOptions {
	if validation == "" {
		validation = metav1.FieldValidationWarn
	}
	return writeOptions{
		object: object, manager: manager, managerName: managedfields.ManagerName(manager, r.UserAgent()),
		dryRun: len(dryRun) > 0, validation: validation,
	}
}

// optionsKind returns the kind of options for admission.
func optionsKind(kind string) schema.GroupVersionKind {
	return metav1.SchemeGroupVersion.WithKind(kind)
}

func badOptions(kind string, errs field.ErrorList) error {
	if len(errs) == 0 {
		return nil
	}
	return apierrors.NewInvalid(schema.GroupKind{Group: metav1.GroupName, Kind: kind}, "", errs)
}

// deleteOptions reads DeleteOptions from the body, or from the query if the body is empty.
// The apiVersion of the body is any one: clients send the apiVersion of the resource, or another one.
func (a *API) deleteOptions(r *http.Request) (*metav1.DeleteOptions, error) {
	opts := &metav1.DeleteOptions{}
	mediaType := bareMediaType(r.Header.Get("Content-Type"))
	body, err := a.readBodyAs(r, mediaType, bodylimit.Structs)
	if err != nil {
		return nil, err
	}
	defer body.close()
	if len(body.data) > 0 {
		if err := a.decodeDeleteOptions(body.data, cmp.Or(body.mediaType, runtime.ContentTypeJSON), opts); err != nil {
			return nil, err
		}
	} else {
		query := r.URL.Query()
		if err := metav1.Convert_url_Values_To_v1_DeleteOptions(&query, opts, nil); err != nil {
			return nil, apierrors.NewBadRequest(err.Error())
		}
	}
	if err := badOptions("DeleteOptions", metavalidation.ValidateDeleteOptions(opts)); err != nil {
		return nil, err
	}
	if n := opts.GracePeriodSeconds; n != nil && *n < 0 {
		// As upstream, a negative period is one second.
		opts.GracePeriodSeconds = new(int64(1))
	}
	opts.SetGroupVersionKind(optionsKind("DeleteOptions"))
	return opts, nil
}

// optionsCodecs decode options in every media type. The scheme is empty: any version will do.
var optionsCodecs = serializer.NewCodecFactory(runtime.NewScheme()).SupportedMediaTypes()

// decodeDeleteOptions decodes a body into opts. Errors are 400s.
func (a *API) decodeDeleteOptions(data []byte, mediaType string, opts *metav1.DeleteOptions) error {
	info, ok := runtime.SerializerInfoForMediaType(optionsCodecs, mediaType)
	if !ok {
		return resource.UnsupportedMediaType(a.bodyMediaTypes())
	}
	_, gvk, err := info.Serializer.Decode(data, nil, opts)
	switch {
	case err != nil:
		return apierrors.NewBadRequest(fmt.Sprintf("decode DeleteOptions: %v", err))
	case gvk.Kind != "" && gvk.Kind != "DeleteOptions":
		return apierrors.NewBadRequest(fmt.Sprintf("decoded object cannot be converted to DeleteOptions: kind is %q", gvk.Kind))
	}
	return nil
}
