package kinds

import (
	"net"
	"strconv"

	corev1 "k8s.io/api/core/v1"
	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"portico/backends/core/kinds/rules"
	"portico/resource"
	"portico/resource/rest"
)

// endpoints is the row of v1 Endpoints, the predecessor of EndpointSlice.
func endpoints() *rest.Kind {
	return &rest.Kind{
		Info: resource.Info{
			Versions: []string{"v1"}, Resource: "endpoints", Kind: "Endpoints",
			ShortNames: []string{"ep"}, Namespaced: true, Path: "services/endpoints",
		},
		Strategy: rest.Strategy{
			Default:        onDefault(defaultEndpoints),
			Validate:       check(validateEndpoints),
			ValidateUpdate: checkNew(validateEndpoints),
		},
		Columns: []metav1.TableColumnDefinition{
			nameColumn(), column("Endpoints", "string", "The first ready addresses, with their ports."), ageColumn(),
		},
		Cells: cells(func(ep *corev1.Endpoints) []any {
			return []any{ep.Name, endpointList(ep.Subsets), age(ep.CreationTimestamp)}
		}),
		CreateOnUpdate:      true,
		UnconditionalUpdate: true,
	}
}

func defaultEndpoints(ep *corev1.Endpoints) {
	for i := range ep.Subsets {
		for j := range ep.Subsets[i].Ports {
			if port := &ep.Subsets[i].Ports[j]; port.Protocol == "" {
				port.Protocol = corev1.ProtocolTCP
			}
		}
	}
}

func endpointList(subsets []corev1.EndpointSubset) string {
	if len(subsets) == 0 {
		return none
	}
	var all []string
	for _, subset := range subsets {
		if len(subset.Ports) == 0 { // a headless service may have no ports
			for _, a := range subset.Addresses {
				all = append(all, a.IP)
			}
		}
		for _, port := range subset.Ports {
			for _, a := range subset.Addresses {
				all = append(all, net.JoinHostPort(a.IP, strconv.Itoa(int(port.Port))))
			}
		}
	}
	return shortList(all, "")
}

func validateEndpoints(ep *corev1.Endpoints) field.ErrorList {
	var errs field.ErrorList
	for i, subset := range ep.Subsets {
		path := field.NewPath("subsets").Index(i)
		if len(subset.Addresses) == 0 && len(subset.NotReadyAddresses) == 0 {
			errs = append(errs, field.Required(path, "must specify `addresses` or `notReadyAddresses`"))
		}
		for j, a := range subset.Addresses {
			errs = append(errs, validateEndpointAddress(&a, path.Child("addresses").Index(j))...)
		}
		for j, a := range subset.NotReadyAddresses {
			errs = append(errs, validateEndpointAddress(&a, path.Child("notReadyAddresses").Index(j))...)
		}
		for j, port := range subset.Ports {
			errs = append(errs, validateEndpointPort(&port, len(subset.Ports) > 1, path.Child("ports").Index(j))...)
		}
	}
	return errs
}

func validateEndpointAddress(a *corev1.EndpointAddress, path *field.Path) field.ErrorList {
	errs := validateLegacyIP(a.IP, path.Child("ip"))
	errs = append(errs, rules.NonSpecialIP(a.IP, path.Child("ip"))...)
	if a.Hostname != "" {
		errs = append(errs, rules.DNSLabel(a.Hostname, path.Child("hostname"))...)
	}
	if a.NodeName != nil {
		errs = append(errs, rules.Invalid(path.Child("nodeName"), *a.NodeName, apivalidation.NameIsDNSSubdomain(*a.NodeName, false))...)
	}
	return errs
}

func validateEndpointPort(port *corev1.EndpointPort, named bool, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	switch {
	case port.Name != "":
		errs = append(errs, rules.DNSLabel(port.Name, path.Child("name"))...)
	case named:
		errs = append(errs, field.Required(path.Child("name"), ""))
	}
	errs = append(errs, rules.Invalid(path.Child("port"), port.Port, validation.IsValidPortNum(int(port.Port)))...)
	errs = append(errs, rules.Protocol(port.Protocol, path.Child("protocol"))...)
	if port.AppProtocol != nil {
		errs = append(errs, rules.QualifiedName(*port.AppProtocol, path.Child("appProtocol"))...)
	}
	return errs
}
