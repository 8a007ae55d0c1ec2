package podspec

import (
	"fmt"
	"reflect"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1validation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/utils/ptr"

	"portico/backends/core/kinds/rules"
)

// ClaimOptions are the values that older releases accepted and that a stored claim has.
type ClaimOptions struct {
	// LabelValues permits values in the selector that no label can have, and Groups names of
	// groups of data sources that no group can have.
	LabelValues, Groups bool
}

// ValidateClaimSpec returns the errors of the spec of a claim or a claim template.
func ValidateClaimSpec(spec *corev1.PersistentVolumeClaimSpec, path *field.Path, o ClaimOptions) field.ErrorList {
	var errs field.ErrorList
	if len(spec.AccessModes) == 0 {
		errs = append(errs, field.Required(path.Child("accessModes"), "at least 1 access mode is required"))
	}
	errs = append(errs, ValidateAccessModes(spec.AccessModes, path.Child("accessModes"))...)
	errs = append(errs, metav1validation.ValidateLabelSelector(spec.Selector,
		metav1validation.LabelSelectorValidationOptions{AllowInvalidLabelValueInSelector: o.LabelValues}, path.Child("selector"))...)
	at := path.Child("resources").Key(string(corev1.ResourceStorage))
	if size, ok := spec.Resources.Requests[corev1.ResourceStorage]; !ok {
		errs = append(errs, field.Required(at, ""))
	} else if positive := ValidatePositive(size, at); len(positive) > 0 {
		errs = append(errs, positive...)
	}
	for name, class := range map[string]*string{"storageClassName": spec.StorageClassName, "volumeAttributesClassName": spec.VolumeAttributesClassName} {
		if c := ptr.Deref(class, ""); c != "" {
			errs = append(errs, rules.Subdomain(c, path.Child(name))...)
		}
	}
	errs = append(errs, ValidateVolumeMode(spec.VolumeMode, path.Child("volumeMode"))...)
	return append(errs, validateDataSources(spec, path, o)...)
}

func validateDataSources(spec *corev1.PersistentVolumeClaimSpec, path *field.Path, o ClaimOptions) field.ErrorList {
	var errs field.ErrorList
	source, ref := spec.DataSource, spec.DataSourceRef
	if source != nil {
		errs = append(errs, validateDataSource(source.APIGroup, source.Kind, source.Name, path.Child("dataSource"), o)...)
	}
	if ref == nil {
		return errs
	}
	errs = append(errs, validateDataSource(ref.APIGroup, ref.Kind, ref.Name, path.Child("dataSourceRef"), o)...)
	namespace := ptr.Deref(ref.Namespace, "")
	if namespace != "" {
		errs = append(errs, rules.DNSLabel(namespace, path.Child("dataSourceRef", "namespace"))...)
	}
	switch {
	case source == nil:
	case namespace != "":
		errs = append(errs, field.Invalid(path, path.Child("dataSource"), "may not be specified when dataSourceRef.namespace is specified"))
	case !ptr.Equal(source.APIGroup, ref.APIGroup) || source.Kind != ref.Kind || source.Name != ref.Name:
		errs = append(errs, field.Invalid(path, path.Child("dataSource"), "must match dataSourceRef"))
	}
	return errs
}

func validateDataSource(apiGroup *string, kind, name string, path *field.Path, o ClaimOptions) field.ErrorList {
	errs := Required(path, "name", name, "kind", kind)
	switch group := ptr.Deref(apiGroup, ""); {
	case group == "" && kind != "PersistentVolumeClaim":
		errs = append(errs, field.Invalid(path, kind, "must be 'PersistentVolumeClaim' when referencing the default apiGroup"))
	case group != "" && !o.Groups:
		errs = append(errs, rules.Subdomain(group, path.Child("apiGroup"))...)
	}
	return errs
}

// ValidateAccessModes returns the errors of the access modes of a claim or a volume.
func ValidateAccessModes(modes []corev1.PersistentVolumeAccessMode, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	one, others := false, false
	for _, m := range modes {
		wrong := rules.Supported(m, path, corev1.ReadOnlyMany, corev1.ReadWriteMany, corev1.ReadWriteOnce, corev1.ReadWriteOncePod)
		errs = append(errs, wrong...)
		one = one || m == corev1.ReadWriteOncePod
		others = others || m != corev1.ReadWriteOncePod && wrong == nil
	}
	if one && others {
		errs = append(errs, field.Forbidden(path, "may not use ReadWriteOncePod with other access modes"))
	}
	return errs
}

// ValidateVolumeMode returns the errors of the mode of a claim or a volume.
func ValidateVolumeMode(mode *corev1.PersistentVolumeMode, path *field.Path) field.ErrorList {
	if mode == nil {
		return nil
	}
	return rules.Supported(*mode, path, corev1.PersistentVolumeBlock, corev1.PersistentVolumeFilesystem)
}

// ValidatePositive requires a quantity above zero.
func ValidatePositive(q resource.Quantity, path *field.Path) field.ErrorList {
	if q.Sign() <= 0 {
		return field.ErrorList{field.Invalid(path, q.String(), "must be greater than zero")}
	}
	return nil
}

// onlyFields refuses a struct that has other fields than the allowed ones.
func onlyFields(value any, path *field.Path, allowed ...string) field.ErrorList {
	var errs field.ErrorList
	v := reflect.ValueOf(value)
	for i := range v.NumField() {
		if name := v.Type().Field(i).Name; !slices.Contains(allowed, name) && !v.Field(i).IsZero() {
			errs = append(errs, field.Forbidden(path.Child(strings.ToLower(name[:1])+name[1:]), "cannot be set"))
		}
	}
	return errs
}

// ClaimWarnings returns the warnings about the spec of a claim or a claim template.
func ClaimWarnings(spec *corev1.PersistentVolumeClaimSpec, path *field.Path) []string {
	var out []string
	for _, list := range []struct {
		name      string
		resources corev1.ResourceList
	}{{"requests", spec.Resources.Requests}, {"limits", spec.Resources.Limits}} {
		if size := list.resources[corev1.ResourceStorage]; size.MilliValue()%1000 != 0 {
			out = append(out, fmt.Sprintf("%s: fractional byte value %q is invalid, must be an integer",
				path.Child("resources", list.name).Key(string(corev1.ResourceStorage)), size.String()))
		}
	}
	return out
}
