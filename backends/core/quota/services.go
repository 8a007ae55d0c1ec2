package quota

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	quota "k8s.io/apiserver/pkg/quota/v1"
	"k8s.io/apiserver/pkg/quota/v1/generic"
)

var serviceCount = countName("", "services")

func services(list generic.ListFuncByNamespace) quota.Evaluator {
	names := []corev1.ResourceName{
		serviceCount, corev1.ResourceServices, corev1.ResourceServicesNodePorts, corev1.ResourceServicesLoadBalancers,
	}
	return &evaluator[*corev1.Service]{
		resource: schema.GroupResource{Resource: "services"}, list: list,
		names:   func(name corev1.ResourceName) bool { return slices.Contains(names, name) },
		handles: writes,
		usage:   serviceUsage,
	}
}

// serviceUsage returns the usage of a service. It counts the node ports that the service will
// get as well as those that are allocated.
func serviceUsage(s *corev1.Service) corev1.ResourceList {
	var ports, balancers int64
	switch s.Spec.Type {
	case corev1.ServiceTypeNodePort:
		ports = int64(len(s.Spec.Ports))
	case corev1.ServiceTypeLoadBalancer:
		balancers = 1
		for _, p := range s.Spec.Ports {
			if allocate := s.Spec.AllocateLoadBalancerNodePorts; allocate == nil || *allocate || p.NodePort != 0 {
				ports++
			}
		}
	}
	return corev1.ResourceList{
		serviceCount: count(1), corev1.ResourceServices: count(1),
		corev1.ResourceServicesNodePorts: count(ports), corev1.ResourceServicesLoadBalancers: count(balancers),
	}
}
