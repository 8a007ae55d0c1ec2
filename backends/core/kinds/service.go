package kinds

import (
	"bytes"
	"context"
	"slices"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/kubernetes/pkg/registry/core/service"
	"k8s.io/utils/ptr"

	"portico/resource"
	"portico/resource/rest"
)

// serviceRows is the resource of services. service_address.go has the fields of addresses.
func serviceRows(cfg Config) []row {
	info := storedUnder("services/specs", inAll(namespaced("", "services", "Service", "svc")))
	return []row{{
		Info: info, strategy: service.Strategy, status: service.StatusStrategy,
		fields: fieldsFrom(service.GetAttrs), fieldLabels: []string{"spec.clusterIP", "spec.type"},
		returnDeleted: true,
		customize: func(k *rest.Kind) {
			prepare := k.Strategy.PrepareUpdate
			k.Strategy.PrepareUpdate = func(ctx context.Context, obj, old rest.Object) {
				keepAllocated(obj.(*corev1.Service), old.(*corev1.Service))
				syncClusterIPs(obj.(*corev1.Service), old.(*corev1.Service))
				prepare(ctx, obj, old) // which removes what another type does not use
			}
			k.Strategy.Allocate = allocateService(&info, cfg)
			complete := func(obj rest.Object) { completeStored(obj.(*corev1.Service), cfg.ServiceFamilies[0]) }
			k.Codec = defaultingCodec{k.Codec.(rest.Versioned), complete, isComplete}
			addSubresources(k, cfg.Connections("services")...)
		},
	}}
}

// allocateService returns the function that completes the fields of addresses and allocates
// addresses and node ports.
func allocateService(info *resource.Info, cfg Config) func(context.Context, rest.Object, rest.Object, bool) (func(), error) {
	return func(ctx context.Context, obj, oldObj rest.Object, dryRun bool) (func(), error) {
		svc := obj.(*corev1.Service)
		old, _ := oldObj.(*corev1.Service)
		if old == nil {
			syncClusterIPs(svc, nil)
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
	scheme.Default(svc)
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
