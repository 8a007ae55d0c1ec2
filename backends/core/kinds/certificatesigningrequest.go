package kinds

import (
	"bytes"
	"context"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"slices"
	"time"

	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/diff"
	"k8s.io/apimachinery/pkg/util/duration"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"portico/backends/core/kinds/rules"
	"portico/resource"
	"portico/resource/rest"
)

type (
	signingRequest = certificatesv1.CertificateSigningRequest
	csrCondition   = certificatesv1.CertificateSigningRequestCondition
)

const (
	// legacySigner is the signer of requests of earlier versions of the API.
	legacySigner = "kubernetes.io/legacy-unknown"
	// minCertificateSeconds is the shortest lifetime that a request may ask for.
	minCertificateSeconds = 600
)

// finalConditions are those that are never removed, and are always true. The first two are
// set through the subresource approval alone.
var finalConditions = []certificatesv1.RequestConditionType{
	certificatesv1.CertificateApproved, certificatesv1.CertificateDenied, certificatesv1.CertificateFailed,
}

var keyUsages = []certificatesv1.KeyUsage{
	certificatesv1.UsageAny, certificatesv1.UsageCertSign, certificatesv1.UsageClientAuth, certificatesv1.UsageCodeSigning,
	certificatesv1.UsageContentCommitment, certificatesv1.UsageCRLSign, certificatesv1.UsageDataEncipherment,
	certificatesv1.UsageDecipherOnly, certificatesv1.UsageDigitalSignature, certificatesv1.UsageEmailProtection,
	certificatesv1.UsageEncipherOnly, certificatesv1.UsageIPsecEndSystem, certificatesv1.UsageIPsecTunnel,
	certificatesv1.UsageIPsecUser, certificatesv1.UsageKeyAgreement, certificatesv1.UsageKeyEncipherment,
	certificatesv1.UsageMicrosoftSGC, certificatesv1.UsageNetscapeSGC, certificatesv1.UsageOCSPSigning,
	certificatesv1.UsageSMIME, certificatesv1.UsageServerAuth, certificatesv1.UsageSigning, certificatesv1.UsageTimestamping,
}

// certificateSigningRequests is the row of certificates.k8s.io/v1 CertificateSigningRequest.
func certificateSigningRequests() *rest.Kind {
	update := func(may csrRights) func(context.Context, rest.Object, rest.Object) field.ErrorList {
		return checkUpdate(func(r, old *signingRequest) field.ErrorList { return validateSigningRequestUpdate(r, old, may) })
	}
	return &rest.Kind{
		Info: resource.Info{
			Group: certificatesv1.GroupName, Versions: []string{"v1"}, Resource: "certificatesigningrequests",
			Kind: "CertificateSigningRequest", ShortNames: []string{"csr"},
		},
		Strategy: rest.Strategy{
			ValidateName:  func(string, bool) []string { return nil },
			PrepareCreate: prepareSigningRequest,
			PrepareUpdate: onUpdate(func(r, old *signingRequest) {
				old.Spec.DeepCopyInto(&r.Spec)
				old.Status.DeepCopyInto(&r.Status)
			}),
			Resets:         []string{"spec", "status"},
			Validate:       check(func(r *signingRequest) field.ErrorList { return validateSigningRequest(r, nil) }),
			ValidateUpdate: update(csrRights{}),
		},
		Subresources: []rest.Subresource{
			{Name: "approval", Strategy: &rest.Strategy{
				PrepareUpdate:  onUpdate(prepareApproval),
				Resets:         []string{"spec", "status.certificate"},
				ValidateUpdate: update(csrRights{approve: true}),
			}},
			{Name: "status", Strategy: &rest.Strategy{
				PrepareUpdate:  onUpdate(prepareSigningRequestStatus),
				Resets:         []string{"spec", "status.conditions"},
				ValidateUpdate: update(csrRights{issue: true}),
			}},
		},
		Columns: []metav1.TableColumnDefinition{
			nameColumn(), ageColumn(),
			column("SignerName", "string", "The signer that is asked for the certificate."),
			column("Requestor", "string", "The user that created the request."),
			column("RequestedDuration", "string", "The lifetime that is asked for."),
			column("Condition", "string", "Whether the request is approved, and what became of it."),
		},
		Cells:       cells(signingRequestCells),
		FieldLabels: []string{"spec.signerName"},
		Fields: fieldsOf(func(r *signingRequest) map[string]string {
			return map[string]string{"spec.signerName": r.Spec.SignerName}
		}),
		UnconditionalUpdate: true,
	}
}

func signingRequestCells(r *signingRequest) []any {
	signer, lifetime := r.Spec.SignerName, none
	if signer == "" {
		signer = none
	}
	if s := r.Spec.ExpirationSeconds; s != nil {
		lifetime = duration.HumanDuration(time.Duration(*s) * time.Second)
	}
	has := func(t certificatesv1.RequestConditionType) bool { return len(conditionsOf(r, t)) > 0 }
	state := "Pending"
	switch {
	case has(certificatesv1.CertificateDenied):
		state = "Denied"
	case has(certificatesv1.CertificateApproved):
		state = "Approved"
	}
	if has(certificatesv1.CertificateFailed) {
		state += ",Failed"
	}
	if len(r.Status.Certificate) > 0 {
		state += ",Issued"
	}
	return []any{r.Name, age(r.CreationTimestamp), signer, r.Spec.Username, lifetime, state}
}

