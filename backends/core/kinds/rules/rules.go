// Package rules has the checks of field values that the kinds of the core server share. Their
// messages are those of kube-apiserver.
//
// Runs in: core.
package rules

import (
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/api/validate/content"
	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
	netutils "k8s.io/utils/net"
)

// Default sets a field that is nil.
func Default[T any](to **T, value T) {
	if *to == nil {
		*to = &value
	}
}

// RoundUp rounds quantities up to thousandths, the precision in which they are kept.
func RoundUp(resources corev1.ResourceList) {
	for name, quantity := range resources {
		quantity.RoundUp(resource.Milli)
		resources[name] = quantity
	}
}

// Invalid returns an error for each message about a value.
func Invalid(path *field.Path, value any, messages []string) field.ErrorList {
	var errs field.ErrorList
	for _, m := range messages {
		errs = append(errs, field.Invalid(path, value, m))
	}
	return errs
}

// DNSLabel requires a label of a domain name (RFC 1123).
func DNSLabel(value string, path *field.Path) field.ErrorList {
	return Invalid(path, value, validation.IsDNS1123Label(value))
}

// PathSegment requires a value that may be one segment of a URL path.
func PathSegment(value string, path *field.Path) field.ErrorList {
	if value == "" {
		return field.ErrorList{field.Required(path, "")}
	}
	return Invalid(path, value, content.IsPathSegmentName(value))
}

// NoIP rejects an IP address in the place of a host name.
func NoIP(host string, path *field.Path) field.ErrorList {
	if netutils.ParseIPSloppy(host) == nil {
		return nil
	}
	return field.ErrorList{field.Invalid(path, host, "must be a DNS name, not an IP address")}
}

// Immutable refuses a change of a field. The error has no value, as that of a field which
// kube-apiserver declares as immutable.
func Immutable(now, was any, path *field.Path) field.ErrorList {
	if equality.Semantic.DeepEqual(now, was) {
		return nil
	}
	return field.ErrorList{field.Invalid(path, nil, apivalidation.FieldImmutableErrorMsg)}
}

// QualifiedName requires a name that may have a domain before it, as that of a label.
func QualifiedName(value string, path *field.Path) field.ErrorList {
	return Invalid(path, value, validation.IsQualifiedName(value))
}

// Enum is Supported for a required value.
func Enum[T ~string](value T, path *field.Path, supported ...T) field.ErrorList {
	if value == "" {
		return field.ErrorList{field.Required(path, "")}
	}
	return Supported(value, path, supported...)
}

// Supported requires one of the supported values, which callers sort.
func Supported[T ~string](value T, path *field.Path, supported ...T) field.ErrorList {
	if slices.Contains(supported, value) {
		return nil
	}
	return field.ErrorList{field.NotSupported(path, value, supported)}
}

// Joined joins values for a message.
func Joined[T ~string](values []T) string {
	texts := make([]string, len(values))
	for i, v := range values {
		texts[i] = string(v)
	}
	return strings.Join(texts, ", ")
}

// TaintEffects are the effects of a taint.
var TaintEffects = []corev1.TaintEffect{corev1.TaintEffectNoSchedule, corev1.TaintEffectPreferNoSchedule, corev1.TaintEffectNoExecute}

// Protocol requires a transport protocol.
func Protocol(p corev1.Protocol, path *field.Path) field.ErrorList {
	return Enum(p, path, corev1.ProtocolSCTP, corev1.ProtocolTCP, corev1.ProtocolUDP)
}

// IntOrPercent requires a number that is not negative or a percentage.
func IntOrPercent(value intstr.IntOrString, path *field.Path) field.ErrorList {
	if value.Type == intstr.String {
		return Invalid(path, value, validation.IsValidPercent(value.StrVal))
	}
	return apivalidation.ValidateNonnegativeField(int64(value.IntVal), path)
}

// AtMost100Percent rejects percentages above 100; numbers may have any value.
func AtMost100Percent(value intstr.IntOrString, path *field.Path) field.ErrorList {
	if isPercent(value) && PercentValue(value) > 100 {
		return field.ErrorList{field.Invalid(path, value, "must not be greater than 100%")}
	}
	return nil
}

func isPercent(value intstr.IntOrString) bool {
	return value.Type == intstr.String && len(validation.IsValidPercent(value.StrVal)) == 0
}

// PercentValue returns a number, or a percentage without its sign; 0 if it is not well formed.
func PercentValue(value intstr.IntOrString) int {
	if !isPercent(value) {
		return value.IntValue()
	}
	n, _ := strconv.Atoi(strings.TrimSuffix(value.StrVal, "%")) // the largest number if it is out of range
	return n
}

// NonSpecialIP rejects addresses by which a tenant could reach the loopback interface
// or the metadata service of other machines.
func NonSpecialIP(address string, path *field.Path) field.ErrorList {
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

// Subdomain requires a domain name (RFC 1123), which most names of objects are.
func Subdomain(value string, path *field.Path) field.ErrorList {
	return Invalid(path, value, validation.IsDNS1123Subdomain(value))
}

// Present requires a value.
func Present(value string, path *field.Path) field.ErrorList {
	if value == "" {
		return field.ErrorList{field.Required(path, "")}
	}
	return nil
}

// Nonnegative requires a quantity that is not negative.
func Nonnegative(q resource.Quantity, path *field.Path) field.ErrorList {
	if q.Sign() < 0 {
		return field.ErrorList{field.Invalid(path, q.String(), apivalidation.IsNegativeErrorMsg)}
	}
	return nil
}

// Unique returns an error for each value that is in the list before.
func Unique(values []string, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	seen := make(map[string]bool, len(values))
	for i, v := range values {
		if seen[v] {
			errs = append(errs, field.Duplicate(path.Index(i), v))
		}
		seen[v] = true
	}
	return errs
}

// BasicQuantity requires a quantity that is not negative once it is rounded up.
func BasicQuantity(q resource.Quantity, path *field.Path) field.ErrorList {
	if v := q.Value(); v < 0 {
		return field.ErrorList{field.Invalid(path, v, "must be a valid resource quantity")}
	}
	return nil
}
