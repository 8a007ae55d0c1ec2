package podspec

import (
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"portico/backends/core/kinds/rules"
)

// podFields are the fields of a pod that can be named where its object is read.
var podFields = []string{
	"metadata.annotations", "metadata.labels", "metadata.name", "metadata.namespace", "metadata.uid",
	"spec.nodeName", "spec.restartPolicy", "spec.schedulerName", "spec.serviceAccountName",
	"status.hostIP", "status.hostIPs", "status.phase", "status.podIP", "status.podIPs",
}

// subscripted splits the path of an entry of a map: metadata.labels['key'].
func subscripted(path string) (of, key string, ok bool) {
	s, ok := strings.CutSuffix(path, "']")
	if !ok {
		return path, "", false
	}
	of, key, ok = strings.Cut(s, "['")
	if !ok || of == "" {
		return path, "", false
	}
	return of, key, true
}

// validateFieldRef returns the errors of a reference to a field of the pod; supported are the
// fields without a subscript that may be used.
func validateFieldRef(ref *corev1.ObjectFieldSelector, supported []string, path *field.Path) field.ErrorList {
	at := path.Child("fieldPath")
	unknown := func(format string, value string) field.ErrorList {
		return field.ErrorList{field.Invalid(at, ref.FieldPath, "error converting fieldPath: "+fmt.Sprintf(format, value))}
	}
	of, key, entry := subscripted(ref.FieldPath)
	name := of
	if name == "spec.host" {
		name = "spec.nodeName"
	}
	switch {
	case ref.APIVersion == "":
		return field.ErrorList{field.Required(path.Child("apiVersion"), "")}
	case ref.FieldPath == "":
		return field.ErrorList{field.Required(at, "")}
	case ref.APIVersion != "v1":
		return unknown("unsupported pod version: %s", ref.APIVersion)
	case entry && of == "metadata.annotations":
		return rules.QualifiedName(strings.ToLower(key), path)
	case entry && of == "metadata.labels":
		return rules.QualifiedName(key, path)
	case entry:
		return unknown("field label does not support subscript: %s", ref.FieldPath)
	case !slices.Contains(podFields, name):
		return unknown("field label not supported: %s", ref.FieldPath)
	}
	return rules.Supported(name, at, supported...)
}

// containerResources are the resources of a container that can be referred to; huge pages can
// too.
var containerResources = []string{
	"limits.cpu", "limits.ephemeral-storage", "limits.memory", "requests.cpu", "requests.ephemeral-storage", "requests.memory",
}

var (
	cpuDivisors  = []string{"1m", "1"}
	byteDivisors = []string{"1", "1k", "1M", "1G", "1T", "1P", "1E", "1Ki", "1Mi", "1Gi", "1Ti", "1Pi", "1Ei"}
)

// validateResourceRef returns the errors of a reference to a resource of a container, which
// is named if needed.
func validateResourceRef(ref *corev1.ResourceFieldSelector, named bool, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	_, resource, _ := strings.Cut(ref.Resource, ".")
	known := slices.Contains(containerResources, ref.Resource)
	pages := strings.HasPrefix(ref.Resource, "limits.hugepages-") || strings.HasPrefix(ref.Resource, "requests.hugepages-")
	switch {
	case named && ref.ContainerName == "":
		errs = append(errs, field.Required(path.Child("containerName"), ""))
	case ref.Resource == "":
		errs = append(errs, field.Required(path.Child("resource"), ""))
	case !known && !pages:
		errs = append(errs, field.NotSupported(path.Child("resource"), ref.Resource, containerResources))
	}
	divisors, words := byteDivisors, strings.Join(byteDivisors, ", ")
	switch {
	case !known && !pages || ref.Divisor.Sign() == 0:
		return errs
	case pages:
		resource = "hugepages"
	case resource == "cpu":
		divisors, words = cpuDivisors, strings.Join(cpuDivisors, " and ")
	case resource == "ephemeral-storage":
		resource = "local ephemeral storage"
	}
	if !slices.Contains(divisors, ref.Divisor.String()) {
		errs = append(errs, field.Invalid(path.Child("divisor"), ref.Resource, fmt.Sprintf("only divisor's values %s are supported with the %s resource", words, resource)))
	}
	return errs
}
