package podspec

import (
	"fmt"
	"regexp"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/component-helpers/node/util/sysctl"
	"k8s.io/utils/ptr"

	"portico/backends/core/kinds/rules"
)

// maxSysctl is the length of the longest name of a kernel parameter.
const maxSysctl = 253

// sysctlName is the form of the name of a kernel parameter.
var sysctlName = regexp.MustCompile(`^([a-z0-9]([-_a-z0-9]*[a-z0-9])?[\./])*[a-z0-9]([-_a-z0-9]*[a-z0-9])?$`)

// validateSecurity returns the errors of the security context and of what depends on the operating system.
func validateSecurity(spec *corev1.PodSpec, path *field.Path, o Options) field.ErrorList {
	var errs field.ErrorList
	if sc, at := spec.SecurityContext, path.Child("securityContext"); sc != nil {
		errs = append(errs, validateIDs(sc, at)...)
		errs = append(errs, validateSysctls(spec, at.Child("sysctls"), o)...)
		errs = append(errs, validateSeccomp(sc.SeccompProfile, at.Child("seccompProfile"))...)
		errs = append(errs, validateWindowsOptions(sc.WindowsOptions, at.Child("windowsOptions"))...)
		errs = append(errs, validateAppArmor(sc.AppArmorProfile, at.Child("appArmorProfile"))...)
		if p := sc.FSGroupChangePolicy; p != nil {
			errs = append(errs, rules.Supported(*p, at.Child("fsGroupChangePolicy"), corev1.FSGroupChangeAlways, corev1.FSGroupChangeOnRootMismatch)...)
		}
		if p := sc.SupplementalGroupsPolicy; p != nil {
			errs = append(errs, rules.Supported(*p, at.Child("supplementalGroupsPolicy"), corev1.SupplementalGroupsPolicyMerge, corev1.SupplementalGroupsPolicyStrict)...)
		}
		if p := sc.SELinuxChangePolicy; p != nil {
			errs = append(errs, rules.Supported(*p, at.Child("seLinuxChangePolicy"), corev1.SELinuxChangePolicyMountOption, corev1.SELinuxChangePolicyRecursive)...)
		}
	}
	if spec.HostPID && ptr.Deref(spec.ShareProcessNamespace, false) {
		errs = append(errs, field.Invalid(path.Child("shareProcessNamespace"), true, "ShareProcessNamespace and HostPID cannot both be enabled"))
	}
	errs = append(errs, validateHostProcess(spec, path)...)
	errs = append(errs, validateHostUsers(spec, path, o)...)
	return append(errs, validateOS(spec, path)...)
}

// validateIDs returns the errors of the users and groups.
func validateIDs(sc *corev1.PodSecurityContext, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	if id := sc.RunAsUser; id != nil {
		errs = append(errs, rules.Invalid(path.Child("runAsUser"), *id, validation.IsValidUserID(*id))...)
	}
	if id := sc.RunAsGroup; id != nil {
		errs = append(errs, rules.Invalid(path.Child("runAsGroup"), *id, validation.IsValidGroupID(*id))...)
	}
	if id := sc.FSGroup; id != nil {
		errs = append(errs, rules.Invalid(path.Child("fsGroup"), *id, validation.IsValidGroupID(*id))...)
	}
	for i, id := range sc.SupplementalGroups {
		errs = append(errs, rules.Invalid(path.Child("supplementalGroups").Index(i), id, validation.IsValidGroupID(id))...)
	}
	return errs
}

// hostSysctl returns why a kernel parameter cannot be set: it would be that of the host.
func hostSysctl(spec *corev1.PodSpec, name string) string {
	switch namespace, _, _ := sysctl.GetNamespace(name); {
	case spec.HostNetwork && namespace == sysctl.NetNamespace:
		return "may not be specified when 'hostNetwork' is true"
	case spec.HostIPC && namespace == sysctl.IPCNamespace:
		return "may not be specified when 'hostIPC' is true"
	}
	return ""
}

