package authz

import (
	"context"
	"strings"

	certificatesv1 "k8s.io/api/certificates/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"portico/resource"
)

// AskSigner asks whether a user may approve, attest or sign (the verb) for a signer of
// certificates.k8s.io. Roles grant it for the name of the signer or for its whole domain
// ("example.com/*"), on the resource signers, which has no objects. ask is Ask for some gateway;
// its error is returned.
func AskSigner(ctx context.Context, ask func(context.Context, *resource.Action) error, user *resource.User, verb, signer string) error {
	a := &resource.Action{
		User: user, Verb: verb, IsResource: true, Group: certificatesv1.GroupName, Version: "*", Resource: "signers", Name: signer, InPath: true,
	}
	err := ask(ctx, a)
	if !apierrors.IsForbidden(err) {
		return err
	}
	domain, _, _ := strings.Cut(signer, "/")
	whole := *a
	whole.Name = domain + "/*"
	return ask(ctx, &whole)
}
