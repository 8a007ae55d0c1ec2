package handlers

import (
	"context"
	"net/http"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"portico/resource"
	"portico/resource/rest"
)

// subresource serves a request for a subresource, see rest.Subresource.
func (a *API) subresource(w http.ResponseWriter, r *http.Request, act *resource.Action, res *rest.Resource, sub *rest.Subresource) error {
	switch {
	case sub.Connect != nil:
		sub.Connect.ServeHTTP(w, r)
		return nil
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
	gvk := sub.GVK
	if gvk.Empty() {
		gvk = res.GVK(act.Version)
	}
	key := keyOf(act, res)
	return a.call(w, r, act, res, gvk, func(ctx context.Context, obj runtime.Object, opts writeOptions) (runtime.Object, error) {
		if meta, ok := obj.(metav1.Object); ok {
			if err := placeInNamespace(meta, key.Namespace); err != nil {
				return nil, err
			}
			if meta.GetName() == "" {
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

// review implements POST on a virtual resource: 201 with the result.
func (a *API) review(w http.ResponseWriter, r *http.Request, act *resource.Action, res *rest.Resource) error {
	return a.call(w, r, act, res, res.GVK(act.Version), func(ctx context.Context, obj runtime.Object, _ writeOptions) (runtime.Object, error) {
		return res.Review(ctx, obj)
	})
}

// call responds to a POST that stores nothing with what do returns for the decoded body: 201.
func (a *API) call(w http.ResponseWriter, r *http.Request, act *resource.Action, res *rest.Resource, gvk schema.GroupVersionKind,
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
	obj, err := a.decodeBody(ctx, res.Codec, gvk, body, opts.validation)
	if err != nil {
		return err
	}
	out, err := do(ctx, obj, opts)
	if err != nil {
		return explain(err)
	}
	return writeDecoded(w, r, res, http.StatusCreated, out, gvk)
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
