package handlers

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"slices"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"portico/resource"
	"portico/resource/audit"
	"portico/resource/rest"
)

// delete answers DELETE on an object.
func (a *API) delete(w http.ResponseWriter, r *http.Request, act *resource.Action, res *rest.Resource) error {
	ctx, cancel := context.WithTimeout(r.Context(), writeCap)
	defer cancel()
	opts, err := a.deleteOptions(r, res)
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
	if d.removed && (!res.ReturnDeleted || d.unread()) {
		WriteObject(w, r, http.StatusOK, d.success(o), metav1.SchemeGroupVersion.WithKind("Status"))
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
	// removed says that the object is gone, as opposed to waiting for its
	// finalizers.
	removed bool
}

func newDeletion(a *API, act *resource.Action, res *rest.Resource, key resource.Key, opts *metav1.DeleteOptions) *deletion {
	w := newWrite(a, act, res, nil, writeOptions{object: opts, dryRun: len(opts.DryRun) > 0})
	w.key = key
	return &deletion{write: w, opts: opts}
}

// run deletes the object or begins its deletion, and returns its last or its new state;
// nil if it cannot be read.
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

// attempt decides what becomes of the stored object.
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
	d.removed = false
	if d.lingers(obj) {
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

// permit checks what may refuse the deletion: preconditions, the strategy and
// admission, in that order.
func (d *deletion) permit(ctx context.Context, obj rest.Object) error {
	if p := d.opts.Preconditions; p != nil {
		if p.UID != nil && *p.UID != obj.GetUID() {
			return d.unfit(fmt.Sprintf("the UID in the precondition (%s) does not match the UID in record (%s). "+
				"The object might have been deleted and then recreated", *p.UID, obj.GetUID()))
		}
		if p.ResourceVersion != nil && *p.ResourceVersion != obj.GetResourceVersion() {
			return d.unfit(fmt.Sprintf("the ResourceVersion in the precondition (%s) does not match the ResourceVersion in record (%s). "+
				"The object might have been modified", *p.ResourceVersion, obj.GetResourceVersion()))
		}
	}
	if err := d.admit(ctx, rest.Delete, nil, obj); err != nil {
		return err
	}
	return d.confirm(ctx, rest.Delete, nil, obj)
}

// unfit is the conflict for an object that does not meet a precondition. It names
// the kind where other conflicts name the resource, as clients know it.
func (d *deletion) unfit(why string) error {
	kind := schema.GroupResource{Group: d.res.Group, Resource: d.res.GVK(d.act.Version).Kind}
	return apierrors.NewConflict(kind, d.key.Name, errors.New(why))
}

// begin marks an object whose deletion waits for something. A deletion that has
// begun already can only be shortened.
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

// success is the Status for a deleted object; nil: it could not be read.
func (d *deletion) success(o *resource.Object) *metav1.Status {
	details := &metav1.StatusDetails{Name: d.key.Name, Group: d.res.Group, Kind: d.res.Resource}
	if o != nil {
		details.UID = types.UID(o.UID)
	}
	return &metav1.Status{Status: metav1.StatusSuccess, Details: details}
}

// deletionFinalizers returns the finalizers with which an object goes into
// deletion: those for dependents as the options say, else as the object has
// them already, else as is the kind's default; all others stay.
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
		return finalizers // in their order, so that nothing seems to change
	}
	return kept
}

// propagation decides what becomes of an object's dependents.
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
