package kinds

import (
	"bytes"
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"

	"portico/backends/core/kinds/rules"
	"portico/resource"
	"portico/resource/rest"
)

// services is the row of v1 Service. service_address.go has the fields of addresses, and
// service_validation.go the other rules.
func services(cfg Config, scheme *runtime.Scheme) *rest.Kind {
	info := resource.Info{
		Versions: []string{"v1"}, Resource: "services", Kind: "Service",
		ShortNames: []string{"svc"}, Categories: []string{"all"}, Namespaced: true, Path: "services/specs",
	}
	typed := rest.Typed(scheme, corev1.SchemeGroupVersion.WithKind("Service"))
	return withSubresources(&rest.Kind{
		Codec: defaultingCodec{typed.(rest.Versioned), onDefault(func(svc *corev1.Service) { completeStored(svc, cfg.ServiceFamilies[0]) }), isComplete},
		Info:  info,
		Strategy: rest.Strategy{
			Default:        onDefault(defaultService),
			ValidateName:   apivalidation.NameIsDNSLabel,
			PrepareCreate:  onCreate(prepareService),
			PrepareUpdate:  onUpdate(prepareServiceUpdate),
			Validate:       check(validateService),
			ValidateUpdate: checkUpdate(validateServiceUpdate),
			Warnings:       warn(serviceWarnings),
			Allocate:       allocateService(&info, cfg),
		},
		Subresources: []rest.Subresource{{Name: "status", Strategy: &rest.Strategy{
			PrepareUpdate:  onUpdate(func(svc, old *corev1.Service) { old.Spec.DeepCopyInto(&svc.Spec) }),
			ValidateUpdate: checkNew(validateServiceStatus),
			Warnings:       warn(serviceStatusWarnings),
		}}},
		Columns:     serviceColumns(),
		Cells:       cells(serviceCells),
		FieldLabels: []string{"spec.clusterIP", "spec.type"},
		Fields: fieldsOf(func(svc *corev1.Service) map[string]string {
			return map[string]string{"spec.clusterIP": svc.Spec.ClusterIP, "spec.type": string(svc.Spec.Type)}
		}),
		CreateOnUpdate:      true,
		UnconditionalUpdate: true,
		ReturnDeleted:       true,
	}, cfg.Connections("services"))
}

func prepareService(svc *corev1.Service) {
	svc.Status = corev1.ServiceStatus{}
}

func prepareServiceUpdate(svc, old *corev1.Service) {
	old.Status.DeepCopyInto(&svc.Status)
	if svc.Spec.Type != corev1.ServiceTypeLoadBalancer {
		svc.Status.LoadBalancer = corev1.LoadBalancerStatus{}
	}
	dropFieldsOfOtherType(svc, old)
}

// allocateService returns the function that completes the fields of addresses and allocates
// addresses and node ports.
func allocateService(info *resource.Info, cfg Config) func(context.Context, rest.Object, rest.Object, bool) (func(), error) {
	return func(ctx context.Context, obj, oldObj rest.Object, dryRun bool) (func(), error) {
		svc := obj.(*corev1.Service)
		old, _ := oldObj.(*corev1.Service)
		if old != nil {
			keepAllocated(svc, old)
		}
		syncClusterIPs(svc, old)
		if old != nil {
			dropFieldsOfOtherType(svc, old) // clusterIPs may equal the old ones only now
		}
		if errs := chooseFamilies(svc, old, cfg.ServiceFamilies); len(errs) > 0 {
			return nil, apierrors.NewInvalid(info.GroupKind(), svc.Name, errs)
		}
		dropUnusedTrafficPolicy(&svc.Spec)
		if cfg.AllocateService == nil || svc.Spec.Type == corev1.ServiceTypeExternalName {
			return nil, nil
		}
		return cfg.AllocateService(ctx, svc, old, dryRun)
	}
}