// prepareSigningRequest sets the user of the request.
func prepareSigningRequest(ctx context.Context, obj rest.Object) {
	r := obj.(*signingRequest)
	r.Status = certificatesv1.CertificateSigningRequestStatus{}
	spec := &r.Spec
	spec.Username, spec.UID, spec.Groups, spec.Extra = "", "", nil, nil
	action := resource.ActionFrom(ctx)
	if action == nil || action.User == nil {
		return
	}
	spec.Username, spec.UID, spec.Groups = action.User.Name, action.User.UID, slices.Clone(action.User.Groups)
	for k, v := range action.User.Extra {
		if spec.Extra == nil {
			spec.Extra = map[string]certificatesv1.ExtraValue{}
		}
		spec.Extra[k] = slices.Clone(v)
	}
}

func prepareApproval(r, old *signingRequest) {
	setConditionTimes(r, old)
	conditions := r.Status.Conditions
	old.Spec.DeepCopyInto(&r.Spec)
	old.Status.DeepCopyInto(&r.Status)
	r.Status.Conditions = conditions
}

// prepareSigningRequestStatus keeps the approval and the denial, unless their number changes.
func prepareSigningRequestStatus(r, old *signingRequest) {
	old.Spec.DeepCopyInto(&r.Spec)
	for _, t := range finalConditions[:2] {
		kept := conditionsOf(old, t)
		if len(kept) != len(conditionsOf(r, t)) {
			continue
		}
		for i := range r.Status.Conditions {
			if r.Status.Conditions[i].Type == t {
				r.Status.Conditions[i], kept = kept[0], kept[1:]
			}
		}
	}
	setConditionTimes(r, old)
}

// setConditionTimes sets missing times. A status that does not change keeps its time.
func setConditionTimes(r, old *signingRequest) {
	now := metav1.Now()
	for i := range r.Status.Conditions {
		c := &r.Status.Conditions[i]
		if c.LastUpdateTime.IsZero() {
			c.LastUpdateTime = now
		}
		if !c.LastTransitionTime.IsZero() {
			continue
		}
		c.LastTransitionTime = now
		for _, was := range old.Status.Conditions {
			if was.Type == c.Type && was.Status == c.Status && !was.LastTransitionTime.IsZero() {
				c.LastTransitionTime = was.LastTransitionTime
				break
			}
		}
	}
}

func conditionsOf(r *signingRequest, t certificatesv1.RequestConditionType) []csrCondition {
	var all []csrCondition
	for _, c := range r.Status.Conditions {
		if c.Type == t {
			all = append(all, c)
		}
	}
	return all
}

// validateSigningRequest validates a request. old is nil on create; most mistakes of old may
// stay.
func validateSigningRequest(r, old *signingRequest) field.ErrorList {
	var was signingRequest
	if old != nil {
		was = *old
	}
	spec := field.NewPath("spec")
	var errs field.ErrorList
	if err := checkSigningRequest(r.Spec.Request); err != nil {
		errs = append(errs, field.Invalid(spec.Child("request"), r.Spec.Request, err.Error()))
	}
	errs = append(errs, validateKeyUsages(r.Spec.Usages, was.Spec.Usages, spec.Child("usages"))...)
	if signer := spec.Child("signerName"); r.Spec.SignerName == legacySigner && was.Spec.SignerName != legacySigner {
		errs = append(errs, field.Invalid(signer, r.Spec.SignerName, "the legacy signerName is not allowed via this API version"))
	} else {
		errs = append(errs, rules.SignerName(r.Spec.SignerName, signer)...)
	}
	if s := r.Spec.ExpirationSeconds; s != nil && *s < minCertificateSeconds {
		errs = append(errs, field.Invalid(spec.Child("expirationSeconds"), *s, "may not specify a duration less than 600 seconds (10 minutes)"))
	}
	errs = append(errs, validateSigningConditions(r.Status.Conditions, &was)...)
	if old == nil || !bytes.Equal(r.Status.Certificate, was.Status.Certificate) && checkCertificates(was.Status.Certificate) == nil {
		if err := checkCertificates(r.Status.Certificate); err != nil {
			errs = append(errs, field.Invalid(field.NewPath("status", "certificate"), "<certificate data>", err.Error()))
		}
	}
	return errs
}

// checkSigningRequest requires a signed PKCS#10 request in PEM.
func checkSigningRequest(data []byte) error {
	block, _ := pem.Decode(data)
	if block == nil || block.Type != "CERTIFICATE REQUEST" {
		return errors.New("PEM block type must be CERTIFICATE REQUEST")
	}
	parsed, err := x509.ParseCertificateRequest(block.Bytes)
	if err != nil {
		return err
	}
	return parsed.CheckSignature()
}

