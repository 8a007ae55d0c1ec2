package handlers

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strconv"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"portico/resource"
	"portico/resource/bodylimit"
	"portico/resource/rest"
	"portico/resource/rest/body"
)

// errModified is the message of a conflict of resourceVersions.
const errModified = "the object has been modified; please apply your changes to the latest version and try again"

// nextState returns the next state of an object, decoded and with defaults, from the current
// one: cur, and old decoded; nil if there is none. It may be called several times and must
// not change old.
type nextState func(ctx context.Context, cur *resource.Object, old rest.Object) (rest.Object, error)

// update implements PUT on an object or its subresource sub: 200, or 201 if it creates.
func (a *API) update(w http.ResponseWriter, r *http.Request, act *resource.Action, res *rest.Resource, sub *rest.Subresource) error {
	ctx, cancel := context.WithTimeout(r.Context(), writeCap)
	defer cancel()
	if err := requireName(act); err != nil {
		return err
	}
	opts, err := updateOptions(r)
	if err != nil {
		return err
	}
	wr := newWrite(a, act, res, sub, opts)
	body, err := a.readBody(r, wr.target())
	if err != nil {
		return err
	}
	defer body.close()
	wr.sent = body
	if err := checkKey(wr.key); err != nil {
		return err
	}
	obj, err := wr.decodePut(ctx, body, opts.validation)
	if err != nil {
		return err
	}
	// Attempts change the decoded object: those after the first decode the body again,
	// without repeating warnings.
	next := func(ctx context.Context, _ *resource.Object, old rest.Object) (rest.Object, error) {
		sent := obj
		if obj = nil; sent == nil {
			var err error
			if sent, err = wr.decodePut(ctx, body, metav1.FieldValidationIgnore); err != nil {
				return nil, err
			}
		}
		return sent, wr.checkIdentity(sent, old)
	}
	return wr.replace(ctx, w, r, sub, next, res.CreateOnUpdate)
}

// decodePut decodes the body of a PUT and checks its name and namespace.
func (w *write) decodePut(ctx context.Context, body *requestBody, validation string) (rest.Object, error) {
	obj, err := w.decode(ctx, body, validation)
	if err != nil {
		return nil, err
	}
	if err := w.fitPath(obj); err != nil {
		return nil, err
	}
	w.dedupeOwners(ctx, obj, false)
	return obj, nil
}

// replace stores the result of next for the current state and responds with it, or with its
// projection as sub: 200, or 201 if it was created. mayCreate permits to create an object,
// but no subresource; otherwise a missing object is a 404. A state that is too large for etcd
// is stored without managedFields if that suffices, except for an apply patch (docs/wire.md
// 6.5).
func (w *write) replace(ctx context.Context, to http.ResponseWriter, r *http.Request, sub *rest.Subresource, next nextState, mayCreate bool) error {
	code := http.StatusOK
	attempt := func(cur *resource.Object) (resource.Mutation, error) {
		switch {
		case cur != nil:
			code = http.StatusOK
			return w.replaceStored(ctx, cur, next)
		case mayCreate && sub == nil:
			code = http.StatusCreated
			return w.createInstead(ctx, next)
		}
		return resource.Mutation{}, apierrors.NewNotFound(w.res.GroupResource(), w.key.Name)
	}
	o, err := w.update(ctx, attempt)
	if resource.IsTooLarge(err) && w.tracker.Enabled() && !w.applied {
		w.dropped = true
		o, err = w.update(ctx, attempt)
	}
	if err != nil {
		return err
	}
	return w.api.writeResult(to, r, w.act, w.res, sub, code, o)
}

// createInstead is an update of an object that does not exist. It also requires the
// permission to create.
func (w *write) createInstead(ctx context.Context, next nextState) (resource.Mutation, error) {
	if w.api.cfg.Authorize != nil {
		act := *w.act
		act.Verb = "create"
		if err := w.api.cfg.Authorize(ctx, &act); err != nil {
			return resource.Mutation{}, err
		}
	}
	obj, err := next(ctx, nil, nil)
	if err != nil {
		return resource.Mutation{}, err
	}
	if err := w.admit(ctx, obj, nil); err != nil {
		return resource.Mutation{}, err
	}
	return w.mutation(ctx, obj, nil)
}

