package main

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"slices"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	apireg "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"

	"portico/apiservice"
)

// giveBack leaves APIServices that an earlier register made, and this one does not
// ask for, to the gateway. Of what the Backend is asked for as a whole they stay, so
// that requests find a way all the time; the others go.
func (c *gatewayClient) giveBack(ctx context.Context, r *registration, out io.Writer) error {
	var list apireg.APIServiceList
	if err := c.get(ctx, apiServicesPath, &list); err != nil {
		return err
	}
	wanted := map[string]bool{}
	for _, a := range r.apiServices() {
		wanted[a.Name] = true
	}
	for i := range list.Items {
		name := list.Items[i].Name
		if wanted[name] || !madeByRegister(&list.Items[i], r.name) {
			continue
		}
		did, err := c.giveBackOne(ctx, r, name)
		if err != nil {
			return err
		}
		if did == updated {
			fmt.Fprintf(out, "apiservice %s left to the gateway\n", name)
		}
	}
	return nil
}

// giveBackOne gives one back as it is now: the gateway, which writes its condition, may
// have been faster than who listed it.
func (c *gatewayClient) giveBackOne(ctx context.Context, r *registration, name string) (did string, err error) {
	at := apiServicesPath + "/" + url.PathEscape(name)
	return attempt(func() (string, error) {
		var a apireg.APIService
		switch err := c.get(ctx, at, &a); {
		case apierrors.IsNotFound(err):
			return unchanged, nil
		case err != nil:
			return "", err
		case !madeByRegister(&a, r.name):
			return unchanged, nil
		}
		metav1.SetMetaDataLabel(&a.ObjectMeta, apiservice.AutomanagedLabel, apiservice.Managed)
		return updated, c.send(ctx, http.MethodPut, at, &a, nil)
	})
}

// madeByRegister reports whether an APIService leads to a Backend and is of this
// command alone: what somebody wrote otherwise, or changed since, is theirs.
func madeByRegister(a *apireg.APIService, backend string) bool {
	if a.Spec.Service != nil || a.Annotations[apiservice.BackendAnnotation] != backend || apiservice.IsAutomanaged(a) {
		return false
	}
	return len(a.ManagedFields) > 0 && !slices.ContainsFunc(a.ManagedFields, func(m metav1.ManagedFieldsEntry) bool {
		return m.Subresource == "" && m.Manager != userAgent
	})
}