// checkCertificates requires certificates in PEM, if there is anything.
func checkCertificates(data []byte) error {
	for rest := data; len(rest) > 0; {
		block, after := pem.Decode(rest)
		if block == nil {
			if len(rest) == len(data) {
				return errors.New("must contain at least one CERTIFICATE PEM block")
			}
			return nil
		}
		if block.Type != "CERTIFICATE" {
			return fmt.Errorf("only CERTIFICATE PEM blocks are allowed, found %q", block.Type)
		}
		if len(block.Headers) > 0 {
			return errors.New("no PEM block headers are permitted")
		}
		parsed, err := x509.ParseCertificates(block.Bytes)
		if err != nil {
			return err
		}
		if len(parsed) == 0 {
			return errors.New("found CERTIFICATE PEM block containing 0 certificates")
		}
		rest = after
	}
	return nil
}

// validateKeyUsages permits unknown and repeated usages if there are some in was.
func validateKeyUsages(usages, was []certificatesv1.KeyUsage, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	if len(usages) == 0 {
		errs = append(errs, field.Required(path, ""))
	}
	unknownUsage := func(u certificatesv1.KeyUsage) bool { return !slices.Contains(keyUsages, u) }
	unknowns := slices.ContainsFunc(was, unknownUsage)
	repeats := repeated(was, func(u certificatesv1.KeyUsage) string { return string(u) })
	for i, u := range usages {
		if !unknowns {
			errs = append(errs, rules.Supported(u, path.Index(i), keyUsages...)...)
		}
		if !repeats && slices.Contains(usages[:i], u) {
			errs = append(errs, field.Duplicate(path.Index(i), u))
		}
	}
	return errs
}

// repeated reports whether two values of a list have the same key.
func repeated[T any](all []T, key func(T) string) bool {
	seen := map[string]bool{}
	for _, v := range all {
		if k := key(v); seen[k] {
			return true
		} else {
			seen[k] = true
		}
	}
	return false
}

func validateSigningConditions(conditions []csrCondition, was *signingRequest) field.ErrorList {
	var errs field.ErrorList
	path := field.NewPath("status", "conditions")
	has := func(t certificatesv1.RequestConditionType) bool { return len(conditionsOf(was, t)) > 0 }
	both := has(certificatesv1.CertificateApproved) && has(certificatesv1.CertificateDenied)
	repeats := repeated(was.Status.Conditions, func(c csrCondition) string { return string(c.Type) })
	seen := map[certificatesv1.RequestConditionType]bool{}
	for i, c := range conditions {
		at := path.Index(i)
		if c.Type == "" && !has("") {
			errs = append(errs, field.Required(at.Child("type"), ""))
		}
		statuses := []corev1.ConditionStatus{corev1.ConditionFalse, corev1.ConditionTrue, corev1.ConditionUnknown}
		if slices.Contains(finalConditions, c.Type) {
			statuses = statuses[1:2]
		}
		errs = append(errs, rules.Enum(c.Status, at.Child("status"), statuses...)...)
		if seen[c.Type] && !repeats {
			errs = append(errs, field.Duplicate(at.Child("type"), c.Type))
		}
		seen[c.Type] = true
	}
	if !both && seen[certificatesv1.CertificateApproved] && seen[certificatesv1.CertificateDenied] {
		const approved, denied = `conditions[{"type": "Approved"}]`, `conditions[{"type": "Denied"}]`
		errs = append(errs, field.Invalid(path, "{"+approved+", "+denied+"}",
			fmt.Sprintf("must specify at most one of: `%s`, `%s`", approved, denied)))
	}
	return errs
}

// csrRights is what an update may change besides metadata and other conditions.
type csrRights struct{ approve, issue bool }

func validateSigningRequestUpdate(r, old *signingRequest, may csrRights) field.ErrorList {
	errs := validateSigningRequest(r, old)
	forbid := func(name, format string, args ...any) {
		errs = append(errs, field.Forbidden(field.NewPath("status", name), fmt.Sprintf(format, args...)))
	}
	for _, t := range finalConditions {
		if len(conditionsOf(r, t)) < len(conditionsOf(old, t)) {
			forbid("conditions", "updates may not remove a condition of type %q", t)
		}
	}
	if !may.approve {
		for _, t := range finalConditions[:2] {
			switch now, was := conditionsOf(r, t), conditionsOf(old, t); {
			case len(now) > len(was):
				forbid("conditions", "updates may not add a condition of type %q", t)
			case len(now) == len(was) && !equality.Semantic.DeepEqual(was, now):
				forbid("conditions", "updates may not modify a condition of type %q\n%v", t, diff.Diff(was, now))
			}
		}
	}
	if !bytes.Equal(r.Status.Certificate, old.Status.Certificate) {
		switch {
		case !may.issue:
			forbid("certificate", "updates may not set certificate content")
		case len(old.Status.Certificate) > 0:
			forbid("certificate", "updates may not modify existing certificate content")
		}
	}
	return errs
}
