package handlers

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	metavalidation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"portico/resource"
	"portico/resource/audit"
	"portico/resource/response"
	"portico/resource/rest"
)

// delete implements DELETE on an object.
func (a *API) delete(w http.ResponseWriter, r *http.Request, act *resource.Action, res *rest.Resource) error {
	ctx, cancel := context.WithTimeout(r.Context(), writeCap)
	defer cancel()
	opts, err := a.deleteOptions(r)
	if err != nil {
		return err
	}
	d := newDeletion(a, act, res, keyOf(act, res), opts)
	if d.unread() {
		audit.Annotate(ctx, annotationDeleteUnread, "")
	}
	if err := checkKey(d.key); err != nil {
		return err
	}
	o, err := d.run(ctx)
	if err != nil {
		return err
	}
	d.warn(ctx)
	if d.removed && (!res.ReturnDeleted || d.unread()) {
		response.WriteObject(w, r, http.StatusOK, d.success(o), metav1.SchemeGroupVersion.WithKind("Status"), a.extra...)
		return nil
	}
	code := http.StatusOK
	//lint:ignore SA1019 the deprecated option asks for the 202
	if orphan := opts.OrphanDependents; !d.removed && orphan != nil && !*orphan {
		code = http.StatusAccepted
	}
	return a.writeObject(w, r, act, res, code, o)
}

// deletion is the deletion of one object.
type deletion struct {
	*write
	opts *metav1.DeleteOptions
	// permitted: admission has permitted what the deletion is a part of.
	permitted bool
	// removed: the object is deleted; otherwise it waits for finalizers or its grace period.
	removed bool
	// stored is the object of the last attempt.
	stored rest.Object
}

func newDeletion(a *API, act *resource.Action, res *rest.Resource, key resource.Key, opts *metav1.DeleteOptions) *deletion {
	w := newWrite(a, act, res, nil, writeOptions{object: opts, dryRun: len(opts.DryRun) > 0})
	w.key = key
	return &deletion{write: w, opts: opts}
}

// run deletes the object or begins its deletion. It returns the last or the new state; nil
// for an object that cannot be read.
func (d *deletion) run(ctx context.Context) (*resource.Object, error) {
	o, err := d.update(ctx, func(cur *resource.Object) (resource.Mutation, error) {
		if cur == nil {
			return resource.Mutation{}, apierrors.NewNotFound(d.res.GroupResource(), d.key.Name)
		}
		return d.attempt(ctx, cur)
	})
	if d.unread() && apierrors.ReasonForError(err) == metav1.StatusReasonStoreReadError {
		return nil, d.discardValue(ctx, err)
	}
	return o, err
}

// warn sends the warnings of a deletion that has to wait.
func (d *deletion) warn(ctx context.Context) {
	if d.stored == nil || d.removed || d.dryRun || d.strategy.DeleteWarnings == nil {
		return
	}
	for _, text := range d.strategy.DeleteWarnings(ctx, d.stored) {
		d.api.cfg.Warn(ctx, text)
	}
}

// attempt returns the mutation of the stored object.
func (d *deletion) attempt(ctx context.Context, cur *resource.Object) (resource.Mutation, error) {
	obj, err := d.res.Decode(cur)
	if d.unread() {
		return d.discard(ctx, cur, err)
	}
	if err != nil {
		return resource.Mutation{}, err
	}
	if err := d.permit(ctx, obj); err != nil {
		return resource.Mutation{}, err
	}
	d.removed, d.stored = false, obj
	if d.terminating(obj) {
		return resource.Mutation{Object: cur}, nil
	}
	s := &d.res.Strategy
	finalizers := deletionFinalizers(obj.GetFinalizers(), d.opts, s)
	held := s.Holds != nil && s.Holds(obj)
	g := d.grace(obj)
	d.removed = len(finalizers) == 0 && !held && g.seconds == 0
	if d.removed {
		return resource.Mutation{Object: cur, Delete: true}, nil
	}
	obj.SetFinalizers(finalizers)
	d.begin(obj, held, g)
	o, err := d.encode(obj)
	if err != nil {
		return resource.Mutation{}, err
	}
	return resource.Mutation{Object: o, TTL: d.lifetime(obj)}, nil
}

// permit checks preconditions, then admission.
func (d *deletion) permit(ctx context.Context, obj rest.Object) error {
	if p := d.opts.Preconditions; p != nil {
		if p.UID != nil && *p.UID != obj.GetUID() {
			return d.preconditionFailed(fmt.Sprintf("the UID in the precondition (%s) does not match the UID in record (%s). "+
				"The object might have been deleted and then recreated", *p.UID, obj.GetUID()))
		}
		if p.ResourceVersion != nil && *p.ResourceVersion != obj.GetResourceVersion() {
			return d.preconditionFailed(fmt.Sprintf("the ResourceVersion in the precondition (%s) does not match the ResourceVersion in record (%s). "+
				"The object might have been modified", *p.ResourceVersion, obj.GetResourceVersion()))
		}
	}
	if d.permitted {
		return nil
	}
	return d.admitUnstored(ctx, nil, obj)
}

