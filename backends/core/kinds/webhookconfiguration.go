package kinds

import (
	"context"
	"fmt"
	"maps"
	"net/url"
	"reflect"
	"slices"
	"strings"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	metav1validation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/apiserver/pkg/admission/plugin/manifest"
	webhookutil "k8s.io/apiserver/pkg/util/webhook"

	"portico/backends/core/kinds/rules"
	"portico/resource"
	"portico/resource/rest"
)

// admissionInfo returns the description of a cluster-scoped resource of
// admissionregistration.k8s.io/v1.
func admissionInfo(plural, kind string) resource.Info {
	return resource.Info{
		Group: admissionregistrationv1.GroupName, Versions: []string{"v1"}, Resource: plural, Kind: kind,
		Categories: []string{"api-extensions"},
	}
}

// apiName is the rule for names of new objects of admissionregistration.k8s.io/v1: the names of static manifests are
// reserved.
func apiName(name string, prefix bool) []string {
	errs := apivalidation.NameIsDNSSubdomain(name, prefix)
	if strings.HasSuffix(name, manifest.StaticConfigSuffix) {
		errs = append(errs, fmt.Sprintf("names ending with %q are reserved for static manifest-based configurations and cannot be managed via the API",
			manifest.StaticConfigSuffix))
	}
	return errs
}

// webhookConfigurations is the row of ValidatingWebhookConfiguration or
// MutatingWebhookConfiguration.
func webhookConfigurations[T rest.Object](scheme *runtime.Scheme, plural, kind string) *rest.Kind {
	return &rest.Kind{
		Codec: storedWebhooks{rest.Typed(scheme, admissionregistrationv1.SchemeGroupVersion.WithKind(kind)).(rest.Versioned)},
		Info:  admissionInfo(plural, kind),
		Strategy: rest.Strategy{
			LooseFinalizers: true,
			ValidateName:    apiName,
			Default: onDefault(func(c T) {
				for _, h := range hooksOf(c) {
					defaultWebhook(h)
				}
			}),
			TrackGeneration: true,
			SpecChanged:     changed(webhooksChanged[T]),
			Validate:        check(validateWebhooks[T]),
			ValidateUpdate:  checkUpdate(validateWebhooksUpdate[T]),
			Warnings:        func(_ context.Context, obj, _ rest.Object) []string { return warnOfExcludedResources(obj) },
		},
		Columns: []metav1.TableColumnDefinition{nameColumn(), column("Webhooks", "integer", "The number of webhooks."), ageColumn()},
		Cells: cells(func(c T) []any {
			return []any{c.GetName(), int64(len(hooksOf(c))), age(c.GetCreationTimestamp())}
		}),
	}
}

// webhook has pointers to the fields that both kinds of webhook have, so that defaults and
// validation are written once.
type webhook struct {
	name                              string
	client                            *admissionregistrationv1.WebhookClientConfig
	rules                             []admissionregistrationv1.RuleWithOperations
	failurePolicy                     **admissionregistrationv1.FailurePolicyType
	matchPolicy                       **admissionregistrationv1.MatchPolicyType
	namespaceSelector, objectSelector **metav1.LabelSelector
	sideEffects                       **admissionregistrationv1.SideEffectClass
	timeoutSeconds                    **int32
	reviewVersions                    *[]string
	matchConditions                   []admissionregistrationv1.MatchCondition
	reinvocation                      **admissionregistrationv1.ReinvocationPolicyType // nil: validating
}

func validatingHook(h *admissionregistrationv1.ValidatingWebhook) *webhook {
	return &webhook{
		name: h.Name, client: &h.ClientConfig, rules: h.Rules, failurePolicy: &h.FailurePolicy, matchPolicy: &h.MatchPolicy,
		namespaceSelector: &h.NamespaceSelector, objectSelector: &h.ObjectSelector, sideEffects: &h.SideEffects,
		timeoutSeconds: &h.TimeoutSeconds, reviewVersions: &h.AdmissionReviewVersions, matchConditions: h.MatchConditions,
	}
}

