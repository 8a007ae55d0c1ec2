package handlers

import (
	"fmt"
	"net/http"
	"slices"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	metavalidation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"portico/resource"
	"portico/resource/bodylimit"
	"portico/resource/rest"
	"portico/resource/rest/managedfields"
)

// writeOptions are the query options of a create, update or patch, validated.
type writeOptions struct {
	// object is CreateOptions, UpdateOptions, PatchOptions or DeleteOptions,
	// with its kind set.
	object  runtime.Object
	manager string
	// managerName is the manager that the write is recorded for: fieldManager, or a
	// name made from the user agent.
	managerName string
	dryRun      bool
	validation  string
}

// asCreate returns the options as CreateOptions, for an update that creates.
func (o writeOptions) asCreate() runtime.Object {
	opts := &metav1.CreateOptions{FieldManager: o.manager, FieldValidation: o.validation}
	if o.dryRun {
		opts.DryRun = []string{metav1.DryRunAll}
	}
	opts.SetGroupVersionKind(optionsKind("CreateOptions"))
	return opts
}

// asUpdate returns the options as UpdateOptions, which is what admission sees of
// a patch.
func (o writeOptions) asUpdate() runtime.Object {
	if opts, ok := o.object.(*metav1.UpdateOptions); ok {
		return opts
	}
	opts := &metav1.UpdateOptions{FieldManager: o.manager, FieldValidation: o.validation}
	if o.dryRun {
		opts.DryRun = []string{metav1.DryRunAll}
	}
	opts.SetGroupVersionKind(optionsKind("UpdateOptions"))
	return opts
}

func createOptions(r *http.Request) (writeOptions, error) {
	opts := &metav1.CreateOptions{}
	query := r.URL.Query()
	if err := metav1.Convert_url_Values_To_v1_CreateOptions(&query, opts, nil); err != nil {
		return writeOptions{}, apierrors.NewBadRequest(err.Error())
	}
	if err := badOptions("CreateOptions", metavalidation.ValidateCreateOptions(opts)); err != nil {
		return writeOptions{}, err
	}
	opts.SetGroupVersionKind(optionsKind("CreateOptions"))
	return newWriteOptions(r, opts, opts.FieldManager, opts.FieldValidation, opts.DryRun), nil
}

func updateOptions(r *http.Request) (writeOptions, error) {
	opts := &metav1.UpdateOptions{}
	query := r.URL.Query()
	if err := metav1.Convert_url_Values_To_v1_UpdateOptions(&query, opts, nil); err != nil {
		return writeOptions{}, apierrors.NewBadRequest(err.Error())
	}
	if err := badOptions("UpdateOptions", metavalidation.ValidateUpdateOptions(opts)); err != nil {
		return writeOptions{}, err
	}
	opts.SetGroupVersionKind(optionsKind("UpdateOptions"))
	return newWriteOptions(r, opts, opts.FieldManager, opts.FieldValidation, opts.DryRun), nil
}

func patchOptions(r *http.Request, patchType types.PatchType) (writeOptions, error) {
	opts := &metav1.PatchOptions{}
	query := r.URL.Query()
	if err := metav1.Convert_url_Values_To_v1_PatchOptions(&query, opts, nil); err != nil {
		return writeOptions{}, apierrors.NewBadRequest(err.Error())
	}
	if err := badOptions("PatchOptions", metavalidation.ValidatePatchOptions(opts, patchType)); err != nil {
		return writeOptions{}, err
	}
	opts.SetGroupVersionKind(optionsKind("PatchOptions"))
	return newWriteOptions(r, opts, opts.FieldManager, opts.FieldValidation, opts.DryRun), nil
}

func newWriteOptions(r *http.Request, object runtime.Object, manager, validation string, dryRun []string) writeOptions {
	if validation == "" {
		validation = metav1.FieldValidationWarn
	}
	return writeOptions{
		object: object, manager: manager, managerName: managedfields.ManagerName(manager, r.UserAgent()), dryRun: len(dryRun) > 0, validation: validation,
	}
}

// optionsKind is the kind that options show to admission.
func optionsKind(kind string) schema.GroupVersionKind {
	return metav1.SchemeGroupVersion.WithKind(kind)
}

func badOptions(kind string, errs field.ErrorList) error {
	if len(errs) == 0 {
		return nil
	}
	return apierrors.NewInvalid(schema.GroupKind{Group: metav1.GroupName, Kind: kind}, "", errs)
}

// deleteOptions reads DeleteOptions from the body; an empty body leaves them to
// the query. The body may name v1, meta.k8s.io/v1 or a version of the
// resource's own group (typed clients do).
func (a *API) deleteOptions(r *http.Request, res *rest.Resource) (*metav1.DeleteOptions, error) {
	opts := &metav1.DeleteOptions{}
	mediaType := bareMediaType(r.Header.Get("Content-Type"))
	body, err := a.readBodyAs(r, mediaType, bodylimit.Structs)
	if err != nil {
		return nil, err
	}
	defer body.close()
	if len(body.data) > 0 {
		if mediaType != "" && !slices.Contains(bodyMediaTypes(), mediaType) {
			return nil, resource.UnsupportedMediaType(bodyMediaTypes())
		}
		if err := decodeDeleteOptions(body.data, mediaType, res, opts); err != nil {
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
		// A negative period is one second, as for every kind upstream.
		opts.GracePeriodSeconds = new(int64(1))
	}
	opts.SetGroupVersionKind(optionsKind("DeleteOptions"))
	return opts, nil
}

// checkDeleteOptionsKind refuses a body that says it is something else.
func checkDeleteOptionsKind(apiVersion, kind string, res *rest.Resource) error {
	if kind != "" && kind != "DeleteOptions" {
		return apierrors.NewBadRequest(fmt.Sprintf("decoded object cannot be converted to DeleteOptions: kind is %q", kind))
	}
	switch apiVersion {
	case "", "v1", metav1.SchemeGroupVersion.String():
		return nil
	}
	gv, err := schema.ParseGroupVersion(apiVersion)
	if err != nil || gv.Group != res.Group || !res.Serves(gv.Version) {
		return apierrors.NewBadRequest(fmt.Sprintf("no kind \"DeleteOptions\" is registered for version %q", apiVersion))
	}
	return nil
}