func validateSysctls(spec *corev1.PodSpec, path *field.Path, o Options) field.ErrorList {
	lax := o.stored(func(old *corev1.PodSpec) bool {
		return old.SecurityContext != nil && slices.ContainsFunc(old.SecurityContext.Sysctls, func(s corev1.Sysctl) bool { return hostSysctl(old, s.Name) != "" })
	})
	var errs field.ErrorList
	seen := map[string]bool{}
	for i, s := range spec.SecurityContext.Sysctls {
		at := path.Index(i).Child("name")
		switch {
		case s.Name == "":
			errs = append(errs, field.Required(at, ""))
		case len(s.Name) > maxSysctl || !sysctlName.MatchString(s.Name):
			errs = append(errs, field.Invalid(at, s.Name, fmt.Sprintf("must have at most %d characters and match regex %s", maxSysctl, sysctlName)))
		case seen[s.Name]:
			errs = append(errs, field.Duplicate(at, s.Name))
		}
		seen[s.Name] = true
		if why := hostSysctl(spec, s.Name); why != "" && !lax {
			errs = append(errs, field.Invalid(at, s.Name, why))
		}
	}
	return errs
}

func blockDevices(spec *corev1.PodSpec) bool {
	for c := range Containers(spec) {
		if len(c.VolumeDevices) > 0 {
			return true
		}
	}
	return false
}

// ownUsers reports whether a pod has a user namespace of its own.
func ownUsers(spec *corev1.PodSpec) bool { return spec.HostUsers != nil && !*spec.HostUsers }

// validateHostUsers returns the errors of pods with a user namespace of their own.
func validateHostUsers(spec *corev1.PodSpec, path *field.Path, o Options) field.ErrorList {
	if !ownUsers(spec) {
		return nil
	}
	const why = "when `hostUsers` is false"
	var errs field.ErrorList
	if spec.HostNetwork && !o.stored(func(old *corev1.PodSpec) bool { return old.HostNetwork && ownUsers(old) }) {
		errs = append(errs, field.Forbidden(path.Child("hostNetwork"), why))
	}
	if spec.HostPID {
		errs = append(errs, field.Forbidden(path.Child("HostPID"), why))
	}
	if spec.HostIPC {
		errs = append(errs, field.Forbidden(path.Child("HostIPC"), why))
	}
	if o.stored(func(old *corev1.PodSpec) bool { return ownUsers(old) && blockDevices(old) }) {
		return errs
	}
	for c := range Containers(spec) {
		if len(c.VolumeDevices) > 0 {
			errs = append(errs, field.Forbidden(c.Path(path).Child("volumeDevices"), why))
		}
	}
	return errs
}

// validateSeccomp returns the errors of the seccomp profile of a pod or container.
func validateSeccomp(p *corev1.SeccompProfile, path *field.Path) field.ErrorList {
	if p == nil {
		return nil
	}
	var errs field.ErrorList
	if p.Type == "" {
		errs = append(errs, field.Required(path.Child("type"), "type is required when seccompProfile is set"))
	} else {
		errs = append(errs, rules.Supported(p.Type, path.Child("type"),
			corev1.SeccompProfileTypeLocalhost, corev1.SeccompProfileTypeRuntimeDefault, corev1.SeccompProfileTypeUnconfined)...)
	}
	at := path.Child("localhostProfile")
	switch local := p.Type == corev1.SeccompProfileTypeLocalhost; {
	case local && p.LocalhostProfile == nil:
		errs = append(errs, field.Required(at, "must be set when seccomp type is Localhost"))
	case local:
		errs = append(errs, rules.RelativePath(*p.LocalhostProfile, at)...)
	case p.LocalhostProfile != nil:
		errs = append(errs, field.Invalid(at, p, "can only be set when seccomp type is Localhost"))
	}
	return errs
}

// maxAppArmorProfile is the length of the longest name of a profile.
const maxAppArmorProfile = 4095

