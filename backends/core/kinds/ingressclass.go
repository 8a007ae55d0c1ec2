package kinds

import (
	networkingv1 "k8s.io/api/networking/v1"
	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"portico/backends/core/kinds/rules"
	"portico/resource"
	"portico/resource/rest"
)

// maxIngressController is the longest name of a controller.
const maxIngressController = 250

// ingressClasses is the row of networking.k8s.io/v1 IngressClass.
func ingressClasses() *rest.Kind {
	return &rest.Kind{
		Info: resource.Info{Group: networkingv1.GroupName, Versions: []string{"v1"}, Resource: "ingressclasses", Kind: "IngressClass"},
		Strategy: rest.Strategy{
			Default: onDefault(func(c *networkingv1.IngressClass) {
				if c.Spec.Parameters != nil {
					rules.Default(&c.Spec.Parameters.Scope, networkingv1.IngressClassParametersReferenceScopeCluster)
				}
			}),
			TrackGeneration: true,
			Validate:        check(validateIngressClass),
			ValidateUpdate: checkUpdate(func(c, old *networkingv1.IngressClass) field.ErrorList {
				errs := apivalidation.ValidateImmutableField(c.Spec.Controller, old.Spec.Controller, field.NewPath("spec", "controller"))
				return append(errs, validateIngressClass(c)...)
			}),
		},
		Columns: []metav1.TableColumnDefinition{
			nameColumn(),
			column("Controller", "string", "The controller that implements ingresses of the class."),
			column("Parameters", "string", "The object that configures the controller."),
			ageColumn(),
		},
		Cells:               cells(ingressClassCells),
		UnconditionalUpdate: true,
	}
}

func ingressClassCells(c *networkingv1.IngressClass) []any {
	name, parameters := c.Name, none
	if c.Annotations[networkingv1.AnnotationIsDefaultIngressClass] == "true" {
		name += " (default)"
	}
	if p := c.Spec.Parameters; p != nil {
		parameters = p.Kind
		if p.APIGroup != nil {
			parameters += "." + *p.APIGroup
		}
		parameters += "/" + p.Name
	}
	return []any{name, c.Spec.Controller, parameters, age(c.CreationTimestamp)}
}

func validateIngressClass(c *networkingv1.IngressClass) field.ErrorList {
	path := field.NewPath("spec")
	var errs field.ErrorList
	if len(c.Spec.Controller) > maxIngressController {
		errs = append(errs, field.TooLong(path.Child("controller"), "", maxIngressController))
	}
	errs = append(errs, validation.IsDomainPrefixedPath(path.Child("controller"), c.Spec.Controller)...)
	if c.Spec.Parameters != nil {
		errs = append(errs, validateIngressParameters(c.Spec.Parameters, path.Child("parameters"))...)
	}
	return errs
}

func validateIngressParameters(p *networkingv1.IngressClassParametersReference, path *field.Path) field.ErrorList {
	errs := validateReference(path, p.APIGroup, p.Kind, p.Name)
	scope, namespace := path.Child("scope"), path.Child("namespace")
	if p.Scope == nil {
		return append(errs, field.Required(scope, ""))
	}
	switch *p.Scope {
	case networkingv1.IngressClassParametersReferenceScopeNamespace:
		if p.Namespace == nil {
			return append(errs, field.Required(namespace, "`parameters.scope` is set to 'Namespace'"))
		}
		return append(errs, rules.DNSLabel(*p.Namespace, namespace)...)
	case networkingv1.IngressClassParametersReferenceScopeCluster:
		if p.Namespace != nil {
			errs = append(errs, field.Forbidden(namespace, "`parameters.scope` is set to 'Cluster'"))
		}
		return errs
	}
	return append(errs, rules.Supported(*p.Scope, scope,
		networkingv1.IngressClassParametersReferenceScopeCluster, networkingv1.IngressClassParametersReferenceScopeNamespace)...)
}
