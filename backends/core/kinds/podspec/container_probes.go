package podspec

import (
	"fmt"
	"slices"
	"strconv"

	corev1 "k8s.io/api/core/v1"
	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"portico/backends/core/kinds/rules"
)

// handlers returns the errors of the lifecycle and the probes of a container.
func (r *containerRules) handlers(c *corev1.Container, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	if l := c.Lifecycle; l != nil {
		at := path.Child("lifecycle")
		errs = append(errs, r.lifecycleHandler(l.PostStart, at.Child("postStart"))...)
		errs = append(errs, r.lifecycleHandler(l.PreStop, at.Child("preStop"))...)
		if l.StopSignal != nil {
			errs = append(errs, validateStopSignal(*l.StopSignal, r.spec.OS, at.Child("stopSignal"))...)
		}
	}
	errs = append(errs, r.probe(c.LivenessProbe, true, path.Child("livenessProbe"))...)
	errs = append(errs, r.probe(c.ReadinessProbe, false, path.Child("readinessProbe"))...)
	return append(errs, r.probe(c.StartupProbe, true, path.Child("startupProbe"))...)
}

// probe returns the errors of a probe, which may stop its container or not.
func (r *containerRules) probe(p *corev1.Probe, stops bool, path *field.Path) field.ErrorList {
	if p == nil {
		return nil
	}
	errs := r.handler(&p.ProbeHandler, nil, path)
	for _, f := range []struct {
		name  string
		value int32
	}{
		{"initialDelaySeconds", p.InitialDelaySeconds}, {"timeoutSeconds", p.TimeoutSeconds}, {"periodSeconds", p.PeriodSeconds},
		{"successThreshold", p.SuccessThreshold}, {"failureThreshold", p.FailureThreshold},
	} {
		errs = append(errs, apivalidation.ValidateNonnegativeField(int64(f.value), path.Child(f.name))...)
	}
	at := path.Child("terminationGracePeriodSeconds")
	if grace := p.TerminationGracePeriodSeconds; grace != nil {
		if *grace <= 0 {
			errs = append(errs, field.Invalid(at, *grace, "must be greater than 0"))
		}
		if !stops {
			errs = append(errs, field.Invalid(at, grace, "must not be set for readinessProbes"))
		}
	}
	if stops && p.SuccessThreshold != 1 {
		errs = append(errs, field.Invalid(path.Child("successThreshold"), p.SuccessThreshold, "must be 1"))
	}
	return errs
}

func (r *containerRules) lifecycleHandler(h *corev1.LifecycleHandler, path *field.Path) field.ErrorList {
	if h == nil {
		return nil
	}
	return r.handler(&corev1.ProbeHandler{Exec: h.Exec, HTTPGet: h.HTTPGet, TCPSocket: h.TCPSocket}, h.Sleep, path)
}

// handler returns the errors of an action, which is one of a probe or a sleep.
func (r *containerRules) handler(h *corev1.ProbeHandler, sleep *corev1.SleepAction, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	found := false
	for _, kind := range []struct {
		name  string
		set   bool
		check func(*field.Path) field.ErrorList
	}{
		{"exec", h.Exec != nil, func(path *field.Path) field.ErrorList {
			if len(h.Exec.Command) == 0 {
				return field.ErrorList{field.Required(path.Child("command"), "")}
			}
			return nil
		}},
		{"httpGet", h.HTTPGet != nil, func(path *field.Path) field.ErrorList { return validateHTTPGet(h.HTTPGet, path) }},
		{"tcpSocket", h.TCPSocket != nil, func(path *field.Path) field.ErrorList { return validatePort(h.TCPSocket.Port, path.Child("port")) }},
		{"grpc", h.GRPC != nil, func(path *field.Path) field.ErrorList {
			errs := validatePort(intstr.FromInt32(h.GRPC.Port), path.Child("port"))
			if h.GRPC.Mode != nil {
				errs = append(errs, rules.Supported(*h.GRPC.Mode, path.Child("mode"), corev1.GRPCProbeModePlaintext, corev1.GRPCProbeModeTLS)...)
			}
			return errs
		}},
		{"sleep", sleep != nil, func(path *field.Path) field.ErrorList {
			if grace := r.spec.TerminationGracePeriodSeconds; grace != nil && (sleep.Seconds < 0 || sleep.Seconds > *grace) {
				return field.ErrorList{field.Invalid(path, sleep.Seconds, fmt.Sprintf("must be non-negative and less than terminationGracePeriodSeconds (%d)", *grace))}
			}
			return nil
		}},
	} {
		switch {
		case !kind.set:
		case found:
			errs = append(errs, field.Forbidden(path.Child(kind.name), "may not specify more than 1 handler type"))
		default:
			found = true
			errs = append(errs, kind.check(path.Child(kind.name))...)
		}
	}
	if !found {
		errs = append(errs, field.Required(path, "must specify a handler type"))
	}
	return errs
}

