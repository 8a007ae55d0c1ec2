package kinds

import (
	"fmt"
	"slices"
	"strings"

	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/utils/ptr"

	"portico/backends/core/kinds/rules"
	"portico/resource"
	"portico/resource/rest"
)

// ingressClassAnnotation is the older form of spec.ingressClassName.
const ingressClassAnnotation = "kubernetes.io/ingress.class"

// ingresses is the row of networking.k8s.io/v1 Ingress.
func ingresses() *rest.Kind {
	return &rest.Kind{
		Info: resource.Info{
			Group: networkingv1.GroupName, Versions: []string{"v1"}, Resource: "ingresses", Kind: "Ingress",
			ShortNames: []string{"ing"}, Namespaced: true, Path: "ingress",
		},
		Strategy: rest.Strategy{
			TrackGeneration: true,
			PrepareCreate:   onCreate(func(in *networkingv1.Ingress) { in.Status = networkingv1.IngressStatus{} }),
			PrepareUpdate:   onUpdate(func(in, old *networkingv1.Ingress) { old.Status.DeepCopyInto(&in.Status) }),
			Validate:        check(validateNewIngress),
			ValidateUpdate: checkUpdate(func(in, old *networkingv1.Ingress) field.ErrorList {
				return validateIngressSpec(&in.Spec, &old.Spec)
			}),
			Warnings: warnNew(ingressWarnings),
		},
		Subresources: []rest.Subresource{{Name: "status", Strategy: &rest.Strategy{
			PrepareUpdate:  onUpdate(func(in, old *networkingv1.Ingress) { old.Spec.DeepCopyInto(&in.Spec) }),
			ValidateUpdate: checkUpdate(validateIngressStatus),
			Warnings:       warn(ingressStatusWarnings),
		}}},
		Columns: []metav1.TableColumnDefinition{
			nameColumn(),
			column("Class", "string", "The IngressClass that implements the ingress."),
			column("Hosts", "string", "The first host names of the rules."),
			column("Address", "string", "The addresses of the load balancer."),
			column("Ports", "string", "The ports on which the load balancer listens."),
			ageColumn(),
		},
		Cells:               cells(ingressCells),
		UnconditionalUpdate: true,
	}
}

func ingressCells(in *networkingv1.Ingress) []any {
	ports := "80"
	if len(in.Spec.TLS) > 0 {
		ports = "80, 443"
	}
	var addresses []string
	for _, a := range in.Status.LoadBalancer.Ingress {
		switch {
		case a.IP != "":
			addresses = append(addresses, a.IP)
		case a.Hostname != "":
			addresses = append(addresses, a.Hostname)
		}
	}
	slices.Sort(addresses)
	return []any{
		in.Name, ptr.Deref(in.Spec.IngressClassName, none), ingressHosts(in.Spec.Rules),
		strings.Join(slices.Compact(addresses), ","), ports, age(in.CreationTimestamp),
	}
}

// ingressHosts lists the first hosts. The count of the others is that of rules, as of kubectl.
func ingressHosts(all []networkingv1.IngressRule) string {
	var hosts []string
	more := ""
	for _, r := range all {
		if len(hosts) == maxListed {
			more = fmt.Sprintf(" + %d more...", len(all)-maxListed)
			break
		}
		if r.Host != "" {
			hosts = append(hosts, r.Host)
		}
	}
	if len(hosts) == 0 {
		return "*"
	}
	return strings.Join(hosts, ",") + more
}

func ingressWarnings(in *networkingv1.Ingress) []string {
	if _, ok := in.Annotations[ingressClassAnnotation]; ok && in.Spec.IngressClassName == nil {
		return []string{fmt.Sprintf("annotation %q is deprecated, please use 'spec.ingressClassName' instead", ingressClassAnnotation)}
	}
	return nil
}

func ingressStatusWarnings(in *networkingv1.Ingress) []string {
	var warnings []string
	for i, a := range in.Status.LoadBalancer.Ingress {
		if a.IP != "" {
			warnings = append(warnings, validation.GetWarningsForIP(field.NewPath("status", "loadBalancer", "ingress").Index(i), a.IP)...)
		}
	}
	return warnings
}

