package kinds

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
)

func serviceColumns() []metav1.TableColumnDefinition {
	return []metav1.TableColumnDefinition{
		nameColumn(),
		column("Type", "string", "How the service is exposed: ClusterIP, NodePort, LoadBalancer or ExternalName."),
		column("Cluster-IP", "string", "The primary address inside the cluster, None for a headless service."),
		column("External-IP", "string", "Addresses or names under which it is reached from outside."),
		column("Port(s)", "string", "Ports with their node ports and protocols."),
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

// ingressAddresses returns each address or host name once, in order.
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
