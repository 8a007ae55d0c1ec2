package podspec

import (
	"fmt"
	"regexp"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"portico/backends/core/kinds/rules"
)

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
