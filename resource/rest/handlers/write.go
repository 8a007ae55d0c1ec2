package handlers

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"portico/resource"
	"portico/resource/audit"
	"portico/resource/bodylimit"
	"portico/resource/rest"
	"portico/resource/rest/managedfields"
)

// writeCap bounds a write of a single object, retries included (docs/wire.md 0.2).
const writeCap = 34 * time.Second

// write is one write of one object: what its steps share. It lives for one
// request and is used by one goroutine at a time.
type write struct {
	api *API
	act *resource.Action
	res *rest.Resource
	// strategy is that of the view written through, or the kind's own.
	strategy *rest.Strategy
	// subresource is the view written through; "" is the object itself.
	subresource string
	// projection is set where that view is another kind.
	projection *rest.Projection
	// body is the kind of the bodies, in the version gvk: the resource's, or
	// the projection's.
	body *rest.Kind
	gvk  schema.GroupVersionKind
	key  resource.Key
	writeOptions
	// tracker records the ownership of the fields that this write changes.
	tracker *managedfields.Tracker
	// applied says that the next state comes with its record; dropped that it is
	// stored without one, which would make it too large.
	applied, dropped bool
	// expects has the uid and revision that an update is for; nil: any.
	expects *expectation
	// sent is the body of the request, with the memory that it has taken; nil: none.
	// heldStored is the part of it, in bytes, for the stored object.
	sent       *requestBody
	heldStored int
	// release gives back what the latest attempt allocated; nil: nothing.
	release func()
}

// newWrite begins a write through sub; nil is the object itself.
func newWrite(a *API, act *resource.Action, res *rest.Resource, sub *rest.Subresource, opts writeOptions) *write {
	w := &write{
		api: a, act: act, res: res, strategy: &res.Strategy, body: res.Kind, gvk: res.GVK(act.Version),
		key: keyOf(act, res), writeOptions: opts,
	}
	ownership := res.Ownership
	switch {
	case sub == nil:
	case sub.Projection == nil:
		w.subresource, w.strategy = sub.Name, sub.Strategy
	default:
		w.subresource, w.projection, w.body = sub.Name, sub.Projection, sub.Projection.Kind
		w.gvk = w.body.GVK(w.body.Versions[0])
		if ownership != nil {
			ownership = w.body.Ownership
		}
		if w.projection.Paths == nil {
			ownership = nil
		}
	}
	w.tracker = w.newTracker(ownership, resets(res.Kind, act.Version, sub))
	return w
}

// decode decodes a body in the version of the request, defaulted.
func (w *write) decode(ctx context.Context, data []byte, mediaType, validation string) (rest.Object, error) {
	decoded, err := w.api.decodeBody(ctx, w.body.Codec, w.gvk, data, mediaType, validation)
	if err != nil {
		return nil, err
	}
	obj, err := w.withDefaults(decoded)
	if err == nil {
		audit.Refer(ctx, w.act, obj)
	}
	return obj, err
}

// target is what the bodies of this write are decoded into.
func (w *write) target() bodylimit.Target { return bodyTarget(w.body, w.gvk.Version) }

// withDefaults returns the decoded object with the kind's defaults.
func (w *write) withDefaults(decoded runtime.Object) (rest.Object, error) {
	obj, ok := decoded.(rest.Object)
	if !ok {
		return nil, apierrors.NewInternalError(fmt.Errorf("decode body: %T has no metadata", decoded))
	}
	if w.body.Strategy.Default != nil {
		w.body.Strategy.Default(obj)
	}
	return obj, nil
}

// encode makes the bytes to store.
func (w *write) encode(obj rest.Object) (*resource.Object, error) {
	o, err := w.res.Codec.EncodeStored(obj)
	if err != nil {
		return nil, unencodable(fmt.Errorf("encode %s %s: %w", w.res.GroupResource(), w.key, err))
	}
	return o, nil
}

// lifetime is how long the object is kept; 0 is for good.
func (w *write) lifetime(obj rest.Object) time.Duration {
	if w.res.TTL == nil {
		return 0
	}
	return w.res.TTL(obj)
}

// attributes are what admission decides on. obj and old are nil where there is
// no such object.
func (w *write) attributes(op rest.Operation, obj, old runtime.Object) *rest.Attributes {
	attrs := &rest.Attributes{
		Action: w.act, Kind: w.res.Kind, Operation: op, Key: w.key,
		Object: obj, Old: old, DryRun: w.dryRun, Options: w.object,
	}
	switch op {
	case rest.Create:
		attrs.Options = w.asCreate()
	case rest.Update:
		attrs.Options = w.asUpdate()
	}
	return attrs
}

