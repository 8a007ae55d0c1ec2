package podspec

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"portico/backends/core/kinds/rules"
)

func isOS(spec *corev1.PodSpec, name corev1.OSName) bool {
	return spec.OS != nil && spec.OS.Name == name
}

// forbidden returns an error for each field that is set.
func forbidden(path *field.Path, why string, set map[string]bool) field.ErrorList {
	var errs field.ErrorList
	for name, ok := range set {
		if ok {
			errs = append(errs, field.Forbidden(path.Child(name), why))
		}
	}
	return errs
}

// validateOS forbids the fields that the operating system of a pod does not have.
func validateOS(spec *corev1.PodSpec, path *field.Path) field.ErrorList {
	switch {
	case spec.OS == nil:
		return nil
	case spec.OS.Name == "":
		return field.ErrorList{field.Required(path.Child("os", "name"), "")}
	case isOS(spec, corev1.Linux):
		return validateLinux(spec, path)
	case isOS(spec, corev1.Windows):
		return validateWindows(spec, path)
	}
	return rules.Supported(spec.OS.Name, path.Child("os"), corev1.Linux, corev1.Windows)
}

func validateLinux(spec *corev1.PodSpec, path *field.Path) field.ErrorList {
	const why = "windows options cannot be set for a linux pod"
	var errs field.ErrorList
	if sc := spec.SecurityContext; sc != nil && sc.WindowsOptions != nil {
		errs = append(errs, field.Forbidden(path.Child("securityContext", "windowsOptions"), why))
	}
	for c := range Containers(spec) {
		if sc := c.SecurityContext; sc != nil && sc.WindowsOptions != nil {
			errs = append(errs, field.Forbidden(c.Path(path).Child("securityContext", "windowsOptions"), why))
		}
	}
	return errs
}

func validateWindows(spec *corev1.PodSpec, path *field.Path) field.ErrorList {
	const why = "cannot be set for a windows pod"
	errs := forbidden(path, why, map[string]bool{
		"hostUsers": spec.HostUsers != nil, "hostPID": spec.HostPID, "hostIPC": spec.HostIPC,
		"shareProcessNamespace": spec.ShareProcessNamespace != nil,
	})
	if sc := spec.SecurityContext; sc != nil {
		errs = append(errs, forbidden(path.Child("securityContext"), why, map[string]bool{
			"appArmorProfile":          sc.AppArmorProfile != nil,
			"seLinuxOptions":           sc.SELinuxOptions != nil,
			"seccompProfile":           sc.SeccompProfile != nil,
			"fsGroup":                  sc.FSGroup != nil,
			"fsGroupChangePolicy":      sc.FSGroupChangePolicy != nil,
			"sysctls":                  len(sc.Sysctls) > 0,
			"runAsUser":                sc.RunAsUser != nil,
			"runAsGroup":               sc.RunAsGroup != nil,
			"supplementalGroups":       sc.SupplementalGroups != nil,
			"supplementalGroupsPolicy": sc.SupplementalGroupsPolicy != nil,
			"seLinuxChangePolicy":      sc.SELinuxChangePolicy != nil,
		})...)
	}
	for c := range Containers(spec) {
		if sc := c.SecurityContext; sc != nil {
			errs = append(errs, forbidden(c.Path(path).Child("securityContext"), why, map[string]bool{
				"appArmorProfile":          sc.AppArmorProfile != nil,
				"seLinuxOptions":           sc.SELinuxOptions != nil,
				"seccompProfile":           sc.SeccompProfile != nil,
				"capabilities":             sc.Capabilities != nil,
				"readOnlyRootFilesystem":   sc.ReadOnlyRootFilesystem != nil,
				"privileged":               sc.Privileged != nil,
				"allowPrivilegeEscalation": sc.AllowPrivilegeEscalation != nil,
				"procMount":                sc.ProcMount != nil,
				"runAsUser":                sc.RunAsUser != nil,
				"runAsGroup":               sc.RunAsGroup != nil,
			})...)
		}
	}
	return errs
}

// hostProcess returns the setting of HostProcess, nil if there is none.
func hostProcess(w *corev1.WindowsSecurityContextOptions) *bool {
	if w == nil {
		return nil
	}
	return w.HostProcess
}

// validateHostProcess requires that all containers are processes of the host or none is.
func validateHostProcess(spec *corev1.PodSpec, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	var pod *bool
	if spec.SecurityContext != nil {
		pod = hostProcess(spec.SecurityContext.WindowsOptions)
	}
	count, all := 0, 0
	for c := range Containers(spec) {
		all++
		var own *bool
		if c.SecurityContext != nil {
			own = hostProcess(c.SecurityContext.WindowsOptions)
		}
		if pod != nil && own != nil && *pod != *own {
			errs = append(errs, field.Invalid(c.Path(path).Child("securityContext", "windowsOptions", "hostProcess"), *own,
				fmt.Sprintf("pod hostProcess value must be identical if both are specified, was %v", *pod)))
		}
		if own != nil && *own || own == nil && pod != nil && *pod {
			count++
		}
	}
	if count > 0 && count != all {
		errs = append(errs, field.Invalid(path, "", "If pod contains any hostProcess containers then all containers must be HostProcess containers"))
	}
	if count > 0 && !spec.HostNetwork {
		errs = append(errs, field.Invalid(path.Child("hostNetwork"), false, "hostNetwork must be true if pod contains any hostProcess containers"))
	}
	return errs
}
