package handlers

import (
	"context"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"portico/resource"
	"portico/resource/rest"
)

// DeleteObject deletes a stored object as a request by user would, by the same
// rules: finalizers are waited for, admission is asked. It is for controllers
// of the server itself. An object that is another one by now is left alone; its
// error is a Conflict, and that of one that is gone is NotFound.
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