func mutatingHook(h *admissionregistrationv1.MutatingWebhook) *webhook {
	return &webhook{
		name: h.Name, client: &h.ClientConfig, rules: h.Rules, failurePolicy: &h.FailurePolicy, matchPolicy: &h.MatchPolicy,
		namespaceSelector: &h.NamespaceSelector, objectSelector: &h.ObjectSelector, sideEffects: &h.SideEffects,
		timeoutSeconds: &h.TimeoutSeconds, reviewVersions: &h.AdmissionReviewVersions, matchConditions: h.MatchConditions,
		reinvocation: &h.ReinvocationPolicy,
	}
}

// hooksOf returns the webhooks of either kind of configuration.
func hooksOf(config rest.Object) []*webhook {
	var all []*webhook
	switch c := config.(type) {
	case *admissionregistrationv1.ValidatingWebhookConfiguration:
		for i := range c.Webhooks {
			all = append(all, validatingHook(&c.Webhooks[i]))
		}
	case *admissionregistrationv1.MutatingWebhookConfiguration:
		for i := range c.Webhooks {
			all = append(all, mutatingHook(&c.Webhooks[i]))
		}
	}
	return all
}

// excludedResources are the resources that admission webhooks do not intercept, by group, as in
// kubernetes pkg/kubeapiserver/admission/exclusion.
var excludedResources = map[string][]string{
	"authentication.k8s.io": {"selfsubjectreviews", "tokenreviews"},
	"authorization.k8s.io":  {"localsubjectaccessreviews", "selfsubjectaccessreviews", "selfsubjectrulesreviews", "subjectaccessreviews"},
}

// warnOfExcludedResources returns a warning for each excluded resource that a rule without * names.
func warnOfExcludedResources(config rest.Object) (warnings []string) {
	for i, h := range hooksOf(config) {
		for j, rule := range h.rules {
			for _, name := range excludedByRule(rule) {
				warnings = append(warnings, fmt.Sprintf("webhooks[%d].rules[%d]: %s is excluded from admission webhooks; this rule will have no effect", i, j, name))
			}
		}
	}
	return warnings
}

// excludedByRule returns the excluded resources that a rule without * names.
func excludedByRule(rule admissionregistrationv1.RuleWithOperations) (names []string) {
	if slices.Contains(rule.APIGroups, "*") || slices.Contains(rule.Resources, "*") {
		return nil
	}
	for _, group := range slices.Sorted(maps.Keys(excludedResources)) {
		if !slices.Contains(rule.APIGroups, group) {
			continue
		}
		for _, res := range excludedResources[group] {
			if slices.Contains(rule.Resources, res) {
				names = append(names, res+"."+group)
			}
		}
	}
	return names
}

// webhooksChanged tells empty lists from absent ones, as kube-apiserver does.
func webhooksChanged[T rest.Object](config, old T) bool {
	return !reflect.DeepEqual(hooksOf(config), hooksOf(old))
}

// defaultWebhook sets the defaults. sideEffects and admissionReviewVersions have none in v1:
// they are required.
func defaultWebhook(h *webhook) {
	rules.Default(h.failurePolicy, admissionregistrationv1.Fail)
	rules.Default(h.matchPolicy, admissionregistrationv1.Equivalent)
	rules.Default(h.namespaceSelector, metav1.LabelSelector{})
	rules.Default(h.objectSelector, metav1.LabelSelector{})
	rules.Default(h.timeoutSeconds, 10)
	if s := h.client.Service; s != nil {
		rules.Default(&s.Port, 443)
	}
	if h.reinvocation != nil {
		rules.Default(h.reinvocation, admissionregistrationv1.NeverReinvocationPolicy)
	}
	for i := range h.rules {
		defaultRule(&h.rules[i].Rule)
	}
}

// storedWebhooks is the codec of webhook configurations. It sets the defaults of v1beta1 in an object
// that is stored in that version, which has the JSON fields of v1 and other defaults.
type storedWebhooks struct{ rest.Versioned }

// DecodeStored implements rest.Codec.
func (c storedWebhooks) DecodeStored(o *resource.Object) (runtime.Object, error) {
	obj, err := c.Versioned.DecodeStored(o)
	if err != nil || o.APIVersion != "admissionregistration.k8s.io/v1beta1" {
		return obj, err
	}
	for _, h := range hooksOf(obj.(rest.Object)) {
		rules.Default(h.failurePolicy, admissionregistrationv1.Ignore)
		rules.Default(h.matchPolicy, admissionregistrationv1.Exact)
		rules.Default(h.timeoutSeconds, 30)
		rules.Default(h.sideEffects, admissionregistrationv1.SideEffectClassUnknown)
		if len(*h.reviewVersions) == 0 {
			*h.reviewVersions = []string{"v1beta1"}
		}
		defaultWebhook(h)
	}
	return obj, nil
}

