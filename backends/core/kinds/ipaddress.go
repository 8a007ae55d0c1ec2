package kinds

import (
	"strings"

	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"portico/backends/core/kinds/rules"
	"portico/resource"
	"portico/resource/rest"
)

// ipAddresses is the row of networking.k8s.io/v1 IPAddress. Its name is the address.
func ipAddresses() *rest.Kind {
	return &rest.Kind{
		Info: resource.Info{
			Group: networkingv1.GroupName, Versions: []string{"v1"}, Resource: "ipaddresses", Kind: "IPAddress", ShortNames: []string{"ip"},
		},
		Strategy: rest.Strategy{
			ValidateName: func(name string, _ bool) []string {
				var messages []string
				for _, err := range validation.IsValidIP(nil, name) {
					messages = append(messages, err.Detail)
				}
				return messages
			},
			Validate: check(validateIPAddress),
			ValidateUpdate: checkUpdate(func(ip, old *networkingv1.IPAddress) field.ErrorList {
				return append(validateIPAddress(ip), rules.Immutable(ip.Spec.ParentRef, old.Spec.ParentRef, field.NewPath("spec", "parentRef"))...)
			}),
		},
		Columns: []metav1.TableColumnDefinition{nameColumn(), column("ParentRef", "string", "The object that uses the address.")},
		// The rows of kube-apiserver have an age as well, although no column does.
		Cells: cells(func(ip *networkingv1.IPAddress) []any {
			return []any{ip.Name, parentText(ip.Spec.ParentRef), age(ip.CreationTimestamp)}
		}),
		UnconditionalUpdate: true,
	}
}

func parentText(p *networkingv1.ParentReference) string {
	if p == nil {
		return none
	}
	text := strings.ToLower(schema.GroupResource{Group: p.Group, Resource: p.Resource}.String())
	if p.Namespace != "" {
		text += "/" + p.Namespace
	}
	return text + "/" + p.Name
}

func validateIPAddress(ip *networkingv1.IPAddress) field.ErrorList {
	path, p := field.NewPath("spec", "parentRef"), ip.Spec.ParentRef
	if p == nil {
		return field.ErrorList{field.Required(path, "")}
	}
	var errs field.ErrorList
	if p.Group != "" { // that of a Service is empty
		errs = rules.Subdomain(p.Group, path.Child("group"))
	}
	errs = append(errs, rules.PathSegment(p.Resource, path.Child("resource"))...)
	errs = append(errs, rules.PathSegment(p.Name, path.Child("name"))...)
	if p.Namespace != "" {
		errs = append(errs, rules.PathSegment(p.Namespace, path.Child("namespace"))...)
	}
	return errs
}
