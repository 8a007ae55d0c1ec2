package podspec

import (
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"portico/backends/core/kinds/rules"
)

// containerRules are what the rules of a container depend on beside the container.
type containerRules struct {
	Options
	spec    *corev1.PodSpec
	volumes map[string]*corev1.Volume
	claims  sets.Set[string]
	// files tells for each volume whether it can have files with environment variables.
	files map[string]bool
	// The stored spec has quantities of huge pages that are not whole pages, an
	// administrator without privilege escalation, and an init container that restarts when
	// it is resized.
	brokenPages, admins, restarting bool
}

// validateContainers returns the errors of the containers of all three lists.
func validateContainers(spec *corev1.PodSpec, volumes map[string]*corev1.Volume, path *field.Path, o Options) field.ErrorList {
	r := &containerRules{
		Options: o, spec: spec, volumes: volumes, claims: claimNames(spec), files: map[string]bool{},
		brokenPages: o.stored(hasBrokenPages), admins: o.stored(hasAdmins), restarting: o.stored(hasRestartingInit),
	}
	for _, v := range spec.Volumes {
		r.files[v.Name] = v.EmptyDir != nil
	}
	var errs field.ErrorList
	if len(spec.Containers) == 0 {
		errs = append(errs, field.Required(path.Child("containers"), ""))
	}
	for c := range Containers(spec) {
		at := c.Path(path)
		errs = append(errs, r.common(c, at)...)
		switch {
		case c.Ephemeral:
			errs = append(errs, ephemeral(c.Container, at)...)
		case c.Init:
			errs = append(errs, r.init(c, at)...)
		default:
			errs = append(errs, r.handlers(c.Container, at)...)
			errs = append(errs, validateRestart(c, at)...)
		}
	}
	errs = append(errs, uniqueNames(spec, path)...)
	return append(errs, uniqueHostPorts(spec, path)...)
}

// common returns the errors of what all containers have.
func (r *containerRules) common(c Container, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	if c.Name == "" {
		errs = append(errs, field.Required(path.Child("name"), ""))
	} else {
		errs = append(errs, rules.DNSLabel(c.Name, path.Child("name"))...)
	}
	switch {
	case c.Image == "":
		errs = append(errs, field.Required(path.Child("image"), ""))
	case (r.Pod || c.Ephemeral) && c.Image != strings.TrimSpace(c.Image):
		errs = append(errs, field.Invalid(path.Child("image"), c.Image, "must not have leading or trailing whitespace"))
	}
	errs = append(errs, rules.Enum(c.TerminationMessagePolicy, path.Child("terminationMessagePolicy"),
		corev1.TerminationMessageReadFile, corev1.TerminationMessageFallbackToLogsOnError)...)
	errs = append(errs, validatePorts(c.Ports, path.Child("ports"))...)
	errs = append(errs, validateEnv(c.Env, r.files, path.Child("env"))...)
	errs = append(errs, validateEnvFrom(c.EnvFrom, path.Child("envFrom"))...)
	errs = append(errs, validateMounts(c.Container, r.volumes, path.Child("volumeMounts"))...)
	errs = append(errs, validateDevices(c.Container, r.volumes, path.Child("volumeDevices"))...)
	errs = append(errs, rules.Enum(c.ImagePullPolicy, path.Child("imagePullPolicy"), corev1.PullAlways, corev1.PullIfNotPresent, corev1.PullNever)...)
	errs = append(errs, rules.ResourceRequirements(&c.Resources, rules.ContainerResourceName, r.brokenPages, path.Child("resources"))...)
	errs = append(errs, claimReferences(c.Resources.Claims, r.claims, path.Child("resources", "claims"))...)
	errs = append(errs, validateResize(c.ResizePolicy, r.spec.RestartPolicy, path.Child("resizePolicy"))...)
	return append(errs, r.security(c.SecurityContext, path.Child("securityContext"))...)
}

// init returns the errors of what differs for init containers.
func (r *containerRules) init(c Container, path *field.Path) field.ErrorList {
	errs := validateRestart(c, path)
	if c.Sidecar {
		return append(errs, r.handlers(c.Container, path)...)
	}
	for _, f := range handlerFields(c.Container) {
		if f.set {
			errs = append(errs, field.Forbidden(path.Child(f.name), "may not be set for init containers without restartPolicy=Always"))
		}
	}
	for i, p := range c.ResizePolicy {
		if p.RestartPolicy == corev1.RestartContainer && !r.restarting {
			errs = append(errs, field.Invalid(path.Child("resizePolicy").Index(i).Child("restartPolicy"), p.RestartPolicy, "must not be set to 'RestartContainer' for non-sidecar initContainers"))
		}
	}
	return errs
}

// hasRestartingInit reports whether a resize restarts an init container that is no sidecar.
func hasRestartingInit(spec *corev1.PodSpec) bool {
	for c := range Containers(spec) {
		restarts := func(p corev1.ContainerResizePolicy) bool { return p.RestartPolicy == corev1.RestartContainer }
		if c.Init && !c.Sidecar && slices.ContainsFunc(c.ResizePolicy, restarts) {
			return true
		}
	}
	return false
}

