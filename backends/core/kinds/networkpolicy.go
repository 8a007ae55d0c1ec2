package kinds

import (
	"iter"
	"reflect"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	metav1validation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
	netutils "k8s.io/utils/net"

	"portico/backends/core/kinds/rules"
	"portico/resource"
	"portico/resource/rest"
)

// networkPolicies is the row of networking.k8s.io/v1 NetworkPolicy.
func networkPolicies() *rest.Kind {
	return &rest.Kind{
		Info: resource.Info{
			Group: networkingv1.GroupName, Versions: []string{"v1"}, Resource: "networkpolicies", Kind: "NetworkPolicy",
			ShortNames: []string{"netpol"}, Namespaced: true,
		},
		Strategy: rest.Strategy{
			Default:         onDefault(defaultNetworkPolicy),
			TrackGeneration: true,
			// As in kube-apiserver, an empty list differs from none.
			SpecChanged: changed(func(np, old *networkingv1.NetworkPolicy) bool { return !reflect.DeepEqual(np.Spec, old.Spec) }),
			Validate: check(func(np *networkingv1.NetworkPolicy) field.ErrorList {
				return validateNetworkPolicySpec(&np.Spec, nil)
			}),
			ValidateUpdate: checkUpdate(func(np, old *networkingv1.NetworkPolicy) field.ErrorList {
				return validateNetworkPolicySpec(&np.Spec, &old.Spec)
			}),
			Warnings: warn(networkPolicyWarnings),
		},
		Columns: []metav1.TableColumnDefinition{
			nameColumn(), column("Pod-Selector", "string", "The labels of the pods to which the policy applies."), ageColumn(),
		},
		Cells: cells(func(np *networkingv1.NetworkPolicy) []any {
			return []any{np.Name, metav1.FormatLabelSelector(&np.Spec.PodSelector), age(np.CreationTimestamp)}
		}),
		UnconditionalUpdate: true,
	}
}

// policyRule is a rule for ingress or egress. peers is the path of its peers.
type policyRule struct {
	ports           []networkingv1.NetworkPolicyPort
	to              []networkingv1.NetworkPolicyPeer
	path, peersPath *field.Path
}

// policyRules returns the rules of both directions.
func policyRules(spec *networkingv1.NetworkPolicySpec) iter.Seq[policyRule] {
	return func(yield func(policyRule) bool) {
		for i, r := range spec.Ingress {
			path := field.NewPath("spec", "ingress").Index(i)
			if !yield(policyRule{r.Ports, r.From, path, path.Child("from")}) {
				return
			}
		}
		for i, r := range spec.Egress {
			path := field.NewPath("spec", "egress").Index(i)
			if !yield(policyRule{r.Ports, r.To, path, path.Child("to")}) {
				return
			}
		}
	}
}

// policyBlocks returns the blocks of addresses of all rules.
func policyBlocks(spec *networkingv1.NetworkPolicySpec) iter.Seq2[*field.Path, *networkingv1.IPBlock] {
	return func(yield func(*field.Path, *networkingv1.IPBlock) bool) {
		for r := range policyRules(spec) {
			for i, peer := range r.to {
				if peer.IPBlock != nil && !yield(r.peersPath.Index(i).Child("ipBlock"), peer.IPBlock) {
					return
				}
			}
		}
	}
}

func defaultNetworkPolicy(np *networkingv1.NetworkPolicy) {
	for r := range policyRules(&np.Spec) {
		for i := range r.ports {
			rules.Default(&r.ports[i].Protocol, corev1.ProtocolTCP)
		}
	}
	if len(np.Spec.PolicyTypes) == 0 {
		np.Spec.PolicyTypes = []networkingv1.PolicyType{networkingv1.PolicyTypeIngress}
		if len(np.Spec.Egress) > 0 {
			np.Spec.PolicyTypes = append(np.Spec.PolicyTypes, networkingv1.PolicyTypeEgress)
		}
	}
}

func networkPolicyWarnings(np *networkingv1.NetworkPolicy) []string {
	var warnings []string
	for path, block := range policyBlocks(&np.Spec) {
		warnings = append(warnings, validation.GetWarningsForCIDR(path.Child("cidr"), block.CIDR)...)
		for i, except := range block.Except {
			warnings = append(warnings, validation.GetWarningsForCIDR(path.Child("except").Index(i), except)...)
		}
	}
	return warnings
}

