package plugins

import (
	"context"
	"fmt"

	certificatesv1 "k8s.io/api/certificates/v1"
	"k8s.io/apimachinery/pkg/api/equality"

	"portico/resource/rest"
)

// newClusterTrustBundleAttest permits writes of the trust anchors of a signer to users that may
// attest for it. Its owners and finalizers alone may be changed without, so that the bundle can
// be collected as garbage.
func newClusterTrustBundleAttest(cfg *Config) (rest.Admission, error) {
	return validates(func(ctx context.Context, a *rest.Attributes) error {
		if a.Operation != rest.Create && a.Operation != rest.Update {
			return nil
		}
		b, ok := a.Object.(*certificatesv1.ClusterTrustBundle)
		if !ok {
			return forbidden(a, fmt.Errorf("expected type ClusterTrustBundle, got: %T", a.Object))
		}
		if b.Spec.SignerName == "" {
			return nil
		}
		if old, ok := a.Old.(*certificatesv1.ClusterTrustBundle); ok {
			same := b.DeepCopy()
			same.OwnerReferences, same.Finalizers, same.ManagedFields = old.OwnerReferences, old.Finalizers, old.ManagedFields
			if equality.Semantic.DeepEqual(same, old) {
				return nil
			}
		}
		return maySigner(ctx, cfg, a, "attest", b.Spec.SignerName, "attest for signerName")
	}), nil
}