// setField is a field by name and whether it is set.
type setField struct {
	name string
	set  bool
}

// handlerFields are the fields of containers that run for the life of a pod.
func handlerFields(c *corev1.Container) []setField {
	return []setField{
		{"lifecycle", c.Lifecycle != nil}, {"livenessProbe", c.LivenessProbe != nil},
		{"readinessProbe", c.ReadinessProbe != nil}, {"startupProbe", c.StartupProbe != nil},
	}
}

// ephemeral returns the errors of the fields that ephemeral containers do not have.
func ephemeral(c *corev1.Container, path *field.Path) field.ErrorList {
	const message = "cannot be set for an Ephemeral Container"
	var errs field.ErrorList
	for _, f := range append(handlerFields(c),
		setField{"ports", c.Ports != nil}, setField{"resizePolicy", c.ResizePolicy != nil},
		setField{"resources", c.Resources.Limits != nil || c.Resources.Requests != nil || c.Resources.Claims != nil},
		setField{"restartPolicy", c.RestartPolicy != nil}, setField{"restartPolicyRules", c.RestartPolicyRules != nil},
	) {
		if f.set {
			errs = append(errs, field.Forbidden(path.Child(f.name), message))
		}
	}
	for i, m := range c.VolumeMounts {
		for name, value := range map[string]string{"subPath": m.SubPath, "subPathExpr": m.SubPathExpr} {
			if value != "" {
				errs = append(errs, field.Forbidden(path.Child("volumeMounts").Index(i).Child(name), message))
			}
		}
	}
	return errs
}

// uniqueNames requires other names for containers than others have, and that the target of an
// ephemeral container exists.
func uniqueNames(spec *corev1.PodSpec, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	all, own, lasting := sets.New[string](), sets.New[string](), sets.New[string]()
	for _, c := range spec.Containers {
		all.Insert(c.Name)
	}
	for c := range Containers(spec) {
		taken := all
		if !c.Init && !c.Ephemeral {
			taken = own
		}
		if !c.Ephemeral {
			lasting.Insert(c.Name)
		}
		if taken.Has(c.Name) {
			errs = append(errs, field.Duplicate(c.Path(path).Child("name"), c.Name))
		} else if c.Name != "" || !c.Init {
			taken.Insert(c.Name)
		}
	}
	for i, c := range spec.EphemeralContainers {
		if target := c.TargetContainerName; target != "" && !lasting.Has(target) {
			errs = append(errs, field.NotFound(path.Child("ephemeralContainers").Index(i).Child("targetContainerName"), target))
		}
	}
	return errs
}

// validateRestart returns the errors of the restart policy of a container and its rules.
func validateRestart(c Container, path *field.Path) field.ErrorList {
	const maxRules, maxCodes = 20, 255
	var errs field.ErrorList
	if c.RestartPolicy != nil {
		errs = append(errs, rules.Supported(*c.RestartPolicy, path.Child("restartPolicy"),
			corev1.ContainerRestartPolicyAlways, corev1.ContainerRestartPolicyNever, corev1.ContainerRestartPolicyOnFailure)...)
	} else if len(c.RestartPolicyRules) > 0 {
		errs = append(errs, field.Required(path.Child("restartPolicy"), "must specify restartPolicy when restart rules are used"))
		if c.Init {
			return errs
		}
	}
	if n := len(c.RestartPolicyRules); n > maxRules {
		errs = append(errs, field.TooMany(path.Child("restartPolicyRules"), n, maxRules))
	}
	for i, rule := range c.RestartPolicyRules {
		at := path.Child("restartPolicyRules").Index(i)
		errs = append(errs, rules.Supported(rule.Action, at.Child("action"),
			corev1.ContainerRestartRuleActionRestart, corev1.ContainerRestartRuleActionRestartAllContainers)...)
		at = at.Child("exitCodes")
		if rule.ExitCodes == nil {
			errs = append(errs, field.Required(at, "must be specified"))
			continue
		}
		errs = append(errs, rules.Supported(rule.ExitCodes.Operator, at.Child("operator"),
			corev1.ContainerRestartRuleOnExitCodesOpIn, corev1.ContainerRestartRuleOnExitCodesOpNotIn)...)
		if n := len(rule.ExitCodes.Values); n > maxCodes {
			errs = append(errs, field.TooMany(at.Child("values"), n, maxCodes))
		}
	}
	return errs
}

// validateResize returns the errors of what a resize does to a container.
func validateResize(policies []corev1.ContainerResizePolicy, restart corev1.RestartPolicy, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	seen := sets.New[corev1.ResourceName]()
	for i, p := range policies {
		if seen.Has(p.ResourceName) {
			errs = append(errs, field.Duplicate(path.Index(i), p.ResourceName))
		}
		seen.Insert(p.ResourceName)
		errs = append(errs, rules.Enum(p.ResourceName, path, corev1.ResourceCPU, corev1.ResourceMemory)...)
		errs = append(errs, rules.Enum(p.RestartPolicy, path, corev1.NotRequired, corev1.RestartContainer)...)
		if restart == corev1.RestartPolicyNever && p.RestartPolicy != corev1.NotRequired {
			errs = append(errs, field.Invalid(path, p.RestartPolicy, "must be 'NotRequired' when pod `restartPolicy` is 'Never'"))
		}
	}
	return errs
}

