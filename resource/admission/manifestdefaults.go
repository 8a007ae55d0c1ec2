package admission

import (
	"errors"
	"fmt"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
)

// setManifestDefaults sets the defaults of a static manifest, as the API does for stored objects. It returns an error for
// what would make the engines fail later.
func setManifestDefaults(obj runtime.Object) error {
	switch c := obj.(type) {
	case *admissionv1.ValidatingWebhookConfiguration:
		for i := range c.Webhooks {
			w := &c.Webhooks[i]
			err := defaultWebhook(&w.FailurePolicy, &w.MatchPolicy, &w.NamespaceSelector, &w.ObjectSelector, &w.TimeoutSeconds, w.Rules, w.SideEffects, w.AdmissionReviewVersions)
			if err != nil {
				return fmt.Errorf("webhook %q: %w", w.Name, err)
			}
		}
	case *admissionv1.MutatingWebhookConfiguration:
		for i := range c.Webhooks {
			w := &c.Webhooks[i]
			setDefault(&w.ReinvocationPolicy, admissionv1.NeverReinvocationPolicy)
			err := defaultWebhook(&w.FailurePolicy, &w.MatchPolicy, &w.NamespaceSelector, &w.ObjectSelector, &w.TimeoutSeconds, w.Rules, w.SideEffects, w.AdmissionReviewVersions)
			if err != nil {
				return fmt.Errorf("webhook %q: %w", w.Name, err)
			}
		}
	case *admissionv1.ValidatingAdmissionPolicy:
		setDefault(&c.Spec.FailurePolicy, admissionv1.Fail)
		return defaultConstraints(c.Name, c.Spec.MatchConstraints)
	case *admissionv1.MutatingAdmissionPolicy:
		setDefault(&c.Spec.FailurePolicy, admissionv1.Fail)
		if c.Spec.ReinvocationPolicy == "" {
			c.Spec.ReinvocationPolicy = admissionv1.NeverReinvocationPolicy
		}
		return defaultConstraints(c.Name, c.Spec.MatchConstraints)
	case *admissionv1.ValidatingAdmissionPolicyBinding:
		defaultMatch(c.Spec.MatchResources)
	case *admissionv1.MutatingAdmissionPolicyBinding:
		defaultMatch(c.Spec.MatchResources)
	}
	return nil
}

func setDefault[T comparable](field **T, value T) {
	if *field == nil {
		*field = &value
	}
}

func setSelector(field **metav1.LabelSelector) {
	if *field == nil {
		*field = &metav1.LabelSelector{}
	}
}

func defaultWebhook(failure **admissionv1.FailurePolicyType, match **admissionv1.MatchPolicyType, namespaces, objects **metav1.LabelSelector, timeout **int32,
	rules []admissionv1.RuleWithOperations, effects *admissionv1.SideEffectClass, versions []string) error {
	setDefault(failure, admissionv1.Fail)
	setDefault(match, admissionv1.Equivalent)
	setDefault(timeout, 10)
	setSelector(namespaces)
	setSelector(objects)
	for i := range rules {
		setDefault(&rules[i].Scope, admissionv1.AllScopes)
	}
	switch {
	case effects == nil:
		return errors.New("sideEffects is required")
	case len(versions) == 0:
		return errors.New("admissionReviewVersions is required")
	}
	return nil
}

func defaultConstraints(policy string, m *admissionv1.MatchResources) error {
	if m == nil || len(m.ResourceRules) == 0 {
		return fmt.Errorf("policy %q: spec.matchConstraints.resourceRules is required", policy)
	}
	defaultMatch(m)
	return nil
}

func defaultMatch(m *admissionv1.MatchResources) {
	if m == nil {
		return
	}
	setDefault(&m.MatchPolicy, admissionv1.Equivalent)
	setSelector(&m.NamespaceSelector)
	setSelector(&m.ObjectSelector)
	for _, rules := range [][]admissionv1.NamedRuleWithOperations{m.ResourceRules, m.ExcludeResourceRules} {
		for i := range rules {
			setDefault(&rules[i].Scope, admissionv1.AllScopes)
		}
	}
}