// defaultService sets the defaults that depend on the body alone.
func defaultService(svc *corev1.Service) {
	spec := &svc.Spec
	if spec.Type == "" {
		spec.Type = corev1.ServiceTypeClusterIP
	}
	defaultAffinity(spec)
	for i := range spec.Ports {
		port := &spec.Ports[i]
		if port.Protocol == "" {
			port.Protocol = corev1.ProtocolTCP
		}
		if port.TargetPort == intstr.FromInt32(0) || port.TargetPort == intstr.FromString("") {
			port.TargetPort = intstr.FromInt32(port.Port)
		}
	}
	if externallyAccessible(svc) && spec.ExternalTrafficPolicy == "" {
		spec.ExternalTrafficPolicy = corev1.ServiceExternalTrafficPolicyCluster
	}
	if hasTrafficPolicy(spec.Type) {
		rules.Default(&spec.InternalTrafficPolicy, corev1.ServiceInternalTrafficPolicyCluster)
	}
	if spec.Type == corev1.ServiceTypeLoadBalancer {
		rules.Default(&spec.AllocateLoadBalancerNodePorts, true)
		for i := range svc.Status.LoadBalancer.Ingress {
			if in := &svc.Status.LoadBalancer.Ingress[i]; in.IP != "" {
				rules.Default(&in.IPMode, corev1.LoadBalancerIPModeVIP)
			}
		}
	}
}

// isComplete reports, without decoding, whether a stored Service has all defaults: one that has ipFamilies and
// internalTrafficPolicy has the defaults of older fields, too. It may be false of a Service that is complete, and is
// of every load balancer. It searches for the values of fields, as a key alone may be the length of something else.
func isComplete(o *resource.Object) bool {
	has := func(parts ...string) bool {
		return slices.ContainsFunc(parts, func(part string) bool { return bytes.Contains(o.Data, []byte(part)) })
	}
	if o.Encoding == resource.Protobuf {
		// The keys of fields of ServiceSpec, with the lengths and the beginnings of their values: ipFamilies (19),
		// internalTrafficPolicy (22), type (4), which externalIPs (5) follow, and externalTrafficPolicy (11).
		return has("\x9a\x01\x04IPv") && has("\xb2\x01\x07Cluster", "\xb2\x01\x05Local") && !has("\x22\x0cLoadBalancer") &&
			(!has("\x22\x09ClusterIP\x2a") || has("\x5a\x07Cluster", "\x5a\x05Local"))
	}
	return has(`"ipFamilies":[`) && has(`"internalTrafficPolicy":"Cluster"`, `"internalTrafficPolicy":"Local"`) && !has(`"type":"LoadBalancer"`) &&
		(!has(`"externalIPs":[`) || has(`"externalTrafficPolicy":"`))
}

// completeStored sets the fields of a stored Service that older releases of Kubernetes did not have, such
// as clusterIPs before 1.20 and ipFamilies before 1.21, and removes the internalTrafficPolicy that later
// ones stored with ExternalName. primary is the primary family of the cluster.
func completeStored(svc *corev1.Service, primary corev1.IPFamily) {
	defaultService(svc)
	spec := &svc.Spec
	dropUnusedTrafficPolicy(spec)
	if spec.ClusterIP != "" && len(spec.ClusterIPs) == 0 {
		spec.ClusterIPs = []string{spec.ClusterIP}
	}
	if spec.Type == corev1.ServiceTypeExternalName || len(spec.IPFamilies) > 0 {
		return
	}
	switch {
	case isUnmanaged(svc):
		spec.IPFamilies = []corev1.IPFamily{primary, otherFamily(primary)}
	case isHeadless(svc):
		spec.IPFamilies = []corev1.IPFamily{primary}
	default:
		for _, ip := range spec.ClusterIPs {
			spec.IPFamilies = append(spec.IPFamilies, familyOf(ip))
		}
	}
	switch len(spec.IPFamilies) {
	case 1:
		spec.IPFamilyPolicy = new(corev1.IPFamilyPolicySingleStack)
	case 2:
		spec.IPFamilyPolicy = new(corev1.IPFamilyPolicyRequireDualStack)
	}
}

