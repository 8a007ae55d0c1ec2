package rest

import (
	"context"
	"fmt"
	"net/http"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"portico/resource"
)

// patch answers PATCH on an object: 200.
func (a *API) patch(w http.ResponseWriter, r *http.Request, act *resource.Action, res *Resource) error {
	return a.patchView(w, r, act, res, nil)
}

// patchView is PATCH on an object or, with sub, on a view of it. The patch is
// parsed once and applied to whatever the stored object is by the time it is
// written; nothing but the time bounds how often that is tried.
func (a *API) patchView(w http.ResponseWriter, r *http.Request, act *resource.Action, res *Resource, sub *Subresource) error {
	ctx, cancel := context.WithTimeout(r.Context(), writeCap)
	defer cancel()
	patchType := types.PatchType(bareMediaType(r.Header.Get("Content-Type")))
	gvk := res.GVK(act.Version)
	structure := res.Codec.StrategicMerge(gvk)
	if err := checkPatchType(patchType, structure != nil); err != nil {
		return err
	}
	opts, err := patchOptions(r, patchType)
	if err != nil {
		return err
	}
	data, err := a.readLimited(r)
	if err != nil {
		return err
	}
	document, err := parsePatch(patchType, data, structure, opts.validation != metav1.FieldValidationIgnore)
	if err != nil {
		return err
	}
	p := &patching{write: newWrite(a, act, res, sub, opts), patchDocument: document, gvk: gvk}
	if err := checkKey(p.key); err != nil {
		return err
	}
	o, _, err := p.replace(ctx, p.next, false)
	if err != nil {
		return err
	}
	return a.writeObject(w, r, act, res, http.StatusOK, o)
}

// checkPatchType is the 415 for a patch type that the kind has not. Strategic
// merge needs Go types, whose tags name the merge keys.
func checkPatchType(t types.PatchType, structured bool) error {
	accepted := []string{string(types.JSONPatchType), string(types.MergePatchType)}
	if structured {
		accepted = append(accepted, string(types.StrategicMergePatchType))
	}
	for _, name := range accepted {
		if name == string(t) {
			return nil
		}
	}
	return unsupportedMediaType(accepted)
}

// patching is a write whose next state is the current one, patched.
type patching struct {
	*write
	patchDocument
	gvk schema.GroupVersionKind
}

// next is a nextState. The patch is applied to the JSON form in the version of
// the request.
func (p *patching) next(ctx context.Context, _ *resource.Object, old Object) (Object, error) {
	current, err := p.res.Codec.Encode(old, p.gvk, contentJSON)
	if err != nil {
		return nil, apierrors.NewInternalError(fmt.Errorf("encode %s %s: %w", p.res.GroupResource(), p.key, err))
	}
	patched, err := p.apply(current)
	if err != nil {
		return nil, err
	}
	decoded, strictErrs, err := p.res.Codec.Decode(patched, contentJSON, p.gvk, p.validation != metav1.FieldValidationIgnore)
	if err != nil {
		return nil, badResult(patched, err)
	}
	complaints := append(append([]error(nil), p.complaints...), strictErrs...)
	switch {
	case len(complaints) == 0:
	case p.validation == metav1.FieldValidationStrict:
		return nil, badResult(patched, runtime.NewStrictDecodingError(complaints))
	case p.validation == metav1.FieldValidationWarn:
		p.api.warnStrict(ctx, complaints)
	}
	obj, err := p.withDefaults(decoded)
	if err != nil {
		return nil, err
	}
	if obj.GetNamespace() == "" {
		obj.SetNamespace(p.key.Namespace)
	}
	return obj, nil
}

// badResult is the 422 for a patch whose result is no object of the kind.
func badResult(patched []byte, err error) error {
	return apierrors.NewInvalid(schema.GroupKind{}, "", field.ErrorList{
		field.Invalid(field.NewPath("patch"), string(patched), err.Error()),
	})
}
