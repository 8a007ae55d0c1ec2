package kinds

import (
	"context"
	"slices"
	"strconv"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	metav1validation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/utils/ptr"

	"portico/backends/core/kinds/rules"
	"portico/resource"
	"portico/resource/rest"
)

// Limits of one slice.
const (
	maxSliceEndpoints = 1000
	maxSlicePorts     = 20000
	maxSliceAddresses = 100
	maxSliceHints     = 8
	maxSliceTopology  = 16
)

// endpointSlices is the row of discovery.k8s.io/v1 EndpointSlice. A change of its labels, which
// name its service and controller, also makes a new generation.
func endpointSlices() *rest.Kind {
	return &rest.Kind{
		Info: resource.Info{
			Group: discoveryv1.GroupName, Versions: []string{"v1"}, Resource: "endpointslices", Kind: "EndpointSlice", Namespaced: true,
		},
		Strategy: rest.Strategy{
			Default:         onDefault(defaultEndpointSlice),
			TrackGeneration: true,
			SpecChanged: changed(func(s, old *discoveryv1.EndpointSlice) bool {
				return s.Generation != old.Generation || endpointSliceChanged(s, old)
			}),
			PrepareCreate: onCreate(dropTopology),
			PrepareUpdate: onUpdate(func(s, old *discoveryv1.EndpointSlice) {
				// As in kube-apiserver, a field that is dropped is a change.
				if endpointSliceChanged(s, old) {
					s.Generation = old.Generation + 1
				}
				if !equality.Semantic.DeepEqual(s.Endpoints, old.Endpoints) {
					dropTopology(s)
				}
			}),
			Validate: check(validateEndpointSlice),
			ValidateUpdate: checkUpdate(func(s, old *discoveryv1.EndpointSlice) field.ErrorList {
				errs := validateEndpointSlice(s)
				if s.AddressType != old.AddressType {
					errs = append(errs, field.Invalid(field.NewPath("addressType"), nil, apivalidation.FieldImmutableErrorMsg))
				}
				return errs
			}),
			Warnings: endpointSliceWarnings,
		},
		Columns: []metav1.TableColumnDefinition{
			nameColumn(),
			column("AddressType", "string", "The type of the addresses: IPv4, IPv6 or FQDN."),
			column("Ports", "string", "The first ports of every endpoint of the slice."),
			column("Endpoints", "string", "The first addresses of the slice."),
			ageColumn(),
		},
		Cells: cells(func(s *discoveryv1.EndpointSlice) []any {
			return []any{s.Name, string(s.AddressType), slicePorts(s), sliceAddresses(s), age(s.CreationTimestamp)}
		}),
		UnconditionalUpdate: true,
	}
}

func defaultEndpointSlice(s *discoveryv1.EndpointSlice) {
	for i := range s.Ports {
		port := &s.Ports[i]
		rules.Default(&port.Name, "")
		rules.Default(&port.Protocol, corev1.ProtocolTCP)
	}
}

func endpointSliceChanged(s, old *discoveryv1.EndpointSlice) bool {
	return s.AddressType != old.AddressType ||
		!equality.Semantic.DeepEqual(s.Endpoints, old.Endpoints) ||
		!equality.Semantic.DeepEqual(s.Ports, old.Ports) ||
		!equality.Semantic.DeepEqual(s.Labels, old.Labels)
}

// dropTopology clears a field of the beta version, which v1 only keeps if it was stored.
func dropTopology(s *discoveryv1.EndpointSlice) {
	for i := range s.Endpoints {
		s.Endpoints[i].DeprecatedTopology = nil
	}
}

// endpointSliceWarnings warns of addresses in unusual forms, which the controllers of slices
// mend themselves.
func endpointSliceWarnings(_ context.Context, obj, old rest.Object) []string {
	s := obj.(*discoveryv1.EndpointSlice)
	var warnings []string
	if old == nil && s.AddressType == discoveryv1.AddressTypeFQDN {
		warnings = append(warnings, "spec.addressType: FQDN endpoints are deprecated")
	}
	switch s.Labels[discoveryv1.LabelManagedBy] {
	case "endpointslice-controller.k8s.io", "endpointslicemirroring-controller.k8s.io":
		return warnings
	}
	if s.AddressType == discoveryv1.AddressTypeFQDN {
		return warnings
	}
	for i, e := range s.Endpoints {
		for j, ip := range e.Addresses {
			warnings = append(warnings, validation.GetWarningsForIP(field.NewPath("endpoints").Index(i).Child("addresses").Index(j), ip)...)
		}
	}
	return warnings
}

func slicePorts(s *discoveryv1.EndpointSlice) string {
	var all []string
	for _, port := range s.Ports {
		switch {
		case port.Port != nil:
			all = append(all, strconv.Itoa(int(*port.Port)))
		case port.Name != nil && *port.Name != "":
			all = append(all, *port.Name)
		default:
			all = append(all, "*")
		}
	}
	return shortList(all, unset)
}

func sliceAddresses(s *discoveryv1.EndpointSlice) string {
	var all []string
	for _, e := range s.Endpoints {
		all = append(all, e.Addresses...)
	}
	return shortList(all, unset)
}

