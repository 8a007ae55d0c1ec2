package kinds

import (
	"context"
	"crypto"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rsa"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"net/mail"
	"slices"
	"strings"
	"time"

	certificatesv1 "k8s.io/api/certificates/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	metav1validation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/utils/ptr"

	"portico/backends/core/kinds/rules"
	"portico/resource"
	"portico/resource/rest"
)

type podRequest = certificatesv1.PodCertificateRequest

const (
	daySeconds              = 24 * 60 * 60
	minPodCertificate       = 60 * 60
	maxPodCertificate       = 91 * daySeconds
	maxSystemPodCertificate = daySeconds // of the signers of kubernetes.io
	maxStubRequest          = 10 << 10
	maxCertificateChain     = 100 << 10
	maxUID                  = 128
)

// outcomes are the conditions that end a request.
var outcomes = []string{
	certificatesv1.PodCertificateRequestConditionTypeIssued, certificatesv1.PodCertificateRequestConditionTypeDenied,
	certificatesv1.PodCertificateRequestConditionTypeFailed,
}

// podCertificateRequests is the row of certificates.k8s.io/v1 PodCertificateRequest.
func podCertificateRequests(cfg Config) *rest.Kind {
	return &rest.Kind{
		Info: resource.Info{
			Group: certificatesv1.GroupName, Versions: []string{"v1"}, Resource: "podcertificaterequests", Kind: "PodCertificateRequest", Namespaced: true,
		},
		Strategy: rest.Strategy{
			Default:       onDefault(func(r *podRequest) { rules.Default(&r.Spec.MaxExpirationSeconds, daySeconds) }),
			PrepareCreate: onCreate(func(r *podRequest) { r.Status = certificatesv1.PodCertificateRequestStatus{} }),
			PrepareUpdate: onUpdate(func(r, old *podRequest) { old.Status.DeepCopyInto(&r.Status) }),
			Validate:      check(validatePodRequest),
			ValidateUpdate: checkUpdate(func(r, old *podRequest) field.ErrorList {
				return apivalidation.ValidateImmutableField(r.Spec, old.Spec, field.NewPath("spec"))
			}),
		},
		Subresources: []rest.Subresource{{Name: "status", Strategy: &rest.Strategy{
			Resets: []string{"metadata", "spec"},
			PrepareUpdate: onUpdate(func(r, old *podRequest) {
				old.Spec.DeepCopyInto(&r.Spec)
				metav1.ResetObjectMetaForStatus(&r.ObjectMeta, &old.ObjectMeta)
			}),
			ValidateUpdate: checkUpdateThen(validatePodRequestStatus, func(ctx context.Context, r, old *podRequest) field.ErrorList {
				if equality.Semantic.DeepEqual(r.Status, old.Status) {
					return nil
				}
				return cfg.signer(ctx, "sign", old.Spec.SignerName)
			}),
		}}},
		Columns: []metav1.TableColumnDefinition{
			nameColumn(),
			column("PodName", "string", "The pod that the certificate is for."),
			column("ServiceAccountName", "string", "The service account of the pod."),
			column("NodeName", "string", "The node of the pod."),
			column("SignerName", "string", "The signer that is asked for the certificate."),
			column("State", "string", "Pending, Issued, Denied or Failed."),
			column("UnverifiedUserAnnotations", "string", "What the user of the pod tells the signer."),
		},
		Cells: cells(func(r *podRequest) []any {
			state := "Pending"
			for _, c := range r.Status.Conditions {
				if slices.Contains(outcomes, c.Type) {
					state = c.Type
				}
			}
			s := r.Spec
			return []any{r.Name, s.PodName, s.ServiceAccountName, string(s.NodeName), s.SignerName, state, labels.FormatLabels(s.UnverifiedUserAnnotations)}
		}),
		FieldLabels: []string{"spec.nodeName", "spec.podName", "spec.signerName"},
		Fields: fieldsOf(func(r *podRequest) map[string]string {
			return map[string]string{"spec.nodeName": string(r.Spec.NodeName), "spec.podName": r.Spec.PodName, "spec.signerName": r.Spec.SignerName}
		}),
	}
}

