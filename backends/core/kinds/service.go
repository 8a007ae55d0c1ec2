package kinds

import (
	"context"
	"slices"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	"k8s.io/apimachinery/pkg/util/intstr"

	"portico/resource"
	"portico/resource/rest"
)

// services is the row of v1 Service. What the fields about addresses mean for
// each other is in service_address.go, the rules in service_validation.go and
// service_update.go.
func services(cfg Config) *rest.Kind {
	info := resource.Info{
		Versions: []string{"v1"}, Resource: "services", Kind: "Service",
		ShortNames: []string{"svc"}, Categories: []string{"all"}, Namespaced: true, Path: "services/specs",
	}
	rules := serviceRules{families: cfg.IPFamilies}
	return &rest.Kind{
		Info: info,
		Strategy: rest.Strategy{
			Default:        onDefault(defaultService),
			ValidateName:   apivalidation.NameIsDNS1035Label,
			PrepareCreate:  onCreate(rules.prepareCreate),
			PrepareUpdate:  onUpdate(rules.prepareUpdate),
			Validate:       check(rules.validate),
			ValidateUpdate: checkUpdate(rules.validateUpdate),
			Warnings:       warn(serviceWarnings),
			Allocate:       rules.allocate(&info, cfg.AllocateClusterIP),
		},
		Subresources: []rest.Subresource{{Name: "status", Strategy: &rest.Strategy{
			PrepareUpdate:  onUpdate(func(svc, old *corev1.Service) { old.Spec.DeepCopyInto(&svc.Spec) }),
			ValidateUpdate: checkNew(validateServiceStatus),
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
	}
}

// serviceRules are the rules that depend on the server's address families.
type serviceRules struct {
	families []corev1.IPFamily
}

func (r serviceRules) prepareCreate(svc *corev1.Service) {
	svc.Status = corev1.ServiceStatus{}
	syncClusterIPs(svc, nil)
	r.chooseFamilies(svc, nil)
}

func (r serviceRules) prepareUpdate(svc, old *corev1.Service) {
	old.Status.DeepCopyInto(&svc.Status)
	if svc.Spec.Type != corev1.ServiceTypeLoadBalancer {
		svc.Status.LoadBalancer = corev1.LoadBalancerStatus{}
	}
	dropFieldsOfOtherType(svc, old)
	keepAllocated(svc, old)
	syncClusterIPs(svc, old)
	r.chooseFamilies(svc, old)
}

// allocate checks the address fields before it asks for addresses, so that the
// allocator only ever sees well-formed ones.
func (r serviceRules) allocate(info *resource.Info, claim func(context.Context, *corev1.Service, *corev1.Service, bool) (func(), error),
) func(context.Context, rest.Object, rest.Object, bool) (func(), error) {
	if claim == nil {
		return nil
	}
	return func(ctx context.Context, obj, oldObj rest.Object, dryRun bool) (func(), error) {
		svc := obj.(*corev1.Service)
		old, _ := oldObj.(*corev1.Service)
		if !usesClusterIPs(svc) && (old == nil || !usesClusterIPs(old)) {
			return func() {}, nil
		}
		errs := append(validateClusterIPs(svc), r.validateFamilies(svc, old)...)
		if len(errs) > 0 {
			return nil, apierrors.NewInvalid(info.GroupKind(), svc.Name, errs)
		}
		release, err := claim(ctx, svc, old, dryRun)
		if release == nil {
			release = func() {}
		}
		return release, err
	}
}

// defaultService fills in the fields whose default depends on nothing but the
// body itself.
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
	if spec.InternalTrafficPolicy == nil && hasTrafficPolicy(spec.Type) {
		spec.InternalTrafficPolicy = new(corev1.ServiceInternalTrafficPolicyCluster)
	}
	if spec.Type == corev1.ServiceTypeLoadBalancer {
		if spec.AllocateLoadBalancerNodePorts == nil {
			spec.AllocateLoadBalancerNodePorts = new(true)
		}
		for i := range svc.Status.LoadBalancer.Ingress {
			if in := &svc.Status.LoadBalancer.Ingress[i]; in.IP != "" && in.IPMode == nil {
				in.IPMode = new(corev1.LoadBalancerIPModeVIP)
			}
		}
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

// hasTrafficPolicy says whether services of that type route traffic at all.
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

// needsNodePort says whether the ports of the service carry node ports.
func needsNodePort(svc *corev1.Service) bool {
	switch svc.Spec.Type {
	case corev1.ServiceTypeNodePort:
		return true
	case corev1.ServiceTypeLoadBalancer:
		return svc.Spec.AllocateLoadBalancerNodePorts == nil || *svc.Spec.AllocateLoadBalancerNodePorts
	}
	return false
}

// needsHealthCheckPort says whether nodes would answer health checks for it.
func needsHealthCheckPort(svc *corev1.Service) bool {
	return svc.Spec.Type == corev1.ServiceTypeLoadBalancer &&
		svc.Spec.ExternalTrafficPolicy == corev1.ServiceExternalTrafficPolicyLocal
}

// dropFieldsOfOtherType clears what only the old type had a use for, unless
// the writer changed it too: then validation shall complain. The type is the
// discriminator of a union, and clients often change nothing but the type.
func dropFieldsOfOtherType(svc, old *corev1.Service) {
	spec, was := &svc.Spec, &old.Spec
	if was.Type != corev1.ServiceTypeExternalName && spec.Type == corev1.ServiceTypeExternalName {
		if sameClusterIPs(svc, old) {
			spec.ClusterIP, spec.ClusterIPs = "", nil
		}
		if slices.Equal(spec.IPFamilies, was.IPFamilies) {
			spec.IPFamilies = nil
		}
		if equalPointers(spec.IPFamilyPolicy, was.IPFamilyPolicy) {
			spec.IPFamilyPolicy = nil
		}
	}
	if needsNodePort(old) && !needsNodePort(svc) && sameNodePorts(svc, old) {
		for i := range spec.Ports {
			spec.Ports[i].NodePort = 0
		}
	}
	if needsHealthCheckPort(old) && !needsHealthCheckPort(svc) && spec.HealthCheckNodePort == was.HealthCheckNodePort {
		spec.HealthCheckNodePort = 0
	}
	if was.Type == corev1.ServiceTypeLoadBalancer && spec.Type != corev1.ServiceTypeLoadBalancer {
		if equalPointers(spec.AllocateLoadBalancerNodePorts, was.AllocateLoadBalancerNodePorts) {
			spec.AllocateLoadBalancerNodePorts = nil
		}
		if equalPointers(spec.LoadBalancerClass, was.LoadBalancerClass) {
			spec.LoadBalancerClass = nil
		}
	}
	if externallyAccessible(old) && !externallyAccessible(svc) && spec.ExternalTrafficPolicy == was.ExternalTrafficPolicy {
		spec.ExternalTrafficPolicy = ""
	}
}

func sameNodePorts(a, b *corev1.Service) bool {
	ports := func(svc *corev1.Service) []int32 {
		var all []int32
		for _, p := range svc.Spec.Ports {
			if p.NodePort != 0 {
				all = append(all, p.NodePort)
			}
		}
		slices.Sort(all)
		return slices.Compact(all)
	}
	return slices.Equal(ports(a), ports(b))
}

// equalPointers compares what two pointers point to; nil equals nil only.
func equalPointers[T comparable](a, b *T) bool {
	if a == nil || b == nil {
		return a == b
	}
	return *a == *b
}
