package kinds

import (
	"fmt"
	"net/netip"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// invalid turns complaints about one value into field errors.
func invalid(path *field.Path, value any, complaints []string) field.ErrorList {
	var errs field.ErrorList
	for _, c := range complaints {
		errs = append(errs, field.Invalid(path, value, c))
	}
	return errs
}

func validateDNSLabel(value string, path *field.Path) field.ErrorList {
	return invalid(path, value, validation.IsDNS1123Label(value))
}

func validateQualifiedName(value string, path *field.Path) field.ErrorList {
	return invalid(path, value, validation.IsQualifiedName(value))
}

// validateEnum takes the values given, and complains about an empty one by
// asking for a value.
func validateEnum[T ~string](value T, path *field.Path, supported ...T) field.ErrorList {
	if value == "" {
		return field.ErrorList{field.Required(path, "")}
	}
	return validateSupported(value, path, supported...)
}

// validateSupported takes the values given. They are listed in the order
// given, which callers keep sorted.
func validateSupported[T ~string](value T, path *field.Path, supported ...T) field.ErrorList {
	for _, s := range supported {
		if value == s {
			return nil
		}
	}
	return field.ErrorList{field.NotSupported(path, value, supported)}
}

func validateProtocol(p corev1.Protocol, path *field.Path) field.ErrorList {
	return validateEnum(p, path, corev1.ProtocolSCTP, corev1.ProtocolTCP, corev1.ProtocolUDP)
}

// validateNonSpecialIP refuses addresses that can be no endpoint: they would
// let a tenant reach the loopback or the metadata services of other machines.
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
