package kinds

import (
	networkingv1 "k8s.io/api/networking/v1"
	"k8s.io/kubernetes/pkg/registry/networking/ingress"
	"k8s.io/kubernetes/pkg/registry/networking/ingressclass"
	"k8s.io/kubernetes/pkg/registry/networking/ipaddress"
	"k8s.io/kubernetes/pkg/registry/networking/networkpolicy"
	"k8s.io/kubernetes/pkg/registry/networking/servicecidr"
)

// networkingRows are the resources of networking.k8s.io.
func networkingRows() []row {
	const group = networkingv1.GroupName
	return []row{
		{
			Info:     storedUnder("ingress", namespaced(group, "ingresses", "Ingress", "ing")),
			strategy: ingress.Strategy, status: ingress.StatusStrategy,
		},
		{Info: clusterwide(group, "ingressclasses", "IngressClass"), strategy: ingressclass.Strategy},
		{Info: clusterwide(group, "ipaddresses", "IPAddress", "ip"), strategy: ipaddress.Strategy},
		{Info: namespaced(group, "networkpolicies", "NetworkPolicy", "netpol"), strategy: networkpolicy.Strategy},
		{
			Info:     clusterwide(group, "servicecidrs", "ServiceCIDR"),
			strategy: servicecidr.Strategy, status: servicecidr.StatusStrategy,
		},
	}
}