func defaultRule(r *admissionregistrationv1.Rule) {
	rules.Default(&r.Scope, admissionregistrationv1.AllScopes)
}

// webhookRules are the rules that do not apply to an update of an object that violates them
// already.
type webhookRules struct {
	noSideEffects, knownReviewVersion, uniqueNames, strictSelectors, matchConditions bool
	cel                                                                              *celRules
}

func validateWebhooks[T rest.Object](config T) field.ErrorList {
	return checkWebhooks(hooksOf(config), webhookRules{true, true, true, true, true, newCELRules(false)})
}

func validateWebhooksUpdate[T rest.Object](config, oldConfig T) field.ErrorList {
	hooks, old := hooksOf(config), hooksOf(oldConfig)
	rules := webhookRules{true, true, true, true, len(hooks) != len(old), newCELRules(false)}
	names := map[string]bool{}
	for i, h := range old {
		rules.noSideEffects = rules.noSideEffects && hasNoSideEffects(*h.sideEffects)
		rules.knownReviewVersion = rules.knownReviewVersion && (len(*h.reviewVersions) == 0 || hasKnownReviewVersion(*h.reviewVersions))
		rules.uniqueNames = rules.uniqueNames && !names[h.name]
		names[h.name] = true
		rules.strictSelectors = rules.strictSelectors && !hasInvalidLabelValue(*h.namespaceSelector) && !hasInvalidLabelValue(*h.objectSelector)
		for _, c := range h.matchConditions {
			rules.cel.stored[c.Expression] = true
		}
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
		errs = append(errs, checkReviewVersions(*h.reviewVersions, rules.knownReviewVersion, path.Child("admissionReviewVersions"))...)
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
	errs = append(errs, checkSideEffects(*h.sideEffects, rules.noSideEffects, path.Child("sideEffects"))...)
	if t := *h.timeoutSeconds; t != nil && (*t < 1 || *t > 30) {
		errs = append(errs, field.Invalid(path.Child("timeoutSeconds"), *t, "the timeout value must be between 1 and 30 seconds"))
	}
	options := metav1validation.LabelSelectorValidationOptions{AllowInvalidLabelValueInSelector: !rules.strictSelectors}
	errs = append(errs, metav1validation.ValidateLabelSelector(*h.namespaceSelector, options, path.Child("namespaceSelector"))...)
	errs = append(errs, metav1validation.ValidateLabelSelector(*h.objectSelector, options, path.Child("objectSelector"))...)
	if p := h.reinvocation; p != nil && *p != nil {
		errs = append(errs, validateReinvocation(**p, path.Child("reinvocationPolicy"))...)
	}
	errs = append(errs, checkWebhookClient(h.client, path.Child("clientConfig"))...)
	if rules.matchConditions {
		errs = append(errs, validateMatchConditions(h.matchConditions, rules.cel, path.Child("matchConditions"))...)
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
		return field.ErrorList{field.Required(path, "must specify one of "+rules.Joined(allowed))}
	}
	return rules.Supported(*s, path, allowed...)
}

// hasKnownReviewVersion reports whether the versions include one that the admission engine
// can send.
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
		errs = append(errs, rules.Invalid(path.Index(i), v, validation.IsDNS1035Label(v))...)
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
	if (c.URL == nil) == (c.Service == nil) {
		return field.ErrorList{field.Required(path, "exactly one of url or service is required")}
	}
	if s := c.Service; s != nil {
		// As in kube-apiserver, the error of an empty name is at the namespace and vice versa.
		return webhookutil.ValidateWebhookService(path.Child("service"), s.Name, s.Namespace, s.Path, *s.Port)
	}
	if u, err := url.Parse(*c.URL); err == nil && u.User != nil {
		// Upstream's error would contain the password.
		return field.ErrorList{field.Invalid(path.Child("url"), u.User.Username(), "user information is not permitted in the URL")}
	}
	return webhookutil.ValidateWebhookURL(path.Child("url"), *c.URL, true)
}