// replaceStored is an update of the stored object cur.
func (w *write) replaceStored(ctx context.Context, cur *resource.Object, next nextState) (resource.Mutation, error) {
	if err := w.holdStored(cur); err != nil {
		return resource.Mutation{}, err
	}
	old, err := w.res.Decode(cur)
	if err != nil {
		return resource.Mutation{}, err
	}
	var obj rest.Object
	if w.projection != nil {
		obj, err = w.project(ctx, cur, old, next)
	} else {
		obj, err = w.change(ctx, cur, old, next)
	}
	if err != nil {
		return resource.Mutation{}, err
	}
	return w.mutation(ctx, obj, old)
}

// change returns the next state of the stored object, after mutating admission.
func (w *write) change(ctx context.Context, cur *resource.Object, old rest.Object, next nextState) (rest.Object, error) {
	obj, err := next(ctx, cur, old)
	if err != nil {
		return nil, err
	}
	if err := w.checkRevision(obj.GetResourceVersion(), cur); err != nil {
		return nil, err
	}
	return obj, w.admit(ctx, obj, old)
}

// holdStored accounts the memory for decoding the stored object, which may be large even if
// the patch is small. Error: a 429.
func (w *write) holdStored(cur *resource.Object) error {
	if w.sent == nil || len(cur.Data) <= body.Eager {
		return nil
	}
	mediaType := runtime.ContentTypeJSON
	if cur.Encoding == resource.Protobuf {
		mediaType = runtime.ContentTypeProtobuf
	}
	// An object beyond the bounds may be changed; it counts as far as it was measured.
	size, _ := bodylimit.Measure(cur.Data, mediaType, w.target())
	more := int(size.Memory()) - w.heldStored
	if err := w.sent.held.Grow(more); err != nil {
		return err
	}
	w.heldStored += max(0, more) // also for further attempts
	return nil
}

// checkIdentity returns a 409 if obj has another uid than old. obj is the body of a PUT or the view of a
// subresource; old is nil if there is no object.
func (w *write) checkIdentity(obj, old rest.Object) error {
	var stored types.UID
	if old != nil {
		stored = old.GetUID()
	}
	if uid := obj.GetUID(); uid != "" && uid != stored {
		return w.conflict(uidMismatch(string(uid), string(stored)))
	}
	return nil
}

// completesDeletion reports whether a write completes the deletion of an object by
// removing its last finalizer.
func completesDeletion(k *rest.Kind, obj, old rest.Object) bool {
	if old.GetDeletionTimestamp() == nil || len(obj.GetFinalizers()) > 0 {
		return false
	}
	if grace := old.GetDeletionGracePeriodSeconds(); grace != nil && *grace != 0 {
		return false
	}
	return k.Strategy.Holds == nil || !k.Strategy.Holds(obj)
}

// checkRevision is the 409 for a body with another resourceVersion than the stored one. A
// body without one is permitted if the kind has UnconditionalUpdate.
func (w *write) checkRevision(rv string, cur *resource.Object) error {
	if rv == "" || rv == "0" {
		if w.res.UnconditionalUpdate {
			return nil
		}
		// As upstream, the kind of this error is the resource.
		gr := w.res.GroupResource()
		return apierrors.NewInvalid(schema.GroupKind{Group: gr.Group, Kind: gr.Resource}, w.key.Name, field.ErrorList{
			field.Invalid(field.NewPath("metadata", "resourceVersion"), 0, "must be specified for an update"),
		})
	}
	if _, err := strconv.ParseUint(rv, 10, 64); err != nil {
		return apierrors.NewBadRequest(fmt.Sprintf("invalid resource version: %v", err))
	}
	if rv != revisionText(cur) {
		return w.conflict(errModified)
	}
	return nil
}

func (w *write) conflict(why string) error {
	return apierrors.NewConflict(w.res.GroupResource(), w.key.Name, errors.New(why))
}

func uidMismatch(asked, stored string) string {
	return fmt.Sprintf("Precondition failed: UID in precondition: %s, UID in object meta: %s", asked, stored)
}