// validatePort returns the errors of the number or name of a port.
func validatePort(port intstr.IntOrString, path *field.Path) field.ErrorList {
	if port.Type == intstr.String {
		return rules.Invalid(path, port.StrVal, validation.IsValidPortName(port.StrVal))
	}
	return rules.Invalid(path, port.IntValue(), validation.IsValidPortNum(port.IntValue()))
}

func validateHTTPGet(get *corev1.HTTPGetAction, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	if get.Path == "" {
		errs = append(errs, field.Required(path.Child("path"), ""))
	}
	errs = append(errs, validatePort(get.Port, path.Child("port"))...)
	errs = append(errs, rules.Supported(get.Scheme, path.Child("scheme"), corev1.URISchemeHTTP, corev1.URISchemeHTTPS)...)
	for _, h := range get.HTTPHeaders {
		errs = append(errs, rules.Invalid(path.Child("httpHeaders"), h.Name, validation.IsHTTPHeaderName(h.Name))...)
	}
	if get.Protocol == nil {
		return errs
	}
	wrong := rules.Supported(*get.Protocol, path.Child("protocol"), corev1.HTTPProtocolHTTP1, corev1.HTTPProtocolHTTP2)
	switch {
	case len(wrong) > 0 || *get.Protocol == corev1.HTTPProtocolHTTP1:
	case get.Scheme != corev1.URISchemeHTTP:
		wrong = append(wrong, field.Invalid(path.Child("protocol"), *get.Protocol, "is only supported with HTTP (H2C)"))
	case get.Host != "":
		wrong = append(wrong, field.Invalid(path.Child("host"), get.Host, "must be empty when `protocol` is \"HTTP2\""))
	}
	return append(errs, wrong...)
}

// linuxSignals are the names of the signals that stop a container, sorted.
var linuxSignals = func() []corev1.Signal {
	all := []corev1.Signal{
		"SIGABRT", "SIGALRM", "SIGBUS", "SIGCHLD", "SIGCLD", "SIGCONT", "SIGFPE", "SIGHUP", "SIGILL", "SIGINT", "SIGIO", "SIGIOT",
		"SIGKILL", "SIGPIPE", "SIGPOLL", "SIGPROF", "SIGPWR", "SIGQUIT", "SIGSEGV", "SIGSTKFLT", "SIGSTOP", "SIGSYS", "SIGTERM",
		"SIGTRAP", "SIGTSTP", "SIGTTIN", "SIGTTOU", "SIGURG", "SIGUSR1", "SIGUSR2", "SIGVTALRM", "SIGWINCH", "SIGXCPU", "SIGXFSZ",
		"SIGRTMIN", "SIGRTMIN+15", "SIGRTMAX",
	}
	for i := 1; i <= 14; i++ {
		all = append(all, corev1.Signal("SIGRTMIN+"+strconv.Itoa(i)), corev1.Signal("SIGRTMAX-"+strconv.Itoa(i)))
	}
	slices.Sort(all)
	return all
}()

func validateStopSignal(signal corev1.Signal, os *corev1.PodOS, path *field.Path) field.ErrorList {
	switch {
	case os == nil:
		return field.ErrorList{field.Forbidden(path, "may not be set for containers with empty `spec.os.name`")}
	case os.Name == corev1.Windows:
		return rules.Supported(signal, path, corev1.SIGKILL, corev1.SIGTERM)
	case os.Name == corev1.Linux:
		return rules.Supported(signal, path, linuxSignals...)
	}
	return nil
}
