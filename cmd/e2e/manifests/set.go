// Package manifests checks Kubernetes manifests of Portico's processes beyond what an API server checks: that selectors match
// pods, that ports and files exist, that certificates have the names and users that they are used for, and that network
// policies admit the connections of the processes and no others.
//
// Runs in: tests.
package manifests

import (
	"fmt"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/scheme"
)

// Secrets are the data of Secrets by their names.
type Secrets map[string]map[string][]byte

// Workload is a Deployment or a StatefulSet with one container.
type Workload struct {
	Name string
	// Component is the label by which the manifests tell the processes apart: gateway, core, crd or etcd.
	Component string
	// Service is the headless Service in which the pods of a StatefulSet have names; "" of a Deployment.
	Service   string
	Replicas  int
	Template  *corev1.PodTemplateSpec
	Container *corev1.Container
	// Settings are the flags of the process with their values, from the arguments and the configuration file.
	Settings map[string][]string

	selector *metav1.LabelSelector
}

// Set is an installation: objects of one namespace.
type Set struct {
	Workloads []*Workload

	secrets  Secrets
	configs  map[string]map[string]string
	services []*corev1.Service
	budgets  []*policyv1.PodDisruptionBudget
	policies []*networkingv1.NetworkPolicy
	// tokenless are the ServiceAccounts with a token that is in no pod.
	tokenless map[string]bool
}

// Parse reads manifests, without the kinds that are not of Kubernetes.
func Parse(text string, secrets Secrets) (*Set, error) {
	s := &Set{secrets: secrets, configs: map[string]map[string]string{}, tokenless: map[string]bool{}}
	for document := range strings.SplitSeq("\n"+text, "\n---") {
		if !strings.Contains(document, "\nkind:") {
			continue
		}
		object, _, err := scheme.Codecs.UniversalDeserializer().Decode([]byte(document), nil, nil)
		switch {
		case runtime.IsNotRegisteredError(err):
		case err != nil:
			return nil, fmt.Errorf("parse manifest: %w\n%s", err, document)
		default:
			s.add(object)
		}
	}
	for _, w := range s.Workloads {
		var err error
		if w.Settings, err = s.settings(w); err != nil {
			return nil, fmt.Errorf("%s: %w", w.Name, err)
		}
	}
	return s, nil
}

func (s *Set) add(object runtime.Object) {
	switch o := object.(type) {
	case *appsv1.Deployment:
		s.addWorkload(o.Name, "", *o.Spec.Replicas, &o.Spec.Template, o.Spec.Selector)
	case *appsv1.StatefulSet:
		for _, claim := range o.Spec.VolumeClaimTemplates {
			o.Spec.Template.Spec.Volumes = append(o.Spec.Template.Spec.Volumes, corev1.Volume{Name: claim.Name, VolumeSource: corev1.VolumeSource{
				PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: claim.Name},
			}})
		}
		s.addWorkload(o.Name, o.Spec.ServiceName, *o.Spec.Replicas, &o.Spec.Template, o.Spec.Selector)
	case *corev1.Service:
		s.services = append(s.services, o)
	case *corev1.ConfigMap:
		s.configs[o.Name] = o.Data
	case *corev1.ServiceAccount:
		s.tokenless[o.Name] = o.AutomountServiceAccountToken != nil && !*o.AutomountServiceAccountToken
	case *policyv1.PodDisruptionBudget:
		s.budgets = append(s.budgets, o)
	case *networkingv1.NetworkPolicy:
		s.policies = append(s.policies, o)
	}
}

func (s *Set) addWorkload(name, service string, replicas int32, template *corev1.PodTemplateSpec, selector *metav1.LabelSelector) {
	s.Workloads = append(s.Workloads, &Workload{
		Name: name, Component: template.Labels["app.kubernetes.io/component"], Service: service, Replicas: int(replicas),
		Template: template, Container: &template.Spec.Containers[0], selector: selector,
	})
}

