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
	"k8s.io/apimachinery/pkg/util/managedfields"

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
			case sub.OtherName != nil && meta.GetName() != act.Name:
				return nil, sub.OtherName(meta.GetName(), act.Name)
			}
			if err := checkName(meta, act.Name); err != nil {
				return nil, err
			}
		}
		if body, ok := obj.(rest.Object); ok && sub.Strategy != nil && sub.Strategy.Default != nil {
			sub.Strategy.Default(body)
		}
		if err := newWrite(a, act, res, nil, opts).admitUnstored(ctx, obj, nil); err != nil {
			return nil, err
		}
		return sub.Create(ctx, key, obj, opts.dryRun)
	})
}

// callNamed implements POST on a virtual resource with a body that names an object: 201 with
// the result.
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
		response.WriteObject(w, r, int(status.Code), status, metav1.SchemeGroupVersion.WithKind("Status"), a.extra...)
		return nil
	}
	return a.writeDecoded(w, r, res, http.StatusCreated, out, gvks[0])
}

// admitUnstored runs both phases of admission for a call, with the body obj, or a deletion of old. A body to which
// mutating admission gives another namespace or name is a 400.
func (w *write) admitUnstored(ctx context.Context, obj, old runtime.Object) error {
	if w.api.cfg.Admission == nil {
		return nil
	}
	attrs := w.attributes(obj, old)
	if err := w.api.cfg.Admission.Mutate(ctx, attrs); err != nil {
		return err
	}
	if body, ok := obj.(metav1.Object); ok {
		if err := w.fitPath(body); err != nil {
			return err
		}
	}
	return w.api.cfg.Admission.Validate(ctx, attrs)
}

// beginProjection returns the projection that a write changes.
func beginProjection(p *rest.Projection, obj rest.Object) (rest.Object, error) {
	if p.Begin != nil {
		return p.Begin(obj)
	}
	return p.Get(obj)
}

// project returns the next state of an object, from the next state of its projection, which
// is what the client and mutating admission see. The uid and resourceVersion of both are
// compared, and the managers of its replicas become those of the object's.
func (w *write) project(ctx context.Context, cur *resource.Object, old rest.Object, next nextState) (rest.Object, error) {
	oldView, err := beginProjection(w.projection, old)
	if err != nil {
		return nil, err
	}
	owners := managedfields.NewScaleHandler(old.GetManagedFields(), w.res.GVK(w.act.Version).GroupVersion(), w.projection.Paths)
	if w.tracker.Enabled() {
		entries, err := owners.ToSubresource()
		if err != nil {
			return nil, apierrors.NewInternalError(fmt.Errorf("read field ownership of %s %s: %w", w.res.GroupResource(), w.key, err))
		}
		oldView.SetManagedFields(entries)
	}
	view, err := next(ctx, cur, oldView)
	if err != nil {
		return nil, err
	}
	if err := w.checkIdentity(view, old); err != nil {
		return nil, err
	}
	if rv := view.GetResourceVersion(); rv != "" && rv != "0" {
		if err := w.checkRevision(rv, cur); err != nil {
			return nil, err
		}
	}
	if err := w.mutate(ctx, view, oldView); err != nil {
		return nil, err
	}
	obj := old.DeepCopyObject().(rest.Object)
	if err := w.projection.Set(obj, view); err != nil {
		return nil, err
	}
	if !w.tracker.Enabled() {
		return obj, nil
	}
	entries, err := owners.ToParent(view.GetManagedFields())
	if err != nil {
		return nil, apierrors.NewInternalError(fmt.Errorf("record field ownership of %s %s: %w", w.res.GroupResource(), w.key, err))
	}
	obj.SetManagedFields(entries)
	return obj, nil
}

// writeResult is writeObject for a subresource sub, as its projection if it has one; nil: the
// object itself.
func (a *API) writeResult(w http.ResponseWriter, r *http.Request, act *resource.Action, res *rest.Resource, sub *rest.Subresource, code int, o *resource.Object) error {
	if sub == nil || sub.Projection == nil {
		return a.writeObject(w, r, act, res, code, o)
	}
	p := sub.Projection
	obj, err := res.Decode(o)
	if err != nil {
		return err
	}
	view, err := p.Get(obj)
	if err != nil {
		return err
	}
	// Encoded as if it were stored, it has every format of an object.
	shown, err := p.Kind.Codec.EncodeStored(view)
	if err != nil {
		return unencodable(fmt.Errorf("encode %s of %s %s: %w", sub.Name, res.GroupResource(), o.Key(), err))
	}
	as := *act
	as.Group, as.Version = p.Kind.Group, p.Kind.Versions[0]
	return a.writeObject(w, r, &as, &rest.Resource{Kind: p.Kind}, code, shown.WithRevision(o.Revision))
}
