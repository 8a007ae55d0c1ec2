package handlers

import (
	"context"
	"errors"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"portico/resource"
)

// verbDeleteUnread is the right that deletion of an object which cannot be read
// needs beside the right to delete (docs/wire.md 4.6).
const verbDeleteUnread = "unsafe-delete-ignore-read-errors"

// annotationDeleteUnread marks requests to do so, for audit.
const annotationDeleteUnread = "apiserver.k8s.io/unsafe-delete-ignore-read-error"

// unread reports whether the object shall be deleted because it cannot be read.
func (d *deletion) unread() bool {
	unsafe := d.opts.IgnoreStoreReadErrorWithClusterBreakingPotential
	return unsafe != nil && *unsafe
}

// discard deletes an object that cannot be read, for the reason unreadable: its finalizers
// are unknown, and neither preconditions nor admission are checked. An object that can be
// read is deleted in the ordinary way.
func (d *deletion) discard(ctx context.Context, cur *resource.Object, unreadable error) (resource.Mutation, error) {
	if err := d.mayDiscard(ctx); err != nil {
		return resource.Mutation{}, err
	}
	if unreadable == nil {
		return resource.Mutation{}, badOptions("DeleteOptions", field.ErrorList{field.Invalid(
			field.NewPath("ignoreStoreReadErrorWithClusterBreakingPotential"), true, "is only for objects that cannot be read; this one can")})
	}
	d.api.logger.WarnContext(ctx, "an object that cannot be read was asked to be deleted",
		"resource", d.res.GroupResource().String(), "key", d.key.String(), "err", unreadable)
	d.removed = true
	return resource.Mutation{Object: cur, Delete: true}, nil
}

// discardValue deletes an object that the store itself cannot read.
func (d *deletion) discardValue(ctx context.Context, unreadable error) error {
	store, ok := d.res.Store.(resource.Discarder)
	if !ok {
		return unreadable
	}
	if err := d.mayDiscard(ctx); err != nil {
		return err
	}
	d.api.logger.WarnContext(ctx, "an object that the store cannot read was asked to be deleted",
		"resource", d.res.GroupResource().String(), "key", d.key.String(), "err", unreadable)
	d.removed = true
	return explain(store.Discard(ctx, d.key, d.dryRun))
}

// mayDiscard asks for the right that it takes beside the right to delete.
func (d *deletion) mayDiscard(ctx context.Context) error {
	if d.api.authorize == nil {
		return apierrors.NewInternalError(errors.New("no authorizer provided, unable to authorize unsafe delete"))
	}
	act := *d.act
	act.Verb = verbDeleteUnread
	err := d.api.authorize(ctx, &act)
	if apierrors.IsForbidden(err) {
		err = apierrors.NewForbidden(d.res.GroupResource(), d.key.Name, fmt.Errorf("not permitted to do %q, reason: %w", verbDeleteUnread, err))
	}
	return err
}
