package plugins

import (
	"context"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"slices"

	certificatesv1 "k8s.io/api/certificates/v1"

	"portico/resource"
	"portico/resource/rest"
)

// newCertificateSubjectRestriction refuses requests for client certificates of the group
// system:masters, which no role limits.
func newCertificateSubjectRestriction(*Config) (rest.Admission, error) {
	return validates(func(_ context.Context, a *rest.Attributes) error {
		if a.Operation != rest.Create || !whole(a) {
			return nil
		}
		r, ok := a.Object.(*certificatesv1.CertificateSigningRequest)
		if !ok {
			return forbidden(a, fmt.Errorf("expected type CertificateSigningRequest, got: %T", a.Object))
		}
		if r.Spec.SignerName != certificatesv1.KubeAPIServerClientSignerName {
			return nil
		}
		block, _ := pem.Decode(r.Spec.Request)
		if block == nil || block.Type != "CERTIFICATE REQUEST" {
			return forbidden(a, errors.New("failed to parse CSR: PEM block type must be CERTIFICATE REQUEST"))
		}
		parsed, err := x509.ParseCertificateRequest(block.Bytes)
		if err != nil {
			return forbidden(a, fmt.Errorf("failed to parse CSR: %w", err))
		}
		if slices.Contains(parsed.Subject.Organization, resource.GroupMasters) {
			return forbidden(a, fmt.Errorf("use of %s signer with %s group is not allowed", r.Spec.SignerName, resource.GroupMasters))
		}
		return nil
	}), nil
}