// preconditionFailed is the 409 for a precondition. As upstream, it has the kind where other
// conflicts have the resource.
func (d *deletion) preconditionFailed(why string) error {
	kind := schema.GroupResource{Group: d.res.Group, Resource: d.res.GVK(d.act.Version).Kind}
	return apierrors.NewConflict(kind, d.key.Name, errors.New(why))
}

// begin sets the metadata of an object that cannot be deleted yet. A deletion that has begun
// can only be shortened.
func (d *deletion) begin(obj rest.Object, held bool, g grace) {
	begun := obj.GetDeletionTimestamp()
	if begun == nil && obj.GetGeneration() > 0 {
		obj.SetGeneration(obj.GetGeneration() + 1)
	}
	at := rest.Now()
	if g.seconds > 0 {
		at = g.until
	}
	if begun == nil || begun.After(at.Time) {
		obj.SetDeletionTimestamp(&at)
	}
	if !held {
		obj.SetDeletionGracePeriodSeconds(&g.seconds)
	}
	if d.res.Strategy.BeginDelete != nil {
		d.res.Strategy.BeginDelete(obj)
	}
}

// success returns the Status for a deleted object; o is nil if it cannot be read.
func (d *deletion) success(o *resource.Object) *metav1.Status {
	details := &metav1.StatusDetails{Name: d.key.Name, Group: d.res.Group, Kind: d.res.Resource}
	if o != nil {
		details.UID = types.UID(o.UID)
	}
	return &metav1.Status{Status: metav1.StatusSuccess, Details: details}
}

// deletionFinalizers returns the finalizers of an object to be deleted: those that it has, and that of the propagation policy instead of any other.
func deletionFinalizers(finalizers []string, opts *metav1.DeleteOptions, s *rest.Strategy) []string {
	var kept []string
	for _, f := range finalizers {
		if f != metav1.FinalizerOrphanDependents && f != metav1.FinalizerDeleteDependents {
			kept = append(kept, f)
		}
	}
	switch propagation(finalizers, opts, s) {
	case metav1.DeletePropagationOrphan:
		kept = append(kept, metav1.FinalizerOrphanDependents)
	case metav1.DeletePropagationForeground:
		kept = append(kept, metav1.FinalizerDeleteDependents)
	}
	if sameSet(kept, finalizers) {
		return finalizers // in their order, so that the object does not change
	}
	return kept
}

// propagation returns the propagation policy: of the options, else of the finalizers, else of
// the kind.
func propagation(finalizers []string, opts *metav1.DeleteOptions, s *rest.Strategy) metav1.DeletionPropagation {
	switch {
	case s.IgnorePropagation:
		return metav1.DeletePropagationBackground
	//lint:ignore SA1019 clients still send the deprecated option
	case opts.OrphanDependents != nil:
		//lint:ignore SA1019 as above
		if *opts.OrphanDependents {
			return metav1.DeletePropagationOrphan
		}
		return metav1.DeletePropagationBackground
	case opts.PropagationPolicy != nil:
		return *opts.PropagationPolicy
	case slices.Contains(finalizers, metav1.FinalizerOrphanDependents):
		return metav1.DeletePropagationOrphan
	case slices.Contains(finalizers, metav1.FinalizerDeleteDependents):
		return metav1.DeletePropagationForeground
	case s.DefaultPropagation != "":
		return s.DefaultPropagation
	}
	return metav1.DeletePropagationBackground
}

// sameSet reports whether two lists hold the same strings in any order.
func sameSet(a, b []string) bool {
	setOf := func(list []string) map[string]bool {
		set := make(map[string]bool, len(list))
		for _, s := range list {
			set[s] = true
		}
		return set
	}
	return maps.Equal(setOf(a), setOf(b))
}

// grace is a grace period: its length, and when it ends. The zero value is none.
type grace struct {
	seconds int64
	until   metav1.Time
}

// terminating reports whether the object is in its grace period and this deletion does not
// shorten it.
func (d *deletion) terminating(obj rest.Object) bool {
	period, asked := obj.GetDeletionGracePeriodSeconds(), d.opts.GracePeriodSeconds
	if d.res.Strategy.Grace == nil || obj.GetDeletionTimestamp() == nil || period == nil || *period <= 0 {
		return false
	}
	return asked == nil || *asked >= *period
}

// grace returns the grace period: that of the kind when the deletion begins, later that of
// the options, counted from the beginning. The caller has checked terminating.
func (d *deletion) grace(obj rest.Object) grace {
	s, asked := &d.res.Strategy, d.opts.GracePeriodSeconds
	if s.Grace == nil {
		return grace{}
	}
	after := func(t metav1.Time, seconds int64) metav1.Time {
		return metav1.NewTime(t.Add(time.Duration(seconds) * time.Second))
	}
	end := obj.GetDeletionTimestamp()
	if end == nil {
		seconds := s.Grace(obj, asked)
		return grace{seconds, after(rest.Now(), seconds)}
	}
	period := obj.GetDeletionGracePeriodSeconds()
	if period == nil || *period <= 0 || asked == nil || *asked <= 0 {
		return grace{}
	}
	g := grace{*asked, after(*end, *asked-*period)}
	if now := rest.Now(); g.until.Before(&now) {
		// The period has passed, but its controller still has to end the object.
		g = grace{1, now}
	}
	return g
}