func validateNewIngress(in *networkingv1.Ingress) field.ErrorList {
	errs := validateIngressSpec(&in.Spec, nil)
	class, ok := in.Annotations[ingressClassAnnotation]
	if ok && in.Spec.IngressClassName != nil && class != *in.Spec.IngressClassName {
		errs = append(errs, field.Invalid(field.NewPath("annotations").Child(ingressClassAnnotation), class,
			"must match `ingressClassName` when both are specified"))
	}
	return errs
}

// validateIngressSpec validates a spec. old is nil on create; secret names and rules of
// wildcard hosts may be wrong if they are in old.
func validateIngressSpec(spec, old *networkingv1.IngressSpec) field.ErrorList {
	path := field.NewPath("spec")
	var errs field.ErrorList
	if len(spec.Rules) == 0 && spec.DefaultBackend == nil {
		errs = append(errs, field.Invalid(path, spec.Rules, "either `defaultBackend` or `rules` must be specified"))
	}
	if spec.DefaultBackend != nil {
		errs = append(errs, validateIngressBackend(spec.DefaultBackend, path.Child("defaultBackend"))...)
	}
	looseRules := old != nil && slices.ContainsFunc(old.Rules, func(r networkingv1.IngressRule) bool {
		return strings.Contains(r.Host, "*") && (len(validateIngressPaths(r.HTTP, nil)) > 0 || hasDigitFirst(r.HTTP))
	})
	for i, r := range spec.Rules {
		at := path.Child("rules").Index(i)
		if r.Host != "" {
			errs = append(errs, rules.NoIP(r.Host, at.Child("host"))...)
			errs = append(errs, validateHostPattern(r.Host, at.Child("host"))...)
		}
		if !looseRules || !strings.Contains(r.Host, "*") {
			errs = append(errs, validateIngressPaths(r.HTTP, at.Child("http"))...)
		}
	}
	looseSecrets := old != nil && slices.ContainsFunc(old.TLS, func(t networkingv1.IngressTLS) bool {
		return len(validateTLSSecret(t.SecretName, nil)) > 0
	})
	for i, t := range spec.TLS {
		at := path.Child("tls").Index(i)
		for j, host := range t.Hosts {
			errs = append(errs, validateHostPattern(host, at.Child("hosts").Index(j))...)
		}
		if !looseSecrets {
			errs = append(errs, validateTLSSecret(t.SecretName, at.Child("secretName"))...)
		}
	}
	if spec.IngressClassName != nil {
		errs = append(errs, rules.Subdomain(*spec.IngressClassName, path.Child("ingressClassName"))...)
	}
	return errs
}

// validateHostPattern accepts a host name, the first label of which may be a wildcard.
func validateHostPattern(host string, path *field.Path) field.ErrorList {
	if strings.Contains(host, "*") {
		return rules.Invalid(path, host, validation.IsWildcardDNS1123Subdomain(host))
	}
	return rules.Subdomain(host, path)
}

func validateTLSSecret(name string, path *field.Path) field.ErrorList {
	if name == "" {
		return nil
	}
	return rules.Subdomain(name, path)
}

func validateIngressPaths(http *networkingv1.HTTPIngressRuleValue, path *field.Path) field.ErrorList {
	if http == nil {
		return nil
	}
	var errs field.ErrorList
	if len(http.Paths) == 0 {
		errs = append(errs, field.Required(path.Child("paths"), ""))
	}
	for i, p := range http.Paths {
		errs = append(errs, validateIngressPath(&p, path.Child("paths").Index(i))...)
	}
	return errs
}

// hasDigitFirst reports whether a service name is one that earlier releases refuse. For
// kube-apiserver these count as wrong in the rules of stored wildcard hosts.
func hasDigitFirst(http *networkingv1.HTTPIngressRuleValue) bool {
	return http != nil && slices.ContainsFunc(http.Paths, func(p networkingv1.HTTPIngressPath) bool {
		return p.Backend.Service != nil && len(validation.IsDNS1035Label(p.Backend.Service.Name)) > 0
	})
}

