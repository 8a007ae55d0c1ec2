package plugins

import (
	"context"
	"fmt"

	certificatesv1 "k8s.io/api/certificates/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"portico/resource/authz"
	"portico/resource/rest"
)

// newCertificateApproval permits changes of certificatesigningrequests/approval to users that
// may approve for the signer of the stored request.
func newCertificateApproval(cfg *Config) (rest.Admission, error) {
	return validates(func(ctx context.Context, a *rest.Attributes) error {
		if a.Operation != rest.Update || a.Action.Subresource != "approval" {
			return nil
		}
		old, ok := a.Old.(*certificatesv1.CertificateSigningRequest)
		if !ok {
			return forbidden(a, fmt.Errorf("expected type CertificateSigningRequest, got: %T", a.Old))
		}
		return maySigner(ctx, cfg, a, "approve", old.Spec.SignerName, "approve requests with signerName")
	}), nil
}

// maySigner requires the right to do verb for a signer. what names it in the error.
func maySigner(ctx context.Context, cfg *Config, a *rest.Attributes, verb, signer, what string) error {
	err := authz.AskSigner(ctx, cfg.Authorize, a.Action.User, verb, signer)
	if !apierrors.IsForbidden(err) {
		return err
	}
	return forbidden(a, fmt.Errorf("user not permitted to %s %q", what, signer))
}