// verbDeleteUnread is the permission that the deletion of an object that cannot be read
// requires beside delete (docs/wire.md 4.6).
const verbDeleteUnread = "unsafe-delete-ignore-read-errors"

// annotationDeleteUnread is the audit annotation of such a request.
const annotationDeleteUnread = "apiserver.k8s.io/unsafe-delete-ignore-read-error"

// unread reports whether the request deletes an object because it cannot be read.
func (d *deletion) unread() bool {
	unsafe := d.opts.IgnoreStoreReadErrorWithClusterBreakingPotential
	return unsafe != nil && *unsafe
}

// discard deletes an object that cannot be decoded because of unreadable. Its finalizers are
// unknown, and preconditions and admission are not checked. An object that can be read is a
// 422.
func (d *deletion) discard(ctx context.Context, cur *resource.Object, unreadable error) (resource.Mutation, error) {
	if err := d.mayDiscard(ctx); err != nil {
		return resource.Mutation{}, err
	}
	if unreadable == nil {
		return resource.Mutation{}, badOptions("DeleteOptions", field.ErrorList{field.Invalid(
			field.NewPath("ignoreStoreReadErrorWithClusterBreakingPotential"), true, "is only for objects that cannot be read; this one can")})
	}
	d.api.cfg.Logger.WarnContext(ctx, "deleting an object that cannot be decoded",
		"resource", d.res.GroupResource().String(), "key", d.key.String(), "err", unreadable)
	d.removed = true
	return resource.Mutation{Object: cur, Delete: true}, nil
}

// discardValue deletes an object that the store cannot read.
func (d *deletion) discardValue(ctx context.Context, unreadable error) error {
	store, ok := d.res.Store.(resource.Discarder)
	if !ok {
		return unreadable
	}
	if err := d.mayDiscard(ctx); err != nil {
		return err
	}
	d.api.cfg.Logger.WarnContext(ctx, "deleting an object that the store cannot read",
		"resource", d.res.GroupResource().String(), "key", d.key.String(), "err", unreadable)
	d.removed = true
	return explain(store.Discard(ctx, d.key, d.dryRun))
}

// mayDiscard checks the permission verbDeleteUnread.
func (d *deletion) mayDiscard(ctx context.Context) error {
	if d.api.cfg.Authorize == nil {
		return apierrors.NewInternalError(errors.New("no authorizer provided, unable to authorize unsafe delete"))
	}
	act := *d.act
	act.Verb = verbDeleteUnread
	err := d.api.cfg.Authorize(ctx, &act)
	if apierrors.IsForbidden(err) {
		err = apierrors.NewForbidden(d.res.GroupResource(), d.key.Name, fmt.Errorf("not permitted to do %q, reason: %w", verbDeleteUnread, err))
	}
	return err
}

// DeleteAs deletes the object under key as a DELETE with the options would, without admission,
// for a request that admission has permitted and that deletes an object (eviction). Errors are
// StatusErrors.
func (a *API) DeleteAs(ctx context.Context, res *rest.Resource, key resource.Key, opts *metav1.DeleteOptions) error {
	if err := badOptions("DeleteOptions", metavalidation.ValidateDeleteOptions(opts)); err != nil {
		return err
	}
	if n := opts.GracePeriodSeconds; n != nil && *n < 0 {
		opts = opts.DeepCopy()
		opts.GracePeriodSeconds = new(int64(1))
	}
	act := &resource.Action{Verb: "delete", IsResource: true, Group: res.Group, Version: res.Versions[0],
		Resource: res.Resource, Namespace: key.Namespace, Name: key.Name, InPath: true}
	d := newDeletion(a, act, res, key, opts)
	d.permitted = true
	_, err := d.run(ctx)
	return err
}

// DeleteObject deletes a stored object as a DELETE of user would, with finalizers and
// admission. It is for controllers of the server itself. Errors: NotFound; Conflict for a
// new object of the same name, which is not deleted.
func (a *API) DeleteObject(ctx context.Context, res *rest.Resource, user *resource.User, o *resource.Object) error {
	act := &resource.Action{
		User: user, Verb: "delete", IsResource: true, Group: res.Group, Version: res.Versions[0],
		Resource: res.Resource, Namespace: o.Namespace, Name: o.Name, InPath: true,
	}
	ctx, cancel := context.WithTimeout(resource.WithAction(ctx, act), writeCap)
	defer cancel()
	background, uid := metav1.DeletePropagationBackground, types.UID(o.UID)
	opts := &metav1.DeleteOptions{PropagationPolicy: &background, Preconditions: &metav1.Preconditions{UID: &uid}}
	opts.SetGroupVersionKind(optionsKind("DeleteOptions"))
	_, err := newDeletion(a, act, res, o.Key(), opts).run(ctx)
	return err
}
