package kinds

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// invalid returns an error for each message about a value.
func invalid(path *field.Path, value any, messages []string) field.ErrorList {
	var errs field.ErrorList
	for _, m := range messages {
		errs = append(errs, field.Invalid(path, value, m))
	}
	return errs
}

func validateDNSLabel(value string, path *field.Path) field.ErrorList {
	return invalid(path, value, validation.IsDNS1123Label(value))
}

func validateQualifiedName(value string, path *field.Path) field.ErrorList {
	return invalid(path, value, validation.IsQualifiedName(value))
}

// validateEnum is validateSupported for a required value.
func validateEnum[T ~string](value T, path *field.Path, supported ...T) field.ErrorList {
	if value == "" {
		return field.ErrorList{field.Required(path, "")}
	}
	return validateSupported(value, path, supported...)
}

// validateSupported requires one of the supported values, which callers sort.
func validateSupported[T ~string](value T, path *field.Path, supported ...T) field.ErrorList {
	if slices.Contains(supported, value) {
		return nil
	}
	return field.ErrorList{field.NotSupported(path, value, supported)}
}

// joined joins values for a message.
func joined[T ~string](values []T) string {
	texts := make([]string, len(values))
	for i, v := range values {
		texts[i] = string(v)
	}
	return strings.Join(texts, ", ")
}

func validateProtocol(p corev1.Protocol, path *field.Path) field.ErrorList {
	return validateEnum(p, path, corev1.ProtocolSCTP, corev1.ProtocolTCP, corev1.ProtocolUDP)
}

// validateNonSpecialIP rejects addresses by which a tenant could reach the loopback interface
// or the metadata service of other machines.
func validateNonSpecialIP(address string, path *field.Path) field.ErrorList {
	ip, err := netip.ParseAddr(address)
	if err != nil {
		return field.ErrorList{field.Invalid(path, address, "must be a valid IP address")}
	}
	ip = ip.Unmap()
	refuse := func(reason string) field.ErrorList {
		return field.ErrorList{field.Invalid(path, address, reason)}
	}
	switch {
	case ip.IsUnspecified():
		return refuse(fmt.Sprintf("may not be unspecified (%v)", address))
	case ip.IsLoopback():
		return refuse("may not be in the loopback range (127.0.0.0/8, ::1/128)")
	case ip.IsLinkLocalUnicast():
		return refuse("may not be in the link-local range (169.254.0.0/16, fe80::/10)")
	case ip.IsLinkLocalMulticast():
		return refuse("may not be in the link-local multicast range (224.0.0.0/24, ff02::/10)")
	}
	return nil
}
