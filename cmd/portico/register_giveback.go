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
		a := &list.Items[i]
		if wanted[a.Name] || !madeByRegister(a, r.name) {
			continue
		}
		metav1.SetMetaDataLabel(&a.ObjectMeta, apiservice.AutomanagedLabel, apiservice.Managed)
		err := c.send(ctx, http.MethodPut, apiServicesPath+"/"+url.PathEscape(a.Name), a, nil)
		switch {
		case apierrors.IsNotFound(err), apierrors.IsConflict(err): // somebody else sees to it
		case err != nil:
			return err
		default:
			fmt.Fprintf(out, "apiservice %s left to the gateway\n", a.Name)
		}
	}
	return nil
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