// validateAppArmor returns the errors of the AppArmor profile of a pod or container.
func validateAppArmor(p *corev1.AppArmorProfile, path *field.Path) field.ErrorList {
	if p == nil {
		return nil
	}
	var errs field.ErrorList
	at := path.Child("localhostProfile")
	switch p.Type {
	case corev1.AppArmorProfileTypeLocalhost:
		missing := field.Required(at, "must be set when AppArmor type is Localhost")
		if p.LocalhostProfile == nil {
			return field.ErrorList{missing}
		}
		name := *p.LocalhostProfile
		if trimmed := strings.TrimSpace(name); trimmed != name {
			errs = append(errs, field.Invalid(at, name, "must not be padded with whitespace"))
		} else if name == "" {
			errs = append(errs, missing)
		}
		if len(name) > maxAppArmorProfile {
			errs = append(errs, field.TooLong(at, "", maxAppArmorProfile))
		}
	case corev1.AppArmorProfileTypeRuntimeDefault, corev1.AppArmorProfileTypeUnconfined:
		if p.LocalhostProfile != nil {
			errs = append(errs, field.Invalid(at, p.LocalhostProfile, "can only be set when AppArmor type is Localhost"))
		}
	case "":
		errs = append(errs, field.Required(path.Child("type"), "type is required when appArmorProfile is set"))
	default:
		errs = append(errs, rules.Supported(p.Type, path.Child("type"),
			corev1.AppArmorProfileTypeLocalhost, corev1.AppArmorProfileTypeRuntimeDefault, corev1.AppArmorProfileTypeUnconfined)...)
	}
	return errs
}

const (
	maxCredentialSpecKiB = 64
	maxWindowsDomain     = 256
	maxWindowsUser       = 104
)

// The forms of Windows user names: a NetBIOS name or a DNS name, and a user.
var (
	control          = regexp.MustCompile(`[[:cntrl:]]`)
	netBIOSName      = regexp.MustCompile(`^[^\\/:*?"<>|.][^\\/:*?"<>|]{0,14}$`)
	windowsDNSName   = regexp.MustCompile(`^[a-zA-Z0-9](?:[a-zA-Z0-9-]{0,61}[a-zA-Z0-9])?(?:\.[a-zA-Z0-9](?:[a-zA-Z0-9-]{0,61}[a-zA-Z0-9])?)*$`)
	dotsAndSpaces    = regexp.MustCompile(`^[. ]+$`)
	badUserCharacter = regexp.MustCompile(`["/\\:;|=,+*?<>@\[\]]`)
)

// validateWindowsOptions returns the errors of the Windows options of a pod or container.
func validateWindowsOptions(o *corev1.WindowsSecurityContextOptions, path *field.Path) field.ErrorList {
	if o == nil {
		return nil
	}
	var errs field.ErrorList
	if name := o.GMSACredentialSpecName; name != nil {
		errs = append(errs, rules.Invalid(path.Child("gmsaCredentialSpecName"), *name, validation.IsDNS1123Subdomain(*name))...)
	}
	if spec := o.GMSACredentialSpec; spec != nil {
		at := path.Child("gmsaCredentialSpec")
		if *spec == "" {
			errs = append(errs, field.Invalid(at, *spec, "gmsaCredentialSpec cannot be an empty string"))
		} else if len(*spec) > maxCredentialSpecKiB<<10 {
			errs = append(errs, field.Invalid(at, *spec, fmt.Sprintf("gmsaCredentialSpec size must be under %d KiB", maxCredentialSpecKiB)))
		}
	}
	if user := o.RunAsUserName; user != nil {
		for _, m := range windowsUser(*user) {
			errs = append(errs, field.Invalid(path.Child("runAsUserName"), *user, "runAsUserName"+m))
		}
	}
	return errs
}

// windowsUser returns what is wrong with the name of a user, with or without a domain.
func windowsUser(name string) []string {
	domain, user, hasDomain := strings.Cut(name, `\`)
	if !hasDomain {
		user = name
	}
	switch {
	case name == "":
		return []string{" cannot be an empty string"}
	case control.MatchString(name):
		return []string{" cannot contain control characters"}
	case strings.Contains(user, `\`):
		return []string{" cannot contain more than one backslash"}
	}
	var out []string
	for _, c := range []struct {
		wrong   bool
		message string
	}{
		{hasDomain && len(domain) >= maxWindowsDomain, fmt.Sprintf("'s Domain length must be under %d characters", maxWindowsDomain)},
		{hasDomain && !netBIOSName.MatchString(domain) && !windowsDNSName.MatchString(domain), "'s Domain doesn't match the NetBios nor the DNS format"},
		{user == "", "'s User cannot be empty"},
		{len(user) > maxWindowsUser, fmt.Sprintf("'s User length must not be longer than %d characters", maxWindowsUser)},
		{dotsAndSpaces.MatchString(user), "'s User cannot contain only periods or spaces"},
		{badUserCharacter.MatchString(user), `'s User cannot contain the following characters: "/\:;|=,+*?<>@[]`},
	} {
		if c.wrong {
			out = append(out, c.message)
		}
	}
	return out
}
