package kinds

import (
	"fmt"
	"regexp"
	"slices"
	"strings"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	"k8s.io/apimachinery/pkg/api/validate/content"
	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	metav1validation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"portico/backends/core/kinds/rules"
)

// The parts that validating and mutating admission policies, and their bindings, share. CEL
// expressions are required, and not compiled.

func defaultMatchResources(m *admissionregistrationv1.MatchResources) {
	if m == nil {
		return
	}
	rules.Default(&m.MatchPolicy, admissionregistrationv1.Equivalent)
	rules.Default(&m.NamespaceSelector, metav1.LabelSelector{})
	rules.Default(&m.ObjectSelector, metav1.LabelSelector{})
	for i := range m.ResourceRules {
		defaultRule(&m.ResourceRules[i].Rule)
	}
	for i := range m.ExcludeResourceRules {
		defaultRule(&m.ExcludeResourceRules[i].Rule)
	}
}

// validateMatchConstraints validates the requests that a policy applies to. They must name
// resources, which determine the types of the expressions.
func validateMatchConstraints(m *admissionregistrationv1.MatchResources, path *field.Path) field.ErrorList {
	if m == nil {
		return field.ErrorList{field.Required(path, "")}
	}
	errs := validateMatchResources(m, path)
	if len(m.ResourceRules) == 0 {
		errs = append(errs, field.Required(path.Child("resourceRules"), ""))
	}
	return errs
}

func validateMatchResources(m *admissionregistrationv1.MatchResources, path *field.Path) field.ErrorList {
	if m == nil {
		return nil
	}
	var errs field.ErrorList
	if m.MatchPolicy == nil {
		errs = append(errs, field.Required(path.Child("matchPolicy"), ""))
	} else {
		errs = append(errs, validateMatchPolicy(*m.MatchPolicy, path.Child("matchPolicy"))...)
	}
	errs = append(errs, validateSelector(m.NamespaceSelector, path.Child("namespaceSelector"))...)
	errs = append(errs, validateSelector(m.ObjectSelector, path.Child("objectSelector"))...)
	for i := range m.ResourceRules {
		errs = append(errs, validateNamedRule(&m.ResourceRules[i], path.Child("resourceRules").Index(i))...)
	}
	for i := range m.ExcludeResourceRules {
		errs = append(errs, validateNamedRule(&m.ExcludeResourceRules[i], path.Child("excludeResourceRules").Index(i))...)
	}
	return errs
}

func validateSelector(s *metav1.LabelSelector, path *field.Path) field.ErrorList {
	if s == nil {
		return field.ErrorList{field.Required(path, "")}
	}
	return metav1validation.ValidateLabelSelector(s, metav1validation.LabelSelectorValidationOptions{}, path)
}

func validateNamedRule(r *admissionregistrationv1.NamedRuleWithOperations, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	for i, name := range r.ResourceNames {
		at := path.Child("resourceNames").Index(i)
		errs = append(errs, rules.Invalid(at, name, content.IsPathSegmentName(name))...)
		if slices.Contains(r.ResourceNames[:i], name) {
			errs = append(errs, field.Duplicate(at, name))
		}
	}
	return append(errs, validateRuleWithOperations(&r.RuleWithOperations, path)...)
}

func validateRequiredFailurePolicy(p *admissionregistrationv1.FailurePolicyType, path *field.Path) field.ErrorList {
	if p == nil {
		return field.ErrorList{field.Required(path, "")}
	}
	return validateFailurePolicy(*p, path)
}

func validateParamKind(k *admissionregistrationv1.ParamKind, path *field.Path) field.ErrorList {
	if k == nil {
		return nil
	}
	var errs field.ErrorList
	version := path.Child("apiVersion")
	gv, err := schema.ParseGroupVersion(k.APIVersion)
	switch {
	case k.APIVersion == "":
		errs = append(errs, field.Required(version, ""))
	case err != nil:
		errs = append(errs, field.Invalid(version, k.APIVersion, err.Error()))
	default:
		if gv.Group != "" {
			errs = append(errs, invalidOnce(version, gv.Group, "", validation.IsDNS1123Subdomain(gv.Group))...)
		}
		if gv.Version == "" {
			errs = append(errs, field.Invalid(version, k.APIVersion, "version must be specified"))
		} else {
			errs = append(errs, invalidOnce(version, gv.Version, "", validation.IsDNS1035Label(gv.Version))...)
		}
	}
	if k.Kind == "" {
		return append(errs, field.Required(path.Child("kind"), ""))
	}
	return append(errs, invalidOnce(path.Child("kind"), k.Kind, "may have mixed case, but should otherwise match: ",
		validation.IsDNS1035Label(strings.ToLower(k.Kind)))...)
}

// invalidOnce returns one error for several messages about a value.
func invalidOnce(path *field.Path, value, prefix string, messages []string) field.ErrorList {
	if len(messages) == 0 {
		return nil
	}
	return field.ErrorList{field.Invalid(path, value, prefix+strings.Join(messages, ","))}
}

