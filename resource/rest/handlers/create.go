package handlers

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strconv"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"portico/resource"
	"portico/resource/rest"
)

// maxNameAttempts is how many generated names are tried.
const maxNameAttempts = 8

// create implements POST on a collection, or on the object if its kind has no Go type: 201
// with the object.
func (a *API) create(w http.ResponseWriter, r *http.Request, act *resource.Action, res *rest.Resource) error {
	ctx, cancel := context.WithTimeout(r.Context(), writeCap)
	defer cancel()
	opts, err := createOptions(r)
	if err != nil {
		return err
	}
	wr := newWrite(a, act, res, nil, opts)
	body, err := a.readBody(r, wr.target())
	if err != nil {
		return err
	}
	defer body.close()
	obj, err := wr.decode(ctx, body, opts.validation)
	if err != nil {
		return err
	}
	rest.WipeSystemMetadata(obj)
	if err := placeInNamespace(obj, wr.key.Namespace); err != nil {
		return err
	}
	if act.InPath {
		if err := checkName(obj, act.Name); err != nil {
			return err
		}
	}
	wr.key.Name = obj.GetName()
	o, err := wr.create(ctx, obj)
	if err != nil {
		return explain(err)
	}
	return a.writeObject(w, r, act, res, http.StatusCreated, o)
}

// create stores a new object, with a generated name if it has none.
func (w *write) create(ctx context.Context, obj rest.Object) (*resource.Object, error) {
	w.dedupeOwners(ctx, obj, false)
	if err := w.admit(ctx, obj, nil); err != nil {
		return nil, err
	}
	if obj.GetName() != "" || obj.GetGenerateName() == "" {
		o, err := w.createNamed(ctx, obj)
		return o, w.explainExists(ctx, err, obj.GetGenerateName() != "")
	}
	var o *resource.Object
	var err error
	for range maxNameAttempts {
		named := obj.DeepCopyObject().(rest.Object)
		named.SetName(generatedName(obj.GetGenerateName()))
		o, err = w.createNamed(ctx, named)
		if !apierrors.IsAlreadyExists(err) {
			break
		}
	}
	return o, w.explainExists(ctx, err, true)
}

// createNamed stores a new object with a name. One that is too large for etcd is stored
// without managedFields if that suffices (docs/wire.md 6.5).
func (w *write) createNamed(ctx context.Context, obj rest.Object) (*resource.Object, error) {
	w.key.Name = obj.GetName()
	o, err := w.tryCreate(ctx, obj)
	if resource.IsTooLarge(err) && w.tracker.Enabled() && obj.GetManagedFields() != nil {
		obj.SetManagedFields(nil)
		return w.tryCreate(ctx, obj)
	}
	return o, err
}

func (w *write) tryCreate(ctx context.Context, obj rest.Object) (*resource.Object, error) {
	created := false
	defer func() { // also if a strategy panics
		if !created {
			w.releaseAllocated()
		}
	}()
	m, err := w.mutation(ctx, obj, nil)
	if err != nil {
		return nil, err
	}
	// A value that is not a revision is ignored, as the server sets resourceVersion. So is any
	// value in a dry run: kube-apiserver checks it where it writes to etcd.
	if rev, err := strconv.ParseUint(obj.GetResourceVersion(), 10, 64); err == nil && rev != 0 && !w.dryRun {
		return nil, errors.New("resourceVersion should not be set on objects to be created")
	}
	o, err := w.store(ctx, m)
	created = err == nil
	return o, err
}

// store stores a new object, or checks for a dry run that its name is free.
func (w *write) store(ctx context.Context, m resource.Mutation) (*resource.Object, error) {
	if !w.dryRun {
		return w.res.Store.Create(ctx, w.key, m.Object, m.TTL)
	}
	switch _, err := w.res.Store.Get(ctx, w.key, resource.At{}); {
	case err == nil:
		return nil, apierrors.NewAlreadyExists(w.res.GroupResource(), w.key.Name)
	case !apierrors.IsNotFound(err):
		return nil, err
	}
	return m.Object, nil
}

// explainExists completes the message of an AlreadyExists error: with a generateName the
// client may retry (also if it set the name), and an object may be terminating.
func (w *write) explainExists(ctx context.Context, err error, generated bool) error {
	if !apierrors.IsAlreadyExists(err) {
		return err
	}
	gr := w.res.GroupResource()
	exists := apierrors.NewAlreadyExists(gr, w.key.Name)
	if generated {
		exists = apierrors.NewGenerateNameConflict(gr, w.key.Name, 1)
	}
	cur, err := w.res.Store.Get(ctx, w.key, resource.At{})
	if err == nil && cur.Terminating() {
		exists.ErrStatus.Message = fmt.Sprintf("object is being deleted: %s", exists.ErrStatus.Message)
	}
	return exists
}
