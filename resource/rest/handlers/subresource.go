package handlers

import (
	"cmp"
	"context"
	"fmt"
	"net/http"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"portico/resource"
	"portico/resource/response"
	"portico/resource/rest"
)

// subresource serves a request for a subresource, see rest.Subresource.
func (a *API) subresource(w http.ResponseWriter, r *http.Request, act *resource.Action, res *rest.Resource, sub *rest.Subresource) error {
	switch {
	case sub.Create != nil && act.Verb == "create":
		return a.createSubresource(w, r, act, res, sub)
	case sub.Strategy == nil && sub.Projection == nil:
		return methodNotAllowed(act, res)
	}
	switch act.Verb {
	case "get":
		return a.get(w, r, act, res, sub)
	case "update":
		return a.update(w, r, act, res, sub)
	case "patch":
		return a.patch(w, r, act, res, sub)
	}
	return methodNotAllowed(act, res)
}

// createSubresource implements POST on a subresource such as token: 201 with the result. The
// body may have no name, but not another one than the URL (docs/wire.md 1.2).
func (a *API) createSubresource(w http.ResponseWriter, r *http.Request, act *resource.Action, res *rest.Resource, sub *rest.Subresource) error {
	gvks := []schema.GroupVersionKind{sub.GVK}
	switch {
	case sub.GVK.Empty():
		gvks[0] = res.GVK(act.Version)
	case !sub.OldGVK.Empty():
		gvks = append(gvks, sub.OldGVK)
	}
	key := keyOf(act, res)
	return a.call(w, r, act, res, gvks, func(ctx context.Context, obj runtime.Object, opts writeOptions) (runtime.Object, error) {
		if meta, ok := obj.(metav1.Object); ok {
			if err := placeInNamespace(meta, key.Namespace); err != nil {
				return nil, err
			}
			switch {
			case sub.Named && meta.GetName() != act.Name:
				return nil, apierrors.NewBadRequest(fmt.Sprintf("name in URL does not match name in %s object", gvks[0].Kind))
			case meta.GetName() == "":
				meta.SetName(act.Name)
			}
			if err := checkName(meta, act.Name); err != nil {
				return nil, err
			}
		}
		if err := newWrite(a, act, res, nil, opts).admitUnstored(ctx, obj, nil); err != nil {
			return nil, err
		}
		return sub.Create(ctx, key, obj, opts.dryRun)
	})
}

// callNamed implements POST on a virtual resource whose body names an object: 201 with the
// result.
func (a *API) callNamed(w http.ResponseWriter, r *http.Request, act *resource.Action, res *rest.Resource) error {
	gvk := res.GVK(act.Version)
	return a.call(w, r, act, res, []schema.GroupVersionKind{gvk}, func(ctx context.Context, obj runtime.Object, opts writeOptions) (runtime.Object, error) {
		meta, ok := obj.(metav1.Object)
		if !ok {
			return nil, apierrors.NewBadRequest(fmt.Sprintf("not a %s object: %T", gvk.Kind, obj))
		}
		key := keyOf(act, res)
		if err := placeInNamespace(meta, key.Namespace); err != nil {
			return nil, err
		}
		key.Name = meta.GetName()
		if err := checkKey(key); err != nil {
			return nil, err
		}
		wr := newWrite(a, act, res, nil, opts)
		wr.key = key
		if err := wr.admitUnstored(ctx, obj, nil); err != nil {
			return nil, err
		}
		return res.Call(ctx, key, obj, opts.dryRun)
	})
}

// review implements POST on a virtual resource: 201 with the result.
func (a *API) review(w http.ResponseWriter, r *http.Request, act *resource.Action, res *rest.Resource) error {
	return a.call(w, r, act, res, []schema.GroupVersionKind{res.GVK(act.Version)}, func(ctx context.Context, obj runtime.Object, _ writeOptions) (runtime.Object, error) {
		return res.Review(ctx, obj)
	})
}

// call responds to a POST that stores nothing with what do returns for the decoded body, one
// of gvks: 201.
func (a *API) call(w http.ResponseWriter, r *http.Request, act *resource.Action, res *rest.Resource, gvks []schema.GroupVersionKind,
	do func(ctx context.Context, obj runtime.Object, opts writeOptions) (runtime.Object, error)) error {
	ctx, cancel := context.WithTimeout(r.Context(), writeCap)
	defer cancel()
	opts, err := createOptions(r)
	if err != nil {
		return err
	}
	body, err := a.readBody(r, bodyTarget(res.Kind, act.Version))
	if err != nil {
		return err
	}
	defer body.close()
	obj, err := a.decodeBody(ctx, res.Codec, gvks[0], body, opts.validation)
	for _, gvk := range gvks[1:] {
		if err == nil {
			break
		}
		if old, oldErr := a.decodeBody(ctx, res.Codec, gvk, body, opts.validation); oldErr == nil {
			obj, err = old, nil
		}
	}
	if err != nil {
		return err
	}
	out, err := do(ctx, obj, opts)
	if err != nil {
		return explain(err)
	}
	if status, ok := out.(*metav1.Status); ok {
		status.Code = cmp.Or(status.Code, http.StatusCreated)
		response.WriteObject(w, r, int(status.Code), status, metav1.SchemeGroupVersion.WithKind("Status"))
		return nil
	}
	return writeDecoded(w, r, res, http.StatusCreated, out, gvks[0])
}

// admitUnstored runs both phases of admission for a call, with the body obj, or a deletion of old.
func (w *write) admitUnstored(ctx context.Context, obj, old runtime.Object) error {
	if w.api.cfg.Admission == nil {
		return nil
	}
	attrs := w.attributes(obj, old)
	if err := w.api.cfg.Admission.Mutate(ctx, attrs); err != nil {
		return err
	}
	return w.api.cfg.Admission.Validate(ctx, attrs)
}
