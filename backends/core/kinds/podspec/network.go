package podspec

import (
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"portico/backends/core/kinds/rules"
)

// The limits of the resolver of the C library.
const (
	maxNameservers    = 3
	maxSearches       = 32
	maxSearchesLength = 2048
	maxHostname       = 64
)

// validateNetwork returns the errors of DNS, host names, host aliases and host network.
func validateNetwork(spec *corev1.PodSpec, path *field.Path, o Options) field.ErrorList {
	// The order of the policies is that of kube-apiserver's message.
	errs := rules.Enum(spec.DNSPolicy, path.Child("dnsPolicy"), corev1.DNSClusterFirstWithHostNet, corev1.DNSClusterFirst, corev1.DNSDefault, corev1.DNSNone)
	errs = append(errs, validateDNS(spec, path.Child("dnsConfig"))...)
	for i, c := range spec.Containers {
		for j, p := range c.Ports {
			if spec.HostNetwork && (o.Pod || p.HostPort != 0) && p.HostPort != p.ContainerPort {
				at := path.Child("containers").Index(i).Child("ports").Index(j).Child("hostPort")
				errs = append(errs, field.Invalid(at, p.HostPort, "must match `containerPort` when `hostNetwork` is true"))
			}
		}
	}
	if spec.Hostname != "" {
		errs = append(errs, rules.DNSLabel(spec.Hostname, path.Child("hostname"))...)
	}
	if spec.Subdomain != "" {
		errs = append(errs, rules.DNSLabel(spec.Subdomain, path.Child("subdomain"))...)
	}
	if name, at := spec.HostnameOverride, path.Child("hostnameOverride"); name != nil {
		if spec.SetHostnameAsFQDN != nil && *spec.SetHostnameAsFQDN {
			errs = append(errs, field.Forbidden(at, "may not be specified when setHostnameAsFQDN is true"))
		}
		if spec.HostNetwork {
			errs = append(errs, field.Forbidden(at, "may not be specified when hostNetwork is true"))
		}
		if len(*name) > maxHostname {
			errs = append(errs, field.TooLong(at, "", maxHostname))
		}
		errs = append(errs, rules.Invalid(at, *name, validation.IsDNS1123Subdomain(*name))...)
	}
	for i, alias := range spec.HostAliases {
		at := path.Child("hostAliases").Index(i)
		errs = append(errs, validation.IsValidIPForLegacyField(at.Child("ip"), alias.IP, true, nil)...)
		for j, name := range alias.Hostnames {
			errs = append(errs, rules.Invalid(at.Child("hostnames").Index(j), name, validation.IsDNS1123Subdomain(name))...)
		}
	}
	return errs
}

func validateDNS(spec *corev1.PodSpec, path *field.Path) field.ErrorList {
	c, servers, searches := spec.DNSConfig, path.Child("nameservers"), path.Child("searches")
	switch {
	case spec.DNSPolicy == corev1.DNSNone && c == nil:
		return field.ErrorList{field.Required(path, fmt.Sprintf("must provide `dnsConfig` when `dnsPolicy` is %s", corev1.DNSNone))}
	case spec.DNSPolicy == corev1.DNSNone && len(c.Nameservers) == 0:
		return field.ErrorList{field.Required(servers, fmt.Sprintf("must provide at least one DNS nameserver when `dnsPolicy` is %s", corev1.DNSNone))}
	case c == nil:
		return nil
	}
	var errs field.ErrorList
	if len(c.Nameservers) > maxNameservers {
		errs = append(errs, field.Invalid(servers, c.Nameservers, fmt.Sprintf("must not have more than %v nameservers", maxNameservers)))
	}
	for i, s := range c.Nameservers {
		errs = append(errs, validation.IsValidIPForLegacyField(servers.Index(i), s, true, nil)...)
	}
	if len(c.Searches) > maxSearches {
		errs = append(errs, field.Invalid(searches, c.Searches, fmt.Sprintf("must not have more than %v search paths", maxSearches)))
	}
	if len(strings.Join(c.Searches, " ")) > maxSearchesLength {
		errs = append(errs, field.Invalid(searches, c.Searches, fmt.Sprintf("must not have more than %v characters (including spaces) in the search list", maxSearchesLength)))
	}
	for i, s := range c.Searches {
		if s != "." {
			s = strings.TrimSuffix(s, ".")
			errs = append(errs, rules.Invalid(searches.Index(i), s, validation.IsDNS1123SubdomainWithUnderscore(s))...)
		}
	}
	for i, option := range c.Options {
		if option.Name == "" {
			errs = append(errs, field.Required(path.Child("options").Index(i), "must not be empty"))
		}
	}
	return errs
}