// addsAdmin reports whether a container may administer the system.
func addsAdmin(s *corev1.SecurityContext) bool {
	return s.Capabilities != nil && slices.Contains(s.Capabilities.Add, "CAP_SYS_ADMIN")
}

// hasAdmins reports whether a container adds the capability of administrators without the
// escalation of privileges.
func hasAdmins(spec *corev1.PodSpec) bool {
	for c := range Containers(spec) {
		if s := c.SecurityContext; s != nil && (s.AllowPrivilegeEscalation == nil || !*s.AllowPrivilegeEscalation) && addsAdmin(s) {
			return true
		}
	}
	return false
}

// security returns the errors of the security context of a container.
func (r *containerRules) security(s *corev1.SecurityContext, path *field.Path) field.ErrorList {
	if s == nil {
		return nil
	}
	var errs field.ErrorList
	if s.RunAsUser != nil {
		errs = append(errs, rules.Invalid(path.Child("runAsUser"), *s.RunAsUser, validation.IsValidUserID(*s.RunAsUser))...)
	}
	if s.RunAsGroup != nil {
		errs = append(errs, rules.Invalid(path.Child("runAsGroup"), *s.RunAsGroup, validation.IsValidGroupID(*s.RunAsGroup))...)
	}
	if p := s.ProcMount; p != nil {
		errs = append(errs, rules.Supported(*p, path.Child("procMount"), corev1.DefaultProcMount, corev1.UnmaskedProcMount)...)
		if *p == corev1.UnmaskedProcMount && (r.spec.HostUsers == nil || *r.spec.HostUsers) {
			errs = append(errs, field.Invalid(path.Child("procMount"), p, "`hostUsers` must be false to use `Unmasked`"))
		}
	}
	errs = append(errs, validateSeccomp(s.SeccompProfile, path.Child("seccompProfile"))...)
	if s.AllowPrivilegeEscalation != nil && !*s.AllowPrivilegeEscalation {
		const message = "cannot set `allowPrivilegeEscalation` to false and "
		if s.Privileged != nil && *s.Privileged {
			errs = append(errs, field.Invalid(path, s, message+"`privileged` to true"))
		}
		if addsAdmin(s) && !r.admins {
			errs = append(errs, field.Invalid(path, s, message+"`capabilities.Add` CAP_SYS_ADMIN"))
		}
	}
	errs = append(errs, validateWindowsOptions(s.WindowsOptions, path.Child("windowsOptions"))...)
	return append(errs, validateAppArmor(s.AppArmorProfile, path.Child("appArmorProfile"))...)
}

// validatePorts returns the errors of the ports of a container.
func validatePorts(ports []corev1.ContainerPort, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	names := sets.New[string]()
	number := func(at *field.Path, n int32) {
		errs = append(errs, rules.Invalid(at, n, validation.IsValidPortNum(int(n)))...)
	}
	for i, p := range ports {
		at := path.Index(i)
		if p.Name != "" {
			wrong := rules.Invalid(at.Child("name"), p.Name, validation.IsValidPortName(p.Name))
			if len(wrong) == 0 && names.Has(p.Name) {
				wrong = field.ErrorList{field.Duplicate(at.Child("name"), p.Name)}
			}
			names.Insert(p.Name)
			errs = append(errs, wrong...)
		}
		if p.ContainerPort == 0 {
			errs = append(errs, field.Required(at.Child("containerPort"), ""))
		} else {
			number(at.Child("containerPort"), p.ContainerPort)
		}
		if p.HostPort != 0 {
			number(at.Child("hostPort"), p.HostPort)
		}
		errs = append(errs, rules.Protocol(p.Protocol, at.Child("protocol"))...)
	}
	return errs
}

// uniqueHostPorts rejects a port of the host that two containers have, or an init container
// twice. As in kube-apiserver, errors of init containers name the first one.
func uniqueHostPorts(spec *corev1.PodSpec, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	all := sets.New[string]()
	for c := range Containers(spec) {
		at, taken := c.Path(path), all
		switch {
		case c.Ephemeral:
			continue
		case c.Init:
			at, taken = path.Child("initContainers").Index(0), sets.New[string]()
		}
		for i, p := range c.Ports {
			if p.HostPort == 0 {
				continue
			}
			port := string(p.Protocol) + "/" + p.HostIP + "/" + strconv.Itoa(int(p.HostPort))
			if taken.Has(port) {
				errs = append(errs, field.Duplicate(at.Child("ports").Index(i).Child("hostPort"), port))
			}
			taken.Insert(port)
		}
	}
	return errs
}
