package rest

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"

	"portico/resource"
)

// writeCap bounds a write of a single object, retries included (contract 0.2).
const writeCap = 34 * time.Second

// write is one write of one object: what its steps share. It lives for one
// request and is used by one goroutine at a time.
type write struct {
	api *API
	act *resource.Action
	res *Resource
	// strategy is that of the view written through, or the kind's own.
	strategy *Strategy
	// view says that the write goes through a subresource.
	view bool
	key  resource.Key
	writeOptions
	// release gives back what the latest attempt allocated; nil: nothing.
	release func()
}

// newWrite begins a write through sub; nil is the object itself.
func newWrite(a *API, act *resource.Action, res *Resource, sub *Subresource, opts writeOptions) *write {
	w := &write{api: a, act: act, res: res, strategy: &res.Strategy, key: keyOf(act, res), writeOptions: opts}
	if sub != nil {
		w.strategy, w.view = sub.Strategy, true
	}
	return w
}

// decode decodes a body in the version of the request, defaulted.
func (w *write) decode(ctx context.Context, data []byte, mediaType, validation string) (Object, error) {
	decoded, err := w.api.decodeBody(ctx, w.res.Codec, w.res.GVK(w.act.Version), data, mediaType, validation)
	if err != nil {
		return nil, err
	}
	return w.withDefaults(decoded)
}

// withDefaults returns the decoded object with the kind's defaults.
func (w *write) withDefaults(decoded runtime.Object) (Object, error) {
	obj, ok := decoded.(Object)
	if !ok {
		return nil, apierrors.NewInternalError(fmt.Errorf("decode body: %T has no metadata", decoded))
	}
	if w.res.Strategy.Default != nil {
		w.res.Strategy.Default(obj)
	}
	return obj, nil
}

// encode makes the bytes to store.
func (w *write) encode(obj Object) (*resource.Object, error) {
	o, err := w.res.Codec.EncodeStored(obj)
	if err != nil {
		return nil, apierrors.NewInternalError(fmt.Errorf("encode %s %s: %w", w.res.GroupResource(), w.key, err))
	}
	return o, nil
}

// lifetime is how long the object is kept; 0 is for good.
func (w *write) lifetime(obj Object) time.Duration {
	if w.res.TTL == nil {
		return 0
	}
	return w.res.TTL(obj)
}

// attributes are what admission decides on. obj and old are nil where there is
// no such object.
func (w *write) attributes(op Operation, obj, old runtime.Object) *Attributes {
	attrs := &Attributes{
		Action: w.act, Kind: w.res.Kind, Operation: op, Key: w.key,
		Object: obj, Old: old, DryRun: w.dryRun, Options: w.object,
	}
	if op == Create {
		attrs.Options = w.asCreate()
	}
	return attrs
}

// admit runs mutating admission.
func (w *write) admit(ctx context.Context, op Operation, obj, old runtime.Object) error {
	if w.api.admission == nil {
		return nil
	}
	return w.api.admission.Mutate(ctx, w.attributes(op, obj, old))
}

// confirm runs validating admission.
func (w *write) confirm(ctx context.Context, op Operation, obj, old runtime.Object) error {
	if w.api.admission == nil {
		return nil
	}
	return w.api.admission.Validate(ctx, w.attributes(op, obj, old))
}

// allocate claims what the object needs from elsewhere. What an earlier attempt
// of this write had claimed was given back before.
func (w *write) allocate(ctx context.Context, obj, old Object) error {
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
func (w *write) warnings(ctx context.Context, obj, old Object) {
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
