package podspec

import (
	corev1 "k8s.io/api/core/v1"
	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"portico/backends/core/kinds/rules"
)

// envFields are the fields of the pod that environment variables can have.
var envFields = []string{
	"metadata.name", "metadata.namespace", "metadata.uid", "spec.nodeName", "spec.serviceAccountName",
	"status.hostIP", "status.hostIPs", "status.podIP", "status.podIPs",
}

// required is check for a value that must not be empty.
func required(value string, path *field.Path, check func(string) []string) field.ErrorList {
	if value == "" {
		return field.ErrorList{field.Required(path, "")}
	}
	return rules.Invalid(path, value, check(value))
}

// validateEnv returns the errors of environment variables. files are the volumes of the pod,
// true for those with variables.
func validateEnv(vars []corev1.EnvVar, files map[string]bool, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	for i, v := range vars {
		errs = append(errs, required(v.Name, path.Index(i).Child("name"), validation.IsRelaxedEnvVarName)...)
		if v.ValueFrom == nil {
			continue
		}
		at, sources := path.Index(i).Child("valueFrom"), 0
		source := func(wrong field.ErrorList) { sources, errs = sources+1, append(errs, wrong...) }
		if ref := v.ValueFrom.FieldRef; ref != nil {
			source(validateFieldRef(ref, envFields, at.Child("fieldRef")))
		}
		if ref := v.ValueFrom.ResourceFieldRef; ref != nil {
			source(validateResourceRef(ref, false, at.Child("resourceFieldRef")))
		}
		if ref := v.ValueFrom.ConfigMapKeyRef; ref != nil {
			source(validateKeyRef(ref.Name, ref.Key, at.Child("configMapKeyRef")))
		}
		if ref := v.ValueFrom.SecretKeyRef; ref != nil {
			source(validateKeyRef(ref.Name, ref.Key, at.Child("secretKeyRef")))
		}
		if ref := v.ValueFrom.FileKeyRef; ref != nil {
			source(validateFileKeyRef(ref, files, at.Child("fileKeyRef")))
		}
		switch {
		case sources == 0:
			errs = append(errs, field.Invalid(at, "", "must specify one of: `fieldRef`, `resourceFieldRef`, `configMapKeyRef`, `secretKeyRef` or `fileKeyRef`"))
		case v.Value != "":
			errs = append(errs, field.Invalid(at, "", "may not be specified when `value` is not empty"))
		case sources > 1:
			errs = append(errs, field.Invalid(at, "", "may not have more than one field specified at a time"))
		}
	}
	return errs
}

// validateKeyRef returns the errors of a reference to a key of a config map or secret.
func validateKeyRef(name, key string, path *field.Path) field.ErrorList {
	errs := rules.Invalid(path.Child("name"), name, apivalidation.NameIsDNSSubdomain(name, false))
	return append(errs, required(key, path.Child("key"), validation.IsConfigMapKey)...)
}

// validateFileKeyRef returns the errors of a reference to a variable in a file, which is in an
// empty directory.
func validateFileKeyRef(ref *corev1.FileKeySelector, files map[string]bool, path *field.Path) field.ErrorList {
	errs := required(ref.Key, path.Child("key"), validation.IsRelaxedEnvVarName)
	errs = append(errs, required(ref.VolumeName, path.Child("volumeName"), validation.IsDNS1123Label)...)
	if ref.Path == "" {
		errs = append(errs, field.Required(path.Child("path"), ""))
	} else {
		errs = append(errs, rules.NoParent(ref.Path, path.Child("path"))...)
	}
	if empty, ok := files[ref.VolumeName]; !ok {
		errs = append(errs, field.NotFound(path.Child("volumeName"), ref.VolumeName))
	} else if !empty {
		errs = append(errs, field.Invalid(path.Child("volumeName"), ref.VolumeName, "referenced volume must be of type emptyDir"))
	}
	return errs
}

// validateEnvFrom returns the errors of sources of many environment variables.
func validateEnvFrom(froms []corev1.EnvFromSource, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	for i, from := range froms {
		at, sources := path.Index(i), 0
		if from.Prefix != "" {
			errs = append(errs, rules.Invalid(at.Child("prefix"), from.Prefix, validation.IsRelaxedEnvVarName(from.Prefix))...)
		}
		source := func(name string, at *field.Path) {
			sources++
			errs = append(errs, required(name, at.Child("name"), func(name string) []string { return apivalidation.NameIsDNSSubdomain(name, true) })...)
		}
		if ref := from.ConfigMapRef; ref != nil {
			source(ref.Name, at.Child("configMapRef"))
		}
		if ref := from.SecretRef; ref != nil {
			source(ref.Name, at.Child("secretRef"))
		}
		switch {
		case sources == 0:
			errs = append(errs, field.Invalid(path, "", "must specify one of: `configMapRef` or `secretRef`"))
		case sources > 1:
			errs = append(errs, field.Invalid(path, "", "may not have more than one field specified at a time"))
		}
	}
	return errs
}
