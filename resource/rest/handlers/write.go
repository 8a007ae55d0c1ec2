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

// write is one write of one object. It lives for one request and is used by one goroutine at
// a time.
type write struct {
	api *API
	act *resource.Action
	res *rest.Resource
	// strategy is that of the subresource, or of the kind.
	strategy *rest.Strategy
	// subresource is its name; "": the object itself.
	subresource string
	// projection is set for a subresource of another kind.
	projection *rest.Projection
	// body is the kind of the bodies, in the version gvk: that of the resource or of the
	// projection.
	body *rest.Kind
	gvk  schema.GroupVersionKind
	key  resource.Key
	writeOptions
	// tracker records the managers of the fields that this write changes.
	tracker *managedfields.Tracker
	// applied: the write is an apply patch, which returns managedFields. dropped: the
	// object is stored without managedFields, with which it would be too large.
	applied, dropped bool
	// sent is the body of the request with its memory; nil: none. heldStored is the part of
	// that memory that is for the stored object, in bytes.
	sent       *requestBody
	heldStored int
	// release returns the result of Allocate in the latest attempt; nil: nothing.
	release func()
}

// newWrite returns a write of the object, or of its subresource sub.
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
	w.tracker = &managedfields.Tracker{
		Types: ownership, Converted: w.body.Converted, GVK: w.gvk, Manager: w.managerName, Subresource: w.subresource,
		Resets: res.ResetFields(act.Version, sub), Projected: w.projection != nil,
	}
	if codec, ok := w.body.Codec.(rest.Versioned); ok {
		w.tracker.Codec = codec
	}
	return w
}

// decode decodes a body in the version of the request and sets defaults.
func (w *write) decode(ctx context.Context, body *requestBody, validation string) (rest.Object, error) {
	decoded, err := w.api.decodeBody(ctx, w.body.Codec, w.gvk, body, validation)
	if err != nil {
		return nil, err
	}
	if codec, ok := w.body.Codec.(rest.Versioned); ok {
		if err := rest.ExpectVersion(decoded.GetObjectKind().GroupVersionKind().GroupVersion(), codec.Hub()); err != nil {
			return nil, err
		}
	}
	obj, err := w.withDefaults(decoded)
	if err == nil {
		audit.Refer(ctx, obj)
	}
	return obj, err
}

// target returns what the bodies of this write are decoded into.
func (w *write) target() bodylimit.Target { return bodyTarget(w.body, w.gvk.Version) }

// withDefaults sets the defaults of the kind in a decoded object.
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

// encode returns the bytes to store.
func (w *write) encode(obj rest.Object) (*resource.Object, error) {
	o, err := w.res.Codec.EncodeStored(obj)
	if err != nil {
		return nil, unencodable(fmt.Errorf("encode %s %s: %w", w.res.GroupResource(), w.key, err))
	}
	return o, nil
}

// lifetime returns the time to live of the object; 0: it does not expire.
func (w *write) lifetime(obj rest.Object) time.Duration {
	if w.res.TTL == nil {
		return 0
	}
	return w.res.TTL(obj)
}

// attributes returns the attributes of a create (old is nil), update or delete (obj is nil) for
// admission.
func (w *write) attributes(obj, old runtime.Object) *rest.Attributes {
	attrs := &rest.Attributes{
		Action: w.act, Kind: w.res.Kind, Operation: rest.Update, Key: w.key,
		Object: obj, Old: old, DryRun: w.dryRun, Options: w.object,
	}
	switch {
	case obj == nil:
		attrs.Operation = rest.Delete
	case old == nil:
		attrs.Operation, attrs.Options = rest.Create, w.asCreate()
	default:
		attrs.Options = w.asUpdate()
	}
	return attrs
}

// admit prepares obj, the next state of old (nil on create), for mutating admission and runs it.
func (w *write) admit(ctx context.Context, obj, old rest.Object) error {
	if err := w.invalid(obj.GetName(), growsMetadata(obj, old)); err != nil {
		return err
	}
	if err := w.mutate(ctx, obj, old); err != nil {
		return err
	}
	w.dedupeOwners(ctx, obj, true)
	return nil
}

// mutate records the manager of the write in obj and runs mutating admission.
func (w *write) mutate(ctx context.Context, obj, old rest.Object) error {
	w.recordUpdate(ctx, obj, old)
	if w.api.cfg.Admission == nil {
		return nil
	}
	attrs := w.attributes(obj, orNone(old))
	if !w.tracker.Enabled() {
		return w.api.cfg.Admission.Mutate(ctx, attrs)
	}
	before := managedfields.RecordOf(obj)
	if err := w.api.cfg.Admission.Mutate(ctx, attrs); err != nil {
		return err
	}
	w.restoreRecord(ctx, obj, before)
	return nil
}

