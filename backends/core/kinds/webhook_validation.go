package kinds

import (
	"fmt"
	"net/url"
	"reflect"
	"slices"
	"strings"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	metav1validation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"portico/resource/rest"
)

// webhookRules are the rules that an update relaxes when the stored object
// already breaks them, so that it can still be updated.
type webhookRules struct {
	noSideEffects, knownReviewVersion, uniqueNames, strictSelectors, matchConditions bool
}

func validateWebhooks[T rest.Object](config T) field.ErrorList {
	return checkWebhooks(hooksOf(config), webhookRules{true, true, true, true, true})
}

func validateWebhooksUpdate[T rest.Object](config, oldConfig T) field.ErrorList {
	hooks, old := hooksOf(config), hooksOf(oldConfig)
	rules := webhookRules{true, true, true, true, len(hooks) != len(old)}
	names := map[string]bool{}
	for i, h := range old {
		rules.noSideEffects = rules.noSideEffects && hasNoSideEffects(h.sideEffects)
		rules.knownReviewVersion = rules.knownReviewVersion && (len(h.reviewVersions) == 0 || hasKnownReviewVersion(h.reviewVersions))
		rules.uniqueNames = rules.uniqueNames && !names[h.name]
		names[h.name] = true
		rules.strictSelectors = rules.strictSelectors && !hasInvalidLabelValue(*h.namespaceSelector) && !hasInvalidLabelValue(*h.objectSelector)
		rules.matchConditions = rules.matchConditions || !reflect.DeepEqual(hooks[i].matchConditions, h.matchConditions)
	}
	return checkWebhooks(hooks, rules)
}

func checkWebhooks(hooks []*webhook, rules webhookRules) field.ErrorList {
	var errs field.ErrorList
	names := map[string]bool{}
	for i, h := range hooks {
		path := field.NewPath("webhooks").Index(i)
		errs = append(errs, checkWebhook(h, rules, path)...)
		errs = append(errs, checkReviewVersions(h.reviewVersions, rules.knownReviewVersion, path.Child("admissionReviewVersions"))...)
		if rules.uniqueNames && h.name != "" {
			if names[h.name] {
				errs = append(errs, field.Duplicate(path.Child("name"), h.name))
			}
			names[h.name] = true
		}
	}
	return errs
}

func checkWebhook(h *webhook, rules webhookRules, path *field.Path) field.ErrorList {
	errs := validation.IsFullyQualifiedName(path.Child("name"), h.name)
	for i := range h.rules {
		errs = append(errs, validateRuleWithOperations(&h.rules[i], path.Child("rules").Index(i))...)
	}
	if p := *h.failurePolicy; p != nil {
		errs = append(errs, validateFailurePolicy(*p, path.Child("failurePolicy"))...)
	}
	if p := *h.matchPolicy; p != nil {
		errs = append(errs, validateMatchPolicy(*p, path.Child("matchPolicy"))...)
	}
	errs = append(errs, checkSideEffects(h.sideEffects, rules.noSideEffects, path.Child("sideEffects"))...)
	if t := *h.timeoutSeconds; t != nil && (*t < 1 || *t > 30) {
		errs = append(errs, field.Invalid(path.Child("timeoutSeconds"), *t, "the timeout value must be between 1 and 30 seconds"))
	}
	options := metav1validation.LabelSelectorValidationOptions{AllowInvalidLabelValueInSelector: !rules.strictSelectors}
	errs = append(errs, metav1validation.ValidateLabelSelector(*h.namespaceSelector, options, path.Child("namespaceSelector"))...)
	errs = append(errs, metav1validation.ValidateLabelSelector(*h.objectSelector, options, path.Child("objectSelector"))...)
	if h.reinvocation != nil {
		errs = append(errs, validateReinvocation(*h.reinvocation, path.Child("reinvocationPolicy"))...)
	}
	errs = append(errs, checkWebhookClient(h.client, path.Child("clientConfig"))...)
	if rules.matchConditions {
		errs = append(errs, validateMatchConditions(h.matchConditions, path.Child("matchConditions"))...)
	}
	return errs
}

func hasNoSideEffects(s *admissionregistrationv1.SideEffectClass) bool {
	return s != nil && (*s == admissionregistrationv1.SideEffectClassNone || *s == admissionregistrationv1.SideEffectClassNoneOnDryRun)
}