func validatePodRequest(r *podRequest) field.ErrorList {
	path, spec := field.NewPath("spec"), &r.Spec
	errs := rules.SignerName(spec.SignerName, path.Child("signerName"))
	errs = append(errs, rules.UserAnnotations(spec.UnverifiedUserAnnotations, path.Child("unverifiedUserAnnotations"))...)
	for _, ref := range []struct{ object, name, uid string }{
		{"pod", spec.PodName, string(spec.PodUID)},
		{"serviceAccount", spec.ServiceAccountName, string(spec.ServiceAccountUID)},
		{"node", string(spec.NodeName), string(spec.NodeUID)},
	} {
		errs = append(errs, rules.Subdomain(ref.name, path.Child(ref.object+"Name"))...)
		switch uid := path.Child(ref.object + "UID"); {
		case ref.uid == "":
			errs = append(errs, field.Invalid(uid, ref.uid, "must not be empty"))
		case len(ref.uid) > maxUID:
			errs = append(errs, field.TooLong(uid, ref.uid, maxUID))
		}
	}
	longest := int32(maxPodCertificate)
	if rules.KubernetesSigner(spec.SignerName) {
		longest = maxSystemPodCertificate
	}
	if s := ptr.Deref(spec.MaxExpirationSeconds, 0); s < minPodCertificate || s > longest {
		errs = append(errs, field.Invalid(path.Child("maxExpirationSeconds"), s, fmt.Sprintf("must be in the range [%d, %d]", minPodCertificate, longest)))
	}
	if len(spec.StubPKCS10Request) == 0 {
		return append(errs, field.Invalid(path, field.OmitValueType{},
			"exactly one of (stubPKCS10Request) or (pkixPublicKey, proofOfPossession) must be set"))
	}
	return append(errs, validateStubRequest(spec.StubPKCS10Request, path.Child("stubPKCS10Request"))...)
}

// validateStubRequest requires a signed PKCS#10 request with a strong key. Nothing else in
// it is of interest.
func validateStubRequest(data []byte, path *field.Path) field.ErrorList {
	refuse := func(value any, message string) field.ErrorList {
		return field.ErrorList{field.Invalid(path, value, message)}
	}
	if len(data) > maxStubRequest {
		return field.ErrorList{field.TooLong(path, data, maxStubRequest)}
	}
	stub, err := x509.ParseCertificateRequest(data)
	if err != nil {
		return refuse(field.OmitValueType{}, "must be a valid PKCS#10 CSR")
	}
	switch key := stub.PublicKey.(type) {
	case ed25519.PublicKey:
	case *ecdsa.PublicKey:
		if key.Curve != elliptic.P256() && key.Curve != elliptic.P384() && key.Curve != elliptic.P521() {
			return refuse("curve "+key.Curve.Params().Name, "elliptic public keys must use curve P256, P384, or P521")
		}
	case *rsa.PublicKey:
		if bits := key.Size() * 8; bits != 3072 && bits != 4096 {
			return refuse(fmt.Sprintf("%d-bit modulus", bits), "RSA keys must have modulus size 3072 or 4096")
		}
	default:
		return refuse(field.OmitValueType{}, "unknown public key type; supported types are Ed25519, ECDSA, and RSA")
	}
	if stub.CheckSignature() != nil {
		return refuse(field.OmitValueType{}, "invalid signature")
	}
	return nil
}

// outcome returns the condition that ended a request, "" if none did.
func outcome(r *podRequest) string {
	for _, c := range r.Status.Conditions {
		if slices.Contains(outcomes, c.Type) && c.Status == metav1.ConditionTrue {
			return c.Type
		}
	}
	return ""
}