// validateAdmission runs validating admission; old is nil on create. For a
// projection it sees the projected objects.
func (w *write) validateAdmission(ctx context.Context, obj, old rest.Object) error {
	if w.api.cfg.Admission == nil {
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
	return w.api.cfg.Admission.Validate(ctx, w.attributes(obj, orNone(old)))
}

// mutation returns what stores obj, after mutating admission, as the next state of old; nil: as
// a new object. Check follows mutating admission, so that it sees the changes of admission.
func (w *write) mutation(ctx context.Context, obj, old rest.Object) (m resource.Mutation, err error) {
	if err := w.keepPlace(obj, old); err != nil {
		return m, err
	}
	s, verb := w.strategy, "create"
	if old != nil {
		verb = "update"
	}
	if s.Check != nil {
		if err := s.Check(ctx, verb, obj, old); err != nil {
			return m, err
		}
	}
	w.prepare(ctx, obj, old)
	if err := w.allocate(ctx, obj, old); err != nil {
		return m, err
	}
	if old != nil {
		obj = w.settle(obj, old)
	}
	var o *resource.Object
	if s.Prevalidated != nil {
		if o, err = w.encode(obj); err != nil {
			return m, err
		}
	}
	if err := w.validate(ctx, obj, old, o); err != nil {
		return m, err
	}
	w.warnings(ctx, obj, old)
	if err := w.validateAdmission(ctx, obj, old); err != nil {
		return m, err
	}
	if o == nil {
		if o, err = w.encode(obj); err != nil {
			return m, err
		}
	}
	return resource.Mutation{Object: o, Delete: old != nil && completesDeletion(w.res.Kind, obj, old), TTL: w.lifetime(obj)}, nil
}

// prepare sets the metadata that only the server sets and calls the strategy.
func (w *write) prepare(ctx context.Context, obj, old rest.Object) {
	s := w.strategy
	if old == nil {
		rest.FillSystemMetadata(obj, s.TrackGeneration)
		if s.PrepareCreate != nil {
			s.PrepareCreate(ctx, obj)
			w.key.Name = obj.GetName() // which it may have set
		}
		return
	}
	obj.SetGeneration(old.GetGeneration())
	switch {
	case s.PrepareUpdate == nil:
	case w.subresource != "":
		// PrepareUpdate of a subresource may copy the managedFields of old.
		entries := obj.GetManagedFields()
		s.PrepareUpdate(ctx, obj, old)
		obj.SetManagedFields(entries)
	default:
		s.PrepareUpdate(ctx, obj, old)
	}
	keepSystemMetadata(obj, old)
}

// orNone returns obj, or a nil interface if obj is nil.
func orNone(obj rest.Object) runtime.Object {
	if obj == nil {
		return nil
	}
	return obj
}

// allocate calls Strategy.Allocate. The caller has released the result of earlier attempts.
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

// releaseAllocated releases the result of the latest allocate.
func (w *write) releaseAllocated() {
	if w.release != nil {
		w.release()
		w.release = nil
	}
}

// warnings sends the warnings of the strategy.
func (w *write) warnings(ctx context.Context, obj, old rest.Object) {
	if w.strategy.Warnings == nil {
		return
	}
	for _, text := range w.strategy.Warnings(ctx, obj, old) {
		w.api.cfg.Warn(ctx, text)
	}
}

// update updates the stored object with mutate, or computes the result for a dry run, and
// releases what was allocated if that fails.
func (w *write) update(ctx context.Context, mutate resource.Mutate) (*resource.Object, error) {
	attempt := func(cur *resource.Object) (resource.Mutation, error) {
		w.releaseAllocated()
		return mutate(cur)
	}
	updated := false
	defer func() { // also if a strategy panics
		if !updated {
			w.releaseAllocated()
		}
	}()
	var o *resource.Object
	var err error
	if w.dryRun {
		o, err = dryRunUpdate(ctx, w.res.Store, w.key, attempt)
	} else {
		o, err = w.res.Store.Update(ctx, w.key, attempt)
	}
	if err != nil {
		return nil, explain(err)
	}
	updated = true
	return o, nil
}

// dryRunUpdate returns the result of Store.Update without writing: the next state with the
// revision of the current one.
func dryRunUpdate(ctx context.Context, store resource.Store, key resource.Key, mutate resource.Mutate) (*resource.Object, error) {
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

// explain converts a passed deadline of a write to a 504.
func explain(err error) error {
	var status apierrors.APIStatus
	if errors.As(err, &status) || !errors.Is(err, context.DeadlineExceeded) {
		return err
	}
	return apierrors.NewTimeoutError(fmt.Sprintf("request did not complete within requested timeout - %v", context.DeadlineExceeded), 0)
}

// revisionText returns metadata.resourceVersion of a stored object.
func revisionText(o *resource.Object) string { return strconv.FormatInt(o.Revision, 10) }

// unencodable is the 500 for an object that cannot be encoded; a StatusError of the codec is
// returned as it is.
func unencodable(err error) error {
	var status apierrors.APIStatus
	if errors.As(err, &status) {
		return err
	}
	return apierrors.NewInternalError(err)
}