func validateVariables(variables []admissionregistrationv1.Variable, cel *celRules, path *field.Path) field.ErrorList {
	if len(variables) == 0 {
		return nil
	}
	if err := cel.compose(); err != nil {
		return field.ErrorList{field.InternalError(path, err)}
	}
	var errs field.ErrorList
	for i, v := range variables {
		at := path.Index(i)
		switch {
		case strings.TrimSpace(v.Name) == "":
			errs = append(errs, field.Required(at.Child("name"), "name is not specified"))
		case !isCELIdentifier(v.Name):
			errs = append(errs, field.Invalid(at.Child("name"), v.Name, "must be a valid CEL identifier"))
		}
		if strings.TrimSpace(v.Expression) == "" {
			errs = append(errs, field.Required(at.Child("expression"), "expression is not specified"))
		} else {
			errs = append(errs, cel.variable(&v, at.Child("expression"))...)
		}
	}
	return errs
}

var celIdentifier = regexp.MustCompile(`^[_a-zA-Z][_a-zA-Z0-9]*$`)

// isCELIdentifier reports whether a name is an IDENT of the CEL specification, and not one of
// its reserved words.
func isCELIdentifier(name string) bool {
	switch name {
	case "true", "false", "null", "in", "as", "break", "const", "continue", "else", "for", "function", "if", "import", "let",
		"loop", "package", "namespace", "return", "var", "void", "while":
		return false
	}
	return celIdentifier.MatchString(name)
}

func validatePolicyName(name string, path *field.Path) field.ErrorList {
	if name == "" {
		return field.ErrorList{field.Required(path, "")}
	}
	return rules.Invalid(path, name, apivalidation.NameIsDNSSubdomain(name, false))
}

func validateParamRef(r *admissionregistrationv1.ParamRef, path *field.Path) field.ErrorList {
	if r == nil {
		return nil
	}
	const exclusive = "name and selector are mutually exclusive"
	var errs field.ErrorList
	if r.Name != "" {
		errs = append(errs, rules.Invalid(path.Child("name"), r.Name, content.IsPathSegmentName(r.Name))...)
	}
	if r.Selector != nil {
		errs = append(errs, validateSelector(r.Selector, path.Child("selector"))...)
	}
	switch {
	case r.Name != "" && r.Selector != nil:
		errs = append(errs, field.Forbidden(path.Child("name"), exclusive), field.Forbidden(path.Child("selector"), exclusive))
	case r.Name == "" && r.Selector == nil:
		errs = append(errs, field.Required(path, "one of name or selector must be specified"))
	}
	action := path.Child("parameterNotFoundAction")
	if r.ParameterNotFoundAction == nil {
		return append(errs, field.Required(action, ""))
	}
	return append(errs, rules.Enum(*r.ParameterNotFoundAction, action,
		admissionregistrationv1.DenyAction, admissionregistrationv1.AllowAction)...)
}

func paramKindCell(k *admissionregistrationv1.ParamKind) string {
	if k == nil {
		return unset
	}
	return k.APIVersion + "/" + k.Kind
}

// paramRefCell shows a parameter without a namespace as "*/name", because the kind may be
// namespaced.
func paramRefCell(r *admissionregistrationv1.ParamRef) string {
	switch {
	case r == nil:
		return unset
	case r.Name != "" && r.Namespace != "":
		return r.Namespace + "/" + r.Name
	case r.Name != "":
		return "*/" + r.Name
	case r.Selector != nil:
		return r.Selector.String()
	}
	return unset
}

func policyColumns(count, description string) []metav1.TableColumnDefinition {
	return []metav1.TableColumnDefinition{
		nameColumn(), column(count, "integer", description),
		column("ParamKind", "string", "The kind of the policy's parameters."), ageColumn(),
	}
}

func bindingColumns() []metav1.TableColumnDefinition {
	return []metav1.TableColumnDefinition{
		nameColumn(), column("PolicyName", "string", "The policy that is bound."),
		column("ParamRef", "string", "The parameters the policy is bound with."), ageColumn(),
	}
}

// maxAuditAnnotations bounds the audit annotations of a policy, and maxAuditExpression the
// expression of one, in bytes.
const (
	maxAuditAnnotations = 20
	maxAuditExpression  = 5 * 1024
)

func validateAuditAnnotations(policy string, annotations []admissionregistrationv1.AuditAnnotation, cel *celRules, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	if len(annotations) > maxAuditAnnotations {
		errs = append(errs, field.Invalid(path, annotations, fmt.Sprintf("must not have more than %d auditAnnotations", maxAuditAnnotations)))
	}
	seen := map[string]bool{}
	for i, a := range annotations {
		key, expression := path.Index(i).Child("key"), path.Index(i).Child("valueExpression")
		if policy == "" {
			errs = append(errs, field.Invalid(key, a.Key, "requires metadata.name be non-empty"))
		} else {
			errs = append(errs, rules.QualifiedName(policy+"/"+a.Key, key)...)
		}
		switch n := len(strings.TrimSpace(a.ValueExpression)); {
		case n == 0:
			errs = append(errs, field.Required(expression, "valueExpression is not specified"))
		case n > maxAuditExpression:
			errs = append(errs, field.Required(expression, fmt.Sprintf("must not exceed %d bytes in length", maxAuditExpression)))
		default:
			errs = append(errs, cel.audit(a.ValueExpression, expression)...)
		}
		if seen[a.Key] {
			errs = append(errs, field.Duplicate(key, a.Key))
		}
		seen[a.Key] = true
	}
	return errs
}
