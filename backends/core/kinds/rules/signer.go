package rules

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// maxSignerName is the length of a domain name, a slash, and a namespace with a name.
const maxSignerName = 2*validation.DNS1123SubdomainMaxLength + validation.DNS1123LabelMaxLength + 2

// SignerName requires the name of a signer of certificates: a domain, a slash and a path.
func SignerName(name string, path *field.Path) field.ErrorList {
	if name == "" {
		return field.ErrorList{field.Required(path, "")}
	}
	domain, rest, ok := strings.Cut(name, "/")
	if !ok || strings.Contains(rest, "/") {
		return field.ErrorList{field.Invalid(path, name, "must be a fully qualified domain and path of the form 'example.com/signer-name'")}
	}
	var errs field.ErrorList
	if len(domain) > validation.DNS1123SubdomainMaxLength {
		errs = append(errs, field.TooLong(path, "", validation.DNS1123SubdomainMaxLength))
	}
	errs = append(errs, firstWrong(domain, validation.IsDNS1123Label, path)...)
	if !strings.Contains(domain, ".") {
		errs = append(errs, field.Invalid(path, domain, "should be a domain with at least two segments separated by dots"))
	}
	errs = append(errs, firstWrong(rest, validation.IsDNS1123Subdomain, path)...)
	if len(name) > maxSignerName {
		errs = append(errs, field.TooLong(path, "", maxSignerName))
	}
	return errs
}

// firstWrong returns the errors of the first wrong part of a dotted name.
func firstWrong(name string, rule func(string) []string, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	for part := range strings.SplitSeq(name, ".") {
		for _, m := range rule(part) {
			errs = append(errs, field.Invalid(path, name, fmt.Sprintf("validating label %q: %s", part, m)))
		}
		if len(errs) > 0 {
			break
		}
	}
	return errs
}

// KubernetesSigner reports whether the name of a signer is of the domain kubernetes.io.
func KubernetesSigner(name string) bool {
	domain, _, _ := strings.Cut(name, "/")
	return domain == "kubernetes.io" || strings.HasSuffix(domain, ".kubernetes.io")
}

// TrustBundleName returns the errors of the name of a ClusterTrustBundle of a signer, "" for a
// bundle without one.
func TrustBundleName(name, signer string, prefix bool) []string {
	if signer == "" {
		if strings.Contains(name, ":") {
			return []string{`ClusterTrustBundle without signer name must not have ":" in its name`}
		}
		return apivalidation.NameIsDNSSubdomain(name, prefix)
	}
	required := strings.ReplaceAll(signer, "/", ":") + ":"
	rest, ok := strings.CutPrefix(name, required)
	if !ok {
		return []string{fmt.Sprintf("ClusterTrustBundle for signerName %s must be named with prefix %s", signer, required)}
	}
	return apivalidation.NameIsDNSSubdomain(rest, prefix)
}

// UserAnnotations returns the errors of the annotations of a request for a certificate.
func UserAnnotations(annotations map[string]string, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	for _, key := range slices.Sorted(maps.Keys(annotations)) {
		errs = append(errs, validation.IsDomainPrefixedKey(path, strings.ToLower(key))...)
	}
	if apivalidation.ValidateAnnotationsSize(annotations) != nil {
		errs = append(errs, field.TooLong(path, "", apivalidation.TotalAnnotationSizeLimitB))
	}
	return errs
}
