package kinds

import (
	"crypto/x509"
	"encoding/pem"
	"fmt"

	certificatesv1 "k8s.io/api/certificates/v1"
	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"portico/backends/core/kinds/rules"
	"portico/resource"
	"portico/resource/rest"
)

const maxTrustBundle = 1 << 20

// clusterTrustBundles is the row of certificates.k8s.io/v1 ClusterTrustBundle.
func clusterTrustBundles() *rest.Kind {
	return &rest.Kind{
		Info: resource.Info{
			Group: certificatesv1.GroupName, Versions: []string{"v1"}, Resource: "clustertrustbundles", Kind: "ClusterTrustBundle",
		},
		Strategy: rest.Strategy{
			ValidateName: func(string, bool) []string { return nil }, // validateTrustBundleName does it
			Validate: check(func(b *certificatesv1.ClusterTrustBundle) field.ErrorList {
				return append(validateTrustBundleName(b), validateTrustAnchors(b.Spec.TrustBundle)...)
			}),
			ValidateUpdate: checkUpdate(func(b, old *certificatesv1.ClusterTrustBundle) field.ErrorList {
				errs := validateTrustBundleName(b)
				if b.Spec.TrustBundle != old.Spec.TrustBundle {
					errs = append(errs, validateTrustAnchors(b.Spec.TrustBundle)...)
				}
				return append(errs, apivalidation.ValidateImmutableField(b.Spec.SignerName, old.Spec.SignerName, field.NewPath("spec", "signerName"))...)
			}),
		},
		Columns: []metav1.TableColumnDefinition{nameColumn(), column("SignerName", "string", "The signer of which the bundle has the anchors.")},
		Cells: cells(func(b *certificatesv1.ClusterTrustBundle) []any {
			if b.Spec.SignerName == "" {
				return []any{b.Name, none}
			}
			return []any{b.Name, b.Spec.SignerName}
		}),
		FieldLabels: []string{"spec.signerName"},
		Fields: fieldsOf(func(b *certificatesv1.ClusterTrustBundle) map[string]string {
			return map[string]string{"spec.signerName": b.Spec.SignerName}
		}),
	}
}

// validateTrustBundleName validates the name of the signer and that of the bundle, which
// begins with it.
func validateTrustBundleName(b *certificatesv1.ClusterTrustBundle) field.ErrorList {
	signer := b.Spec.SignerName
	var errs field.ErrorList
	if b.GenerateName != "" {
		errs = rules.Invalid(field.NewPath("metadata", "generateName"), b.GenerateName, rules.TrustBundleName(b.GenerateName, signer, true))
	}
	if b.Name != "" {
		errs = append(errs, rules.Invalid(field.NewPath("metadata", "name"), b.Name, rules.TrustBundleName(b.Name, signer, false))...)
	}
	if signer != "" {
		errs = append(errs, rules.SignerName(signer, field.NewPath("spec", "signerName"))...)
	}
	return errs
}

// validateTrustAnchors requires certificates of authorities in PEM, each once.
func validateTrustAnchors(bundle string) field.ErrorList {
	path := field.NewPath("spec", "trustBundle")
	if len(bundle) > maxTrustBundle {
		return field.ErrorList{field.TooLong(path, "", maxTrustBundle)}
	}
	var errs field.ErrorList
	refuse := func(format string, args ...any) {
		errs = append(errs, field.Invalid(path, "<value omitted>", fmt.Sprintf(format, args...)))
	}
	anchors := map[string][]int{}
	block, rest := pem.Decode([]byte(bundle))
	for i := 0; block != nil; i++ {
		if message := trustAnchorMessage(block); message != "" {
			refuse("entry %d %s", i, message)
		}
		anchors[string(block.Bytes)] = append(anchors[string(block.Bytes)], i)
		block, rest = pem.Decode(rest)
	}
	if len(errs) > 0 {
		return errs
	}
	if len(anchors) == 0 {
		refuse("at least one trust anchor must be provided")
	}
	for _, entries := range anchors {
		if len(entries) > 1 {
			refuse("duplicate trust anchor (indices %v)", entries)
		}
	}
	return errs
}

// trustAnchorMessage says what is wrong with an entry of a bundle.
func trustAnchorMessage(block *pem.Block) string {
	if block.Type != "CERTIFICATE" {
		return "has bad block type: " + block.Type
	}
	if len(block.Headers) > 0 {
		return "has PEM block headers"
	}
	switch cert, err := x509.ParseCertificate(block.Bytes); {
	case err != nil:
		return "does not parse as X.509"
	case !cert.IsCA:
		return "does not have the CA bit set"
	case !cert.BasicConstraintsValid:
		return "has invalid basic constraints"
	}
	return ""
}