func validateIngressPath(p *networkingv1.HTTPIngressPath, path *field.Path) field.ErrorList {
	if p.PathType == nil {
		return field.ErrorList{field.Required(path.Child("pathType"), "pathType must be specified")}
	}
	var errs field.ErrorList
	refuse := func(when bool, format string, args ...any) {
		if when {
			errs = append(errs, field.Invalid(path.Child("path"), p.Path, fmt.Sprintf(format, args...)))
		}
	}
	switch absolute := strings.HasPrefix(p.Path, "/"); *p.PathType {
	case networkingv1.PathTypeExact, networkingv1.PathTypePrefix:
		refuse(!absolute, "must be an absolute path")
		for _, part := range []string{"//", "/./", "/../", "%2f", "%2F"} {
			refuse(strings.Contains(p.Path, part), "must not contain '%s'", part)
		}
		for _, end := range []string{"/..", "/."} {
			refuse(strings.HasSuffix(p.Path, end), "cannot end with '%s'", end)
		}
	case networkingv1.PathTypeImplementationSpecific:
		refuse(p.Path != "" && !absolute, "must be an absolute path")
	default:
		errs = rules.Supported(*p.PathType, path.Child("pathType"),
			networkingv1.PathTypeExact, networkingv1.PathTypeImplementationSpecific, networkingv1.PathTypePrefix)
	}
	return append(errs, validateIngressBackend(&p.Backend, path.Child("backend"))...)
}

func validateIngressBackend(b *networkingv1.IngressBackend, path *field.Path) field.ErrorList {
	switch {
	case b.Resource != nil && b.Service != nil:
		return field.ErrorList{field.Invalid(path, "", "cannot set both resource and service backends")}
	case b.Resource != nil:
		return validateReference(path.Child("resource"), b.Resource.APIGroup, b.Resource.Kind, b.Resource.Name)
	case b.Service == nil:
		return field.ErrorList{field.Invalid(path, "", "resource or service backend is required")}
	}
	var errs field.ErrorList
	at := path.Child("service")
	if name := b.Service.Name; name == "" {
		errs = append(errs, field.Required(at.Child("name"), ""))
	} else {
		errs = append(errs, rules.DNSLabel(name, at.Child("name"))...)
	}
	switch port := b.Service.Port; {
	case port.Name != "" && port.Number != 0:
		errs = append(errs, field.Invalid(path, "", "cannot set both port name & port number"))
	case port.Name != "":
		errs = append(errs, rules.Invalid(at.Child("port", "name"), port.Name, validation.IsValidPortName(port.Name))...)
	case port.Number != 0:
		errs = append(errs, rules.Invalid(at.Child("port", "number"), port.Number, validation.IsValidPortNum(int(port.Number)))...)
	default:
		errs = append(errs, field.Required(path, "port name or number is required"))
	}
	return errs
}

// validateReference validates a reference to an object of any kind.
func validateReference(path *field.Path, group *string, kind, name string) field.ErrorList {
	var errs field.ErrorList
	if group != nil {
		errs = rules.Subdomain(*group, path.Child("apiGroup"))
	}
	errs = append(errs, rules.PathSegment(kind, path.Child("kind"))...)
	return append(errs, rules.PathSegment(name, path.Child("name"))...)
}

// validateIngressStatus validates the addresses, of which those of old may have any form.
func validateIngressStatus(in, old *networkingv1.Ingress) field.ErrorList {
	var known []string
	for _, a := range old.Status.LoadBalancer.Ingress {
		if a.IP != "" {
			known = append(known, a.IP)
		}
	}
	var errs field.ErrorList
	for i, a := range in.Status.LoadBalancer.Ingress {
		at := field.NewPath("status", "loadBalancer", "ingress").Index(i)
		if a.IP != "" {
			errs = append(errs, validation.IsValidIPForLegacyField(at.Child("ip"), a.IP, true, known)...)
		}
		if a.Hostname != "" {
			errs = append(errs, rules.Subdomain(a.Hostname, at.Child("hostname"))...)
			errs = append(errs, rules.NoIP(a.Hostname, at.Child("hostname"))...)
		}
	}
	return errs
}