func validateEndpointSlice(s *discoveryv1.EndpointSlice) field.ErrorList {
	errs := rules.Enum(s.AddressType, field.NewPath("addressType"),
		discoveryv1.AddressTypeFQDN, discoveryv1.AddressTypeIPv4, discoveryv1.AddressTypeIPv6)
	errs = append(errs, validateSliceEndpoints(s, field.NewPath("endpoints"))...)
	return append(errs, validateSlicePorts(s.Ports, field.NewPath("ports"))...)
}

func validateSliceEndpoints(s *discoveryv1.EndpointSlice, path *field.Path) field.ErrorList {
	if len(s.Endpoints) > maxSliceEndpoints {
		return field.ErrorList{field.TooMany(path, len(s.Endpoints), maxSliceEndpoints)}
	}
	var errs field.ErrorList
	for i, e := range s.Endpoints {
		at := path.Index(i)
		errs = append(errs, validateSliceAddresses(e.Addresses, s.AddressType, at.Child("addresses"))...)
		if e.NodeName != nil {
			errs = append(errs, rules.Invalid(at.Child("nodeName"), *e.NodeName, apivalidation.NameIsDNSSubdomain(*e.NodeName, false))...)
		}
		topology := at.Child("deprecatedTopology")
		if len(e.DeprecatedTopology) > maxSliceTopology {
			errs = append(errs, field.TooMany(topology, len(e.DeprecatedTopology), maxSliceTopology))
		}
		errs = append(errs, metav1validation.ValidateLabels(e.DeprecatedTopology, topology)...)
		if e.Hostname != nil {
			errs = append(errs, rules.DNSLabel(*e.Hostname, at.Child("hostname"))...)
		}
		if e.Hints != nil {
			errs = append(errs, validateHints(e.Hints, at.Child("hints"))...)
		}
	}
	return errs
}

func validateSliceAddresses(addresses []string, kind discoveryv1.AddressType, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	switch n := len(addresses); {
	case n == 0:
		errs = append(errs, field.Required(path, ""))
	case n > maxSliceAddresses:
		return append(errs, field.TooMany(path, n, maxSliceAddresses))
	}
	for i, a := range addresses {
		at := path.Index(i)
		switch kind {
		case discoveryv1.AddressTypeIPv4, discoveryv1.AddressTypeIPv6:
			errs = append(errs, validateSliceIP(a, kind, path, at)...)
		case discoveryv1.AddressTypeFQDN:
			errs = append(errs, validation.IsFullyQualifiedDomainName(at, a)...)
		}
	}
	return errs
}

func validateSliceIP(address string, kind discoveryv1.AddressType, list, path *field.Path) field.ErrorList {
	if errs := validateLegacyIP(address, path); len(errs) > 0 {
		return errs
	}
	errs := rules.NonSpecialIP(address, path)
	if got := discoveryv1.AddressType(familyOf(address)); got != kind {
		errs = append(errs, field.Invalid(list, address, "must be an "+string(kind)+" address"))
	}
	return errs
}

func validateHints(h *discoveryv1.EndpointHints, path *field.Path) field.ErrorList {
	var zones, nodes []string
	for _, zone := range h.ForZones {
		zones = append(zones, zone.Name)
	}
	for _, node := range h.ForNodes {
		nodes = append(nodes, node.Name)
	}
	errs := validateHintNames(zones, path.Child("forZones"), validation.IsValidLabelValue)
	return append(errs, validateHintNames(nodes, path.Child("forNodes"), func(name string) []string {
		return apivalidation.NameIsDNSSubdomain(name, false)
	})...)
}

func validateHintNames(names []string, path *field.Path, validate func(string) []string) field.ErrorList {
	if len(names) > maxSliceHints {
		return field.ErrorList{field.TooMany(path, len(names), maxSliceHints)}
	}
	var errs field.ErrorList
	for i, name := range names {
		at := path.Index(i).Child("name")
		if slices.Contains(names[:i], name) {
			errs = append(errs, field.Duplicate(at, name))
		}
		errs = append(errs, rules.Invalid(at, name, validate(name))...)
	}
	return errs
}

func validateSlicePorts(ports []discoveryv1.EndpointPort, path *field.Path) field.ErrorList {
	if len(ports) > maxSlicePorts {
		return field.ErrorList{field.TooMany(path, len(ports), maxSlicePorts)}
	}
	var errs field.ErrorList
	seen := map[string]bool{}
	for i, port := range ports {
		at, name := path.Index(i), ptr.Deref(port.Name, "")
		if name != "" {
			errs = append(errs, rules.DNSLabel(name, at.Child("name"))...)
		}
		if seen[name] {
			errs = append(errs, field.Duplicate(at.Child("name"), name))
		}
		seen[name] = true
		if port.Protocol == nil {
			errs = append(errs, field.Required(at.Child("protocol"), ""))
		} else {
			errs = append(errs, rules.Supported(*port.Protocol, at.Child("protocol"), corev1.ProtocolSCTP, corev1.ProtocolTCP, corev1.ProtocolUDP)...)
		}
		if port.AppProtocol != nil {
			errs = append(errs, rules.QualifiedName(*port.AppProtocol, at.Child("appProtocol"))...)
		}
	}
	return errs
}
