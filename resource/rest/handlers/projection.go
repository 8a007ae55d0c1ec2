package handlers

import (
	"context"
	"fmt"
	"net/http"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/util/managedfields"

	"portico/resource"
	"portico/resource/rest"
)

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