// validatePodRequestStatus permits one change of the status, which ends the request.
func validatePodRequestStatus(r, old *podRequest) field.ErrorList {
	errs := validateOutcomes(r.Status.Conditions)
	if len(errs) > 0 {
		return errs
	}
	keep := func(want certificatesv1.PodCertificateRequestStatus, message string) field.ErrorList {
		if equality.Semantic.DeepEqual(r.Status, want) {
			return nil
		}
		return field.ErrorList{field.Invalid(field.NewPath("status"), field.OmitValueType{}, message)}
	}
	if outcome(old) != "" {
		return keep(old.Status, "immutable after PodCertificateRequest is issued, denied, or failed")
	}
	switch outcome(r) {
	case "":
		return keep(old.Status, `status is immutable unless transitioning to "Issued", "Denied", or "Failed"`)
	case certificatesv1.PodCertificateRequestConditionTypeIssued:
		return validateIssued(r)
	}
	return keep(certificatesv1.PodCertificateRequestStatus{Conditions: r.Status.Conditions},
		"non-condition status fields must be empty when denying or failing the PodCertificateRequest")
}

// validateOutcomes permits at most one condition, which is one of the outcomes.
func validateOutcomes(conditions []metav1.Condition) field.ErrorList {
	var errs field.ErrorList
	known := 0
	for i, c := range conditions {
		path := field.NewPath("status", "conditions", fmt.Sprintf("[%d]", i))
		if !slices.Contains(outcomes, c.Type) {
			errs = append(errs, field.NotSupported(path.Child("type"), c.Type, outcomes))
			continue
		}
		if known++; known > 1 {
			errs = append(errs, field.Invalid(path.Child("type"), c.Type, `There may be at most one condition with type "Issued", "Denied", or "Failed"`))
		}
		errs = append(errs, rules.Supported(c.Status, path.Child("status"), metav1.ConditionTrue)...)
	}
	return append(errs, metav1validation.ValidateConditions(conditions, field.NewPath("status", "conditions"))...)
}

// validateIssued compares the times of the status and the key of the request with the leaf
// of the issued chain.
func validateIssued(r *podRequest) field.ErrorList {
	path, s := field.NewPath("status"), &r.Status
	chain := path.Child("certificateChain")
	if len(s.CertificateChain) > maxCertificateChain {
		return field.ErrorList{field.TooLong(chain, s.CertificateChain, maxCertificateChain)}
	}
	leaf, rest, message := parseLeaf(s.CertificateChain)
	if message != "" {
		return field.ErrorList{field.Invalid(chain, s.CertificateChain, message)}
	}
	errs := validateNames(leaf, chain)
	stub, err := x509.ParseCertificateRequest(r.Spec.StubPKCS10Request)
	if err != nil {
		return append(errs, field.Invalid(field.NewPath("spec", "stubPKCS10Request"), field.OmitValueType{}, "must be a valid PKCS#10 CSR"))
	}
	if key, ok := stub.PublicKey.(interface{ Equal(crypto.PublicKey) bool }); ok && !key.Equal(leaf.PublicKey) {
		return append(errs, field.Invalid(chain, s.CertificateChain, "leaf certificate was not issued to the requested public key"))
	}
	for _, t := range []struct {
		name, rule string
		value      *metav1.Time
	}{
		{"notBefore", "consistent with the issued certificate", s.NotBefore},
		{"notAfter", "consistent with the issued certificate", s.NotAfter},
		{"beginRefreshAt", "in the range [notbefore+10min, notafter-10min]", s.BeginRefreshAt},
	} {
		if t.value == nil {
			errs = append(errs, field.Required(path.Child(t.name), "must be present and "+t.rule))
		}
	}
	if len(errs) > 0 {
		return errs
	}
	if err := checkTimes(r, leaf, path); err != nil {
		return field.ErrorList{err}
	}
	for block, rest := pem.Decode(rest); block != nil; block, rest = pem.Decode(rest) {
		if block.Type != "CERTIFICATE" {
			return field.ErrorList{field.Invalid(chain, s.CertificateChain, "issued certificate chain must consist entirely of CERTFICATE PEM blocks")}
		}
		if _, err := x509.ParseCertificate(block.Bytes); err != nil {
			return field.ErrorList{field.Invalid(chain, s.CertificateChain, "intermediate certificate does not parse as valid X.509")}
		}
	}
	return nil
}