// validateNetworkPolicySpec validates a spec. old is nil on create; ranges of addresses that
// are in old may have any form, and label values of selectors if those of its pods have.
func validateNetworkPolicySpec(spec, old *networkingv1.NetworkPolicySpec) field.ErrorList {
	var loose metav1validation.LabelSelectorValidationOptions
	var known []string
	if old != nil {
		loose.AllowInvalidLabelValueInSelector = len(metav1validation.ValidateLabelSelector(&old.PodSelector, loose, nil)) > 0
		for _, block := range policyBlocks(old) {
			known = append(append(known, block.CIDR), block.Except...)
		}
	}
	path := field.NewPath("spec")
	errs := metav1validation.ValidateLabelSelector(&spec.PodSelector, loose, path.Child("podSelector"))
	for r := range policyRules(spec) {
		for i, port := range r.ports {
			errs = append(errs, validatePolicyPort(&port, r.path.Child("ports").Index(i))...)
		}
		for i, peer := range r.to {
			errs = append(errs, validatePolicyPeer(&peer, known, loose, r.peersPath.Index(i))...)
		}
	}
	types := path.Child("policyTypes")
	if len(spec.PolicyTypes) > 2 {
		return append(errs, field.Invalid(types, &spec.PolicyTypes, "may not specify more than two policyTypes"))
	}
	for i, t := range spec.PolicyTypes {
		errs = append(errs, rules.Supported(t, types.Index(i), networkingv1.PolicyTypeIngress, networkingv1.PolicyTypeEgress)...)
	}
	return errs
}

func validatePolicyPort(p *networkingv1.NetworkPolicyPort, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	if p.Protocol != nil {
		errs = rules.Supported(*p.Protocol, path.Child("protocol"), corev1.ProtocolTCP, corev1.ProtocolUDP, corev1.ProtocolSCTP)
	}
	end := func(wrong bool, message string) {
		if p.EndPort != nil && wrong {
			errs = append(errs, field.Invalid(path.Child("endPort"), *p.EndPort, message))
		}
	}
	switch {
	case p.Port == nil:
		end(true, "may not be specified when `port` is not specified")
	case p.Port.Type == intstr.String:
		end(true, "may not be specified when `port` is non-numeric")
		errs = append(errs, rules.Invalid(path.Child("port"), p.Port.StrVal, validation.IsValidPortName(p.Port.StrVal))...)
	default:
		errs = append(errs, rules.Invalid(path.Child("port"), p.Port.IntVal, validation.IsValidPortNum(p.Port.IntValue()))...)
		if p.EndPort != nil {
			end(*p.EndPort < p.Port.IntVal, "must be greater than or equal to `port`")
			errs = append(errs, rules.Invalid(path.Child("endPort"), *p.EndPort, validation.IsValidPortNum(int(*p.EndPort)))...)
		}
	}
	return errs
}

func validatePolicyPeer(p *networkingv1.NetworkPolicyPeer, known []string, loose metav1validation.LabelSelectorValidationOptions, path *field.Path,
) field.ErrorList {
	var errs field.ErrorList
	if p.PodSelector != nil {
		errs = append(errs, metav1validation.ValidateLabelSelector(p.PodSelector, loose, path.Child("podSelector"))...)
	}
	if p.NamespaceSelector != nil {
		errs = append(errs, metav1validation.ValidateLabelSelector(p.NamespaceSelector, loose, path.Child("namespaceSelector"))...)
	}
	if p.IPBlock != nil {
		errs = append(errs, validateIPBlock(p.IPBlock, known, path.Child("ipBlock"))...)
	}
	switch selects := p.PodSelector != nil || p.NamespaceSelector != nil; {
	case !selects && p.IPBlock == nil:
		errs = append(errs, field.Required(path, "must specify a peer"))
	case selects && p.IPBlock != nil:
		errs = append(errs, field.Forbidden(path, "may not specify both ipBlock and another peer"))
	}
	return errs
}

func validateIPBlock(b *networkingv1.IPBlock, known []string, path *field.Path) field.ErrorList {
	if b.CIDR == "" {
		return field.ErrorList{field.Required(path.Child("cidr"), "")}
	}
	errs := validation.IsValidCIDRForLegacyField(path.Child("cidr"), b.CIDR, true, known)
	_, block, err := netutils.ParseCIDRSloppy(b.CIDR)
	if err != nil {
		return errs
	}
	size, _ := block.Mask.Size()
	for i, text := range b.Except {
		at := path.Child("except").Index(i)
		errs = append(errs, validation.IsValidCIDRForLegacyField(at, text, true, known)...)
		_, except, err := netutils.ParseCIDRSloppy(text)
		if err != nil {
			continue
		}
		if n, _ := except.Mask.Size(); n <= size || !block.Contains(except.IP) {
			errs = append(errs, field.Invalid(at, text, "must be a strict subset of `cidr`"))
		}
	}
	return errs
}