// dropUnusedTrafficPolicy clears a valid internalTrafficPolicy of an ExternalName service.
// kube-apiserver accepts the field, because older versions set it, and does not return it.
func dropUnusedTrafficPolicy(spec *corev1.ServiceSpec) {
	valid := []corev1.ServiceInternalTrafficPolicy{corev1.ServiceInternalTrafficPolicyCluster, corev1.ServiceInternalTrafficPolicyLocal}
	if spec.Type == corev1.ServiceTypeExternalName && slices.Contains(valid, ptr.Deref(spec.InternalTrafficPolicy, "")) {
		spec.InternalTrafficPolicy = nil
	}
}

func defaultAffinity(spec *corev1.ServiceSpec) {
	if spec.SessionAffinity == "" {
		spec.SessionAffinity = corev1.ServiceAffinityNone
	}
	switch spec.SessionAffinity {
	case corev1.ServiceAffinityNone:
		spec.SessionAffinityConfig = nil
	case corev1.ServiceAffinityClientIP:
		if c := spec.SessionAffinityConfig; c == nil || c.ClientIP == nil || c.ClientIP.TimeoutSeconds == nil {
			spec.SessionAffinityConfig = &corev1.SessionAffinityConfig{
				ClientIP: &corev1.ClientIPConfig{TimeoutSeconds: new(corev1.DefaultClientIPServiceAffinitySeconds)},
			}
		}
	}
}

// hasTrafficPolicy reports whether services of that type route traffic.
func hasTrafficPolicy(t corev1.ServiceType) bool {
	return t == corev1.ServiceTypeClusterIP || t == corev1.ServiceTypeNodePort || t == corev1.ServiceTypeLoadBalancer
}

func externallyAccessible(svc *corev1.Service) bool {
	switch svc.Spec.Type {
	case corev1.ServiceTypeLoadBalancer, corev1.ServiceTypeNodePort:
		return true
	case corev1.ServiceTypeClusterIP:
		return len(svc.Spec.ExternalIPs) > 0
	}
	return false
}

// onNodes reports whether services of that type may have node ports.
func onNodes(svc *corev1.Service) bool {
	return svc.Spec.Type == corev1.ServiceTypeNodePort || svc.Spec.Type == corev1.ServiceTypeLoadBalancer
}

// needsNodePort reports whether the ports of the service have node ports.
func needsNodePort(svc *corev1.Service) bool {
	switch svc.Spec.Type {
	case corev1.ServiceTypeNodePort:
		return true
	case corev1.ServiceTypeLoadBalancer:
		return ptr.Deref(svc.Spec.AllocateLoadBalancerNodePorts, true)
	}
	return false
}

// needsHealthCheckPort reports whether nodes serve health checks of the service.
func needsHealthCheckPort(svc *corev1.Service) bool {
	return svc.Spec.Type == corev1.ServiceTypeLoadBalancer &&
		svc.Spec.ExternalTrafficPolicy == corev1.ServiceExternalTrafficPolicyLocal
}

