package kinds

import (
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	"k8s.io/kubernetes/pkg/registry/admissionregistration/mutatingadmissionpolicy"
	"k8s.io/kubernetes/pkg/registry/admissionregistration/mutatingadmissionpolicybinding"
	"k8s.io/kubernetes/pkg/registry/admissionregistration/mutatingwebhookconfiguration"
	"k8s.io/kubernetes/pkg/registry/admissionregistration/validatingadmissionpolicy"
	"k8s.io/kubernetes/pkg/registry/admissionregistration/validatingadmissionpolicybinding"
	"k8s.io/kubernetes/pkg/registry/admissionregistration/validatingwebhookconfiguration"

	"portico/resource"
)

// admissionRows are the resources of admissionregistration.k8s.io.
func admissionRows(cfg Config) []row {
	info := func(plural, kind string) resource.Info {
		i := clusterwide(admissionregistrationv1.GroupName, plural, kind)
		i.Categories = []string{"api-extensions"}
		return i
	}
	may, policies := cfg.authorizer(), policyGetter{cfg.Permissions}
	validating := validatingadmissionpolicy.NewStrategy(may, cfg.resolver())
	return []row{
		{Info: info("validatingwebhookconfigurations", "ValidatingWebhookConfiguration"), strategy: validatingwebhookconfiguration.Strategy},
		{Info: info("mutatingwebhookconfigurations", "MutatingWebhookConfiguration"), strategy: mutatingwebhookconfiguration.Strategy},
		{
			Info:     info("validatingadmissionpolicies", "ValidatingAdmissionPolicy"),
			strategy: validating, status: validatingadmissionpolicy.NewStatusStrategy(validating),
		},
		{
			Info:     info("validatingadmissionpolicybindings", "ValidatingAdmissionPolicyBinding"),
			strategy: validatingadmissionpolicybinding.NewStrategy(may, policies, cfg.resolver()),
		},
		{
			Info:     info("mutatingadmissionpolicies", "MutatingAdmissionPolicy"),
			strategy: mutatingadmissionpolicy.NewStrategy(may, cfg.resolver()),
		},
		{
			Info:     info("mutatingadmissionpolicybindings", "MutatingAdmissionPolicyBinding"),
			strategy: mutatingadmissionpolicybinding.NewStrategy(may, policies, cfg.resolver()),
		},
	}
}