func checkSideEffects(s *admissionregistrationv1.SideEffectClass, none bool, path *field.Path) field.ErrorList {
	allowed := []admissionregistrationv1.SideEffectClass{
		admissionregistrationv1.SideEffectClassNone, admissionregistrationv1.SideEffectClassNoneOnDryRun,
	}
	if !none {
		allowed = append(allowed, admissionregistrationv1.SideEffectClassSome, admissionregistrationv1.SideEffectClassUnknown)
	}
	if s == nil {
		names := make([]string, len(allowed))
		for i, a := range allowed {
			names[i] = string(a)
		}
		return field.ErrorList{field.Required(path, "must specify one of "+strings.Join(names, ", "))}
	}
	return validateSupported(*s, path, allowed...)
}

// hasKnownReviewVersion says whether the versions include one that the
// admission engine can send.
func hasKnownReviewVersion(versions []string) bool {
	return slices.Contains(versions, "v1") || slices.Contains(versions, "v1beta1")
}

func checkReviewVersions(versions []string, known bool, path *field.Path) field.ErrorList {
	const accepted = "v1, v1beta1"
	if len(versions) == 0 {
		return field.ErrorList{field.Required(path, "must specify one of "+accepted)}
	}
	var errs field.ErrorList
	for i, v := range versions {
		if slices.Contains(versions[:i], v) {
			errs = append(errs, field.Invalid(path.Index(i), v, "duplicate version"))
			continue
		}
		errs = append(errs, invalid(path.Index(i), v, validation.IsDNS1035Label(v))...)
	}
	if known && !hasKnownReviewVersion(versions) {
		errs = append(errs, field.Invalid(path, versions, "must include at least one of "+accepted))
	}
	return errs
}

func hasInvalidLabelValue(s *metav1.LabelSelector) bool {
	return s != nil && len(metav1validation.ValidateLabelSelector(s, metav1validation.LabelSelectorValidationOptions{}, nil)) > 0
}

func checkWebhookClient(c *admissionregistrationv1.WebhookClientConfig, path *field.Path) field.ErrorList {
	switch {
	case (c.URL == nil) == (c.Service == nil):
		return field.ErrorList{field.Required(path, "exactly one of url or service is required")}
	case c.URL != nil:
		return checkWebhookURL(*c.URL, path.Child("url"))
	}
	return checkWebhookService(c.Service, path.Child("service"))
}

func checkWebhookURL(text string, path *field.Path) field.ErrorList {
	const form = "; desired format: https://host[/path]"
	u, err := url.Parse(text)
	if err != nil {
		return field.ErrorList{field.Required(path, "url must be a valid URL: "+err.Error()+form)}
	}
	var errs field.ErrorList
	refuse := func(bad bool, part, why string) {
		if bad {
			errs = append(errs, field.Invalid(path, part, why))
		}
	}
	refuse(u.Scheme != "https", u.Scheme, "'https' is the only allowed URL scheme"+form)
	refuse(u.Host == "", u.Host, "host must be specified"+form)
	if u.User != nil {
		refuse(true, u.User.Username(), "user information is not permitted in the URL")
	}
	refuse(u.Fragment != "", u.Fragment, "fragments are not permitted in the URL")
	refuse(u.RawQuery != "", u.RawQuery, "query parameters are not permitted in the URL")
	return errs
}

func checkWebhookService(s *admissionregistrationv1.ServiceReference, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	if s.Name == "" {
		errs = append(errs, field.Required(path.Child("name"), ""))
	}
	if s.Namespace == "" {
		errs = append(errs, field.Required(path.Child("namespace"), ""))
	}
	if s.Port != nil {
		if bad := validation.IsValidPortNum(int(*s.Port)); bad != nil {
			errs = append(errs, field.Invalid(path.Child("port"), *s.Port, "port is not valid: "+strings.Join(bad, ", ")))
		}
	}
	if s.Path != nil {
		errs = append(errs, checkWebhookPath(*s.Path, path.Child("path"))...)
	}
	return errs
}

// checkWebhookPath takes paths made of DNS-like segments, a closing slash
// included.
func checkWebhookPath(text string, path *field.Path) field.ErrorList {
	switch text {
	case "", "/":
		return nil
	case "//":
		return field.ErrorList{field.Invalid(path, text, "segment[0] may not be empty")}
	}
	var errs field.ErrorList
	if !strings.HasPrefix(text, "/") {
		errs = append(errs, field.Invalid(path, text, "must start with a '/'"))
	}
	for i, step := range strings.Split(strings.TrimSuffix(text[1:], "/"), "/") {
		if step == "" {
			errs = append(errs, field.Invalid(path, text, fmt.Sprintf("segment[%d] may not be empty", i)))
			continue
		}
		for _, complaint := range validation.IsDNS1123Subdomain(step) {
			errs = append(errs, field.Invalid(path, text, fmt.Sprintf("segment[%d]: %v", i, complaint)))
		}
	}
	return errs
}