// dropFieldsOfOtherType clears the fields that only the old type uses, because clients often
// change the type alone. A field that the client changed as well is kept, and validation
// reports it.
func dropFieldsOfOtherType(svc, old *corev1.Service) {
	spec, was := &svc.Spec, &old.Spec
	if was.Type != corev1.ServiceTypeExternalName && spec.Type == corev1.ServiceTypeExternalName {
		if sameClusterIPs(svc, old) && spec.ClusterIP == was.ClusterIP {
			spec.ClusterIP, spec.ClusterIPs = "", nil
		}
		if sameFamilies(svc, old) {
			spec.IPFamilies = nil
		}
		if ptr.Equal(spec.IPFamilyPolicy, was.IPFamilyPolicy) {
			spec.IPFamilyPolicy = nil
		}
	}
	if onNodes(old) && !onNodes(svc) && !newNodePorts(svc, old) {
		for i := range spec.Ports {
			spec.Ports[i].NodePort = 0
		}
	}
	if needsHealthCheckPort(old) && !needsHealthCheckPort(svc) && spec.HealthCheckNodePort == was.HealthCheckNodePort {
		spec.HealthCheckNodePort = 0
	}
	if was.Type == corev1.ServiceTypeLoadBalancer && spec.Type != corev1.ServiceTypeLoadBalancer {
		if ptr.Equal(spec.AllocateLoadBalancerNodePorts, was.AllocateLoadBalancerNodePorts) {
			spec.AllocateLoadBalancerNodePorts = nil
		}
		if ptr.Equal(spec.LoadBalancerClass, was.LoadBalancerClass) {
			spec.LoadBalancerClass = nil
		}
	}
	if externallyAccessible(old) && !externallyAccessible(svc) && spec.ExternalTrafficPolicy == was.ExternalTrafficPolicy {
		spec.ExternalTrafficPolicy = ""
	}
}

// newNodePorts reports whether svc has a node port that old does not have.
func newNodePorts(svc, old *corev1.Service) bool {
	return slices.ContainsFunc(svc.Spec.Ports, func(p corev1.ServicePort) bool {
		return p.NodePort != 0 && !slices.ContainsFunc(old.Spec.Ports, func(q corev1.ServicePort) bool { return q.NodePort == p.NodePort })
	})
}

func serviceColumns() []metav1.TableColumnDefinition {
	return []metav1.TableColumnDefinition{
		nameColumn(),
		column("Type", "string", "The type: ClusterIP, NodePort, LoadBalancer or ExternalName."),
		column("Cluster-IP", "string", "The primary address inside the cluster; None for a headless service."),
		column("External-IP", "string", "The addresses or names outside the cluster."),
		column("Port(s)", "string", "The ports with their node ports and protocols."),
		ageColumn(),
		wide("Selector", "string", "The labels of the pods behind the service."),
	}
}

func serviceCells(svc *corev1.Service) []any {
	clusterIP := none
	if len(svc.Spec.ClusterIPs) > 0 {
		clusterIP = svc.Spec.ClusterIPs[0]
	}
	return []any{
		svc.Name, string(svc.Spec.Type), clusterIP, externalAddresses(svc), portList(svc.Spec.Ports),
		age(svc.CreationTimestamp), labels.FormatLabels(svc.Spec.Selector),
	}
}

func externalAddresses(svc *corev1.Service) string {
	ips := svc.Spec.ExternalIPs
	switch svc.Spec.Type {
	case corev1.ServiceTypeExternalName:
		return svc.Spec.ExternalName
	case corev1.ServiceTypeClusterIP, corev1.ServiceTypeNodePort:
		if len(ips) == 0 {
			return none
		}
		return strings.Join(ips, ",")
	case corev1.ServiceTypeLoadBalancer:
		all := append(ingressAddresses(svc.Status.LoadBalancer.Ingress), ips...)
		if len(all) == 0 {
			return "<pending>"
		}
		return strings.Join(all, ",")
	}
	return unknown
}

// ingressAddresses returns each address or host name once, sorted.
func ingressAddresses(ingress []corev1.LoadBalancerIngress) []string {
	set := map[string]bool{}
	for _, in := range ingress {
		switch {
		case in.IP != "":
			set[in.IP] = true
		case in.Hostname != "":
			set[in.Hostname] = true
		}
	}
	return slices.Sorted(maps.Keys(set))
}

func portList(ports []corev1.ServicePort) string {
	if len(ports) == 0 {
		return none
	}
	all := make([]string, len(ports))
	for i, p := range ports {
		all[i] = fmt.Sprintf("%d/%s", p.Port, p.Protocol)
		if p.NodePort > 0 {
			all[i] = fmt.Sprintf("%d:%d/%s", p.Port, p.NodePort, p.Protocol)
		}
	}
	return strings.Join(all, ",")
}
