package kinds

import (
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"portico/resource"
	"portico/resource/rest"
)

// admissionInfo describes a cluster-scoped resource of
// admissionregistration.k8s.io/v1.
func admissionInfo(plural, kind string) resource.Info {
	return resource.Info{
		Group: admissionregistrationv1.GroupName, Versions: []string{"v1"}, Resource: plural, Kind: kind,
		Categories: []string{"api-extensions"},
	}
}

// validatingWebhookConfigurations is the row of ValidatingWebhookConfiguration.
func validatingWebhookConfigurations() *rest.Kind {
	type config = admissionregistrationv1.ValidatingWebhookConfiguration
	return &rest.Kind{
		Info: admissionInfo("validatingwebhookconfigurations", "ValidatingWebhookConfiguration"),
		Strategy: rest.Strategy{
			Default: onDefault(func(c *config) {
				for i := range c.Webhooks {
					h := &c.Webhooks[i]
					defaultWebhook(validatingHook(h))
				}
			}),
			TrackGeneration: true,
			SpecChanged: changed(func(c, old *config) bool {
				return !equality.Semantic.DeepEqual(c.Webhooks, old.Webhooks)
			}),
			Validate:       check(validateWebhooks[*config]),
			ValidateUpdate: checkUpdate(validateWebhooksUpdate[*config]),
		},
		Columns: webhookColumns(),
		Cells: cells(func(c *config) []any {
			return []any{c.Name, int64(len(c.Webhooks)), age(c.CreationTimestamp)}
		}),
	}
}

// mutatingWebhookConfigurations is the row of MutatingWebhookConfiguration.
func mutatingWebhookConfigurations() *rest.Kind {
	type config = admissionregistrationv1.MutatingWebhookConfiguration
	return &rest.Kind{
		Info: admissionInfo("mutatingwebhookconfigurations", "MutatingWebhookConfiguration"),
		Strategy: rest.Strategy{
			Default: onDefault(func(c *config) {
				for i := range c.Webhooks {
					h := &c.Webhooks[i]
					defaultWebhook(mutatingHook(h))
					if h.ReinvocationPolicy == nil {
						h.ReinvocationPolicy = new(admissionregistrationv1.NeverReinvocationPolicy)
					}
				}
			}),
			TrackGeneration: true,
			SpecChanged: changed(func(c, old *config) bool {
				return !equality.Semantic.DeepEqual(c.Webhooks, old.Webhooks)
			}),
			Validate:       check(validateWebhooks[*config]),
			ValidateUpdate: checkUpdate(validateWebhooksUpdate[*config]),
		},
		Columns: webhookColumns(),
		Cells: cells(func(c *config) []any {
			return []any{c.Name, int64(len(c.Webhooks)), age(c.CreationTimestamp)}
		}),
	}
}

func webhookColumns() []metav1.TableColumnDefinition {
	return []metav1.TableColumnDefinition{
		nameColumn(), column("Webhooks", "integer", "How many webhooks the configuration registers."), ageColumn(),
	}
}

// webhook is what both kinds of webhook have in common: pointers into one, so
// that defaults and checks are written once.
type webhook struct {
	name                              string
	client                            *admissionregistrationv1.WebhookClientConfig
	rules                             []admissionregistrationv1.RuleWithOperations
	failurePolicy                     **admissionregistrationv1.FailurePolicyType
	matchPolicy                       **admissionregistrationv1.MatchPolicyType
	namespaceSelector, objectSelector **metav1.LabelSelector
	sideEffects                       *admissionregistrationv1.SideEffectClass
	timeoutSeconds                    **int32
	reviewVersions                    []string
	matchConditions                   []admissionregistrationv1.MatchCondition
	reinvocation                      *admissionregistrationv1.ReinvocationPolicyType
}

func validatingHook(h *admissionregistrationv1.ValidatingWebhook) *webhook {
	return &webhook{
		name: h.Name, client: &h.ClientConfig, rules: h.Rules, failurePolicy: &h.FailurePolicy, matchPolicy: &h.MatchPolicy,
		namespaceSelector: &h.NamespaceSelector, objectSelector: &h.ObjectSelector, sideEffects: h.SideEffects,
		timeoutSeconds: &h.TimeoutSeconds, reviewVersions: h.AdmissionReviewVersions, matchConditions: h.MatchConditions,
	}
}

func mutatingHook(h *admissionregistrationv1.MutatingWebhook) *webhook {
	return &webhook{
		name: h.Name, client: &h.ClientConfig, rules: h.Rules, failurePolicy: &h.FailurePolicy, matchPolicy: &h.MatchPolicy,
		namespaceSelector: &h.NamespaceSelector, objectSelector: &h.ObjectSelector, sideEffects: h.SideEffects,
		timeoutSeconds: &h.TimeoutSeconds, reviewVersions: h.AdmissionReviewVersions, matchConditions: h.MatchConditions,
		reinvocation: h.ReinvocationPolicy,
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

// defaultWebhook fills in what v1 defaults. sideEffects and
// admissionReviewVersions have none there: authors must say.
func defaultWebhook(h *webhook) {
	if *h.failurePolicy == nil {
		*h.failurePolicy = new(admissionregistrationv1.Fail)
	}
	if *h.matchPolicy == nil {
		*h.matchPolicy = new(admissionregistrationv1.Equivalent)
	}
	if *h.namespaceSelector == nil {
		*h.namespaceSelector = &metav1.LabelSelector{}
	}
	if *h.objectSelector == nil {
		*h.objectSelector = &metav1.LabelSelector{}
	}
	if *h.timeoutSeconds == nil {
		*h.timeoutSeconds = new(int32(10))
	}
	if s := h.client.Service; s != nil && s.Port == nil {
		s.Port = new(int32(443))
	}
	for i := range h.rules {
		defaultRule(&h.rules[i].Rule)
	}
}

func defaultRule(r *admissionregistrationv1.Rule) {
	if r.Scope == nil {
		r.Scope = new(admissionregistrationv1.AllScopes)
	}
}