// Check returns what is wrong.
func (s *Set) Check() (problems []string) {
	report := func(format string, args ...any) { problems = append(problems, fmt.Sprintf(format, args...)) }
	s.checkSelectors(report)
	for _, w := range s.Workloads {
		of := func(format string, args ...any) { report(w.Name+": "+format, args...) }
		s.checkPod(w, of)
		checkPorts(w, of)
		s.checkFiles(w, of)
		s.checkUsers(w, of)
	}
	s.checkConnections(report)
	return problems
}

// selects returns the workload with pods that a selector matches; nil for none or several.
func (s *Set) selects(selector labels.Selector) (one *Workload) {
	for _, w := range s.Workloads {
		if selector.Matches(labels.Set(w.Template.Labels)) {
			if one != nil {
				return nil
			}
			one = w
		}
	}
	return one
}

// matching returns a parsed selector; one that is invalid matches nothing.
func matching(selector *metav1.LabelSelector) labels.Selector {
	out, err := metav1.LabelSelectorAsSelector(selector)
	if err != nil {
		return labels.Nothing()
	}
	return out
}

// checkSelectors checks that each object with a selector is for the pods of one workload, and that each workload has a
// disruption budget.
func (s *Set) checkSelectors(report func(string, ...any)) {
	for _, service := range s.services {
		w := s.selects(labels.SelectorFromSet(service.Spec.Selector))
		if w == nil {
			report("Service %s is not for the pods of one workload", service.Name)
			continue
		}
		for _, port := range service.Spec.Ports {
			if portOf(w, port.TargetPort) == 0 {
				report("Service %s: %s has no port %s", service.Name, w.Name, port.TargetPort.String())
			}
		}
	}
	guarded := map[*Workload]bool{}
	for _, b := range s.budgets {
		guarded[s.selects(matching(b.Spec.Selector))] = true
	}
	for _, p := range s.policies {
		if s.selects(matching(&p.Spec.PodSelector)) == nil {
			report("NetworkPolicy %s is not for the pods of one workload", p.Name)
		}
	}
	for _, w := range s.Workloads {
		if s.selects(matching(w.selector)) != w {
			report("%s does not select its own pods", w.Name)
		}
		if !guarded[w] {
			report("%s has no PodDisruptionBudget", w.Name)
		}
		for _, c := range w.Template.Spec.TopologySpreadConstraints {
			if s.selects(matching(c.LabelSelector)) != w {
				report("%s is not spread among its own pods", w.Name)
			}
		}
	}
}

// checkPod checks what every pod of Portico has.
func (s *Set) checkPod(w *Workload, report func(string, ...any)) {
	spec, c := &w.Template.Spec, w.Container
	if token := spec.AutomountServiceAccountToken; !s.tokenless[spec.ServiceAccountName] || token == nil || *token {
		report("its pods have a token of ServiceAccount %q", spec.ServiceAccountName)
	}
	if links := spec.EnableServiceLinks; links == nil || *links {
		report("enableServiceLinks is not false: names of Services become PORTICO_… variables")
	}
	if c.SecurityContext == nil || c.SecurityContext.ReadOnlyRootFilesystem == nil || !*c.SecurityContext.ReadOnlyRootFilesystem {
		report("its root file system can be written")
	}
	if len(spec.TopologySpreadConstraints) == 0 || c.Resources.Requests.Cpu().IsZero() || c.Resources.Limits.Memory().IsZero() {
		report("it has no topologySpreadConstraints, no request of processor time or no limit of memory")
	}
	for name, probe := range map[string]*corev1.Probe{"startup": c.StartupProbe, "liveness": c.LivenessProbe, "readiness": c.ReadinessProbe} {
		if probe == nil || probe.HTTPGet == nil || portOf(w, probe.HTTPGet.Port) == 0 {
			report("it has no %s probe of a port that it has", name)
		}
	}
}