// parseLeaf returns the first certificate of a chain and what follows, or what is wrong.
func parseLeaf(chain string) (leaf *x509.Certificate, rest []byte, message string) {
	block, rest := pem.Decode([]byte(chain))
	if block == nil {
		return nil, nil, "issued certificate chain must contain at least one certificate"
	}
	if block.Type != "CERTIFICATE" {
		return nil, nil, "issued certificate chain must consist entirely of CERTIFICATE PEM blocks"
	}
	leaf, err := x509.ParseCertificate(block.Bytes)
	if err != nil {
		return nil, nil, "leaf certificate does not parse as valid X.509"
	}
	return leaf, rest, ""
}

// validateNames validates the alternative names of a certificate.
func validateNames(leaf *x509.Certificate, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	refuse := func(when bool, name, message string) {
		if when {
			errs = append(errs, field.Invalid(path, name, message))
		}
	}
	for _, name := range leaf.DNSNames {
		refuse(name == "", name, "leaf certificate should not contain empty DNSName")
		refuse(strings.Contains(name, ".."), name, "leaf certificate's DNSName should not contain '..'")
		refuse(strings.HasPrefix(name, ".") || strings.HasSuffix(name, "."), name, "leaf certificate's DNSName should not start or end with '.'")
	}
	for _, address := range leaf.EmailAddresses {
		_, err := mail.ParseAddress(address)
		refuse(err != nil, address, "leaf certificate should not contain invalid EmailAddress")
	}
	return errs
}

// checkTimes returns the first error of the times of the status and the lifetime of the
// certificate.
func checkTimes(r *podRequest, leaf *x509.Certificate, path *field.Path) *field.Error {
	before, after, refresh := r.Status.NotBefore.Time, r.Status.NotAfter.Time, r.Status.BeginRefreshAt.Time
	lifetime, longest := leaf.NotAfter.Sub(leaf.NotBefore), ptr.Deref(r.Spec.MaxExpirationSeconds, 0)
	now := time.Now()
	const skew, margin = 5 * time.Minute, 10 * time.Minute
	for _, rule := range []struct {
		ok      bool
		name    string
		value   any
		message string
	}{
		{before.Equal(leaf.NotBefore), "notBefore", before, "must be set to the NotBefore time encoded in the leaf certificate"},
		{before.After(now.Add(-skew)) && before.Before(now.Add(skew)), "notBefore", before, "must be set to within 5 minutes of kube-apiserver's current time"},
		{after.Equal(leaf.NotAfter), "notAfter", after, "must be set to the NotAfter time encoded in the leaf certificate"},
		{lifetime >= time.Hour, "certificateChain", lifetime, "leaf certificate lifetime must be >= 1 hour"},
		{lifetime <= time.Duration(longest)*time.Second, "certificateChain", lifetime,
			fmt.Sprintf("leaf certificate lifetime must be <= spec.maxExpirationSeconds (%v)", longest)},
		{!refresh.Before(before.Add(margin)), "beginRefreshAt", refresh, "must be at least 10 minutes after status.notBefore"},
		{!refresh.After(after.Add(-margin)), "beginRefreshAt", refresh, "must be at least 10 minutes before status.notAfter"},
	} {
		if !rule.ok {
			return field.Invalid(path.Child(rule.name), rule.value, rule.message)
		}
	}
	return nil
}
