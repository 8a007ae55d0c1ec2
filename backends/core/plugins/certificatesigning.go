package plugins

import (
	"bytes"
	"context"
	"fmt"

	certificatesv1 "k8s.io/api/certificates/v1"
	"k8s.io/apimachinery/pkg/api/equality"

	"portico/resource/rest"
)

// newCertificateSigning permits changes of the certificate and the conditions by
// certificatesigningrequests/status to users that may sign for the signer of the stored request.
func newCertificateSigning(cfg *Config) (rest.Admission, error) {
	return validates(func(ctx context.Context, a *rest.Attributes) error {
		if a.Operation != rest.Update || a.Action.Subresource != "status" {
			return nil
		}
		old, stored := a.Old.(*certificatesv1.CertificateSigningRequest)
		r, ok := a.Object.(*certificatesv1.CertificateSigningRequest)
		if !stored || !ok {
			return forbidden(a, fmt.Errorf("expected type CertificateSigningRequest, got: %T", a.Object))
		}
		if bytes.Equal(r.Status.Certificate, old.Status.Certificate) && equality.Semantic.DeepEqual(r.Status.Conditions, old.Status.Conditions) {
			return nil
		}
		return maySigner(ctx, cfg, a, "sign", old.Spec.SignerName, "sign requests with signerName")
	}), nil
}