// admit runs mutating admission; old is nil on create, obj on delete.
func (w *write) admit(ctx context.Context, op rest.Operation, obj, old rest.Object) error {
	if w.api.admission == nil {
		return nil
	}
	if obj == nil || !w.tracker.Enabled() {
		return w.api.admission.Mutate(ctx, w.attributes(op, orNone(obj), orNone(old)))
	}
	before := managedfields.RecordOf(obj)
	if err := w.api.admission.Mutate(ctx, w.attributes(op, obj, orNone(old))); err != nil {
		return err
	}
	w.restoreRecord(ctx, obj, before)
	return nil
}

// confirm runs validating admission; old is nil on create, obj on delete. It
// judges what the client knows, so a view where one is written through.
func (w *write) confirm(ctx context.Context, op rest.Operation, obj, old rest.Object) error {
	if w.api.admission == nil {
		return nil
	}
	if w.projection != nil {
		var err error
		if obj, err = w.projection.Get(obj); err != nil {
			return err
		}
		if old, err = beginProjection(w.projection, old); err != nil {
			return err
		}
	}
	return w.api.admission.Validate(ctx, w.attributes(op, orNone(obj), orNone(old)))
}

// orNone returns a nil interface where there is no object, which an Object that
// is nil would not become by itself.
func orNone(obj rest.Object) runtime.Object {
	if obj == nil {
		return nil
	}
	return obj
}

// allocate claims what the object needs from elsewhere. What an earlier attempt
// of this write had claimed was given back before.
func (w *write) allocate(ctx context.Context, obj, old rest.Object) error {
	if w.strategy.Allocate == nil {
		return nil
	}
	release, err := w.strategy.Allocate(ctx, obj, old, w.dryRun)
	if err != nil {
		if release != nil {
			release()
		}
		return err
	}
	w.release = release
	return nil
}

// giveBack returns what the latest attempt allocated.
func (w *write) giveBack() {
	if w.release != nil {
		w.release()
		w.release = nil
	}
}

// warnings sends the strategy's warnings.
func (w *write) warnings(ctx context.Context, obj, old rest.Object) {
	if w.strategy.Warnings == nil {
		return
	}
	for _, text := range w.strategy.Warnings(ctx, obj, old) {
		w.api.warn(ctx, text)
	}
}

// update runs mutate against the stored object, or for a dry run against a
// copy of it, and gives back what was allocated if that fails.
func (w *write) update(ctx context.Context, mutate resource.Mutate) (*resource.Object, error) {
	attempt := func(cur *resource.Object) (resource.Mutation, error) {
		w.giveBack()
		return mutate(cur)
	}
	var o *resource.Object
	var err error
	if w.dryRun {
		o, err = rehearse(ctx, w.res.Store, w.key, attempt)
	} else {
		o, err = w.res.Store.Update(ctx, w.key, attempt)
	}
	if err != nil {
		w.giveBack()
		return nil, explain(err)
	}
	return o, nil
}

// rehearse returns what Store.Update would, without writing: the next state,
// carrying the revision of the current one.
func rehearse(ctx context.Context, store resource.Store, key resource.Key, mutate resource.Mutate) (*resource.Object, error) {
	cur, err := store.Get(ctx, key, resource.At{})
	if err != nil && !apierrors.IsNotFound(err) {
		return nil, err
	}
	if err != nil {
		cur = nil
	}
	m, err := mutate(cur)
	switch {
	case err != nil:
		return nil, err
	case m.Object == nil:
		return cur, nil
	case cur == nil:
		return m.Object.WithRevision(0), nil
	}
	return m.Object.WithRevision(cur.Revision), nil
}

// explain turns the end of a write's time into the 504 that clients know.
func explain(err error) error {
	var status apierrors.APIStatus
	if errors.As(err, &status) || !errors.Is(err, context.DeadlineExceeded) {
		return err
	}
	return apierrors.NewTimeoutError(fmt.Sprintf("request did not complete within requested timeout - %v", context.DeadlineExceeded), 0)
}

// revisionText is metadata.resourceVersion of a stored object.
func revisionText(o *resource.Object) string { return strconv.FormatInt(o.Revision, 10) }

// unencodable is the answer to an object that could not be put into another
// form: a 500, unless the codec says which Status it is to be.
func unencodable(err error) error {
	var status apierrors.APIStatus
	if errors.As(err, &status) {
		return err
	}
	return apierrors.NewInternalError(err)
}
