package manifests

import (
	"crypto/x509"
	"regexp"
	"slices"
	"strconv"
	"strings"

	networkingv1 "k8s.io/api/networking/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/intstr"
)

// connection is from the pods of one workload to a port of another.
type connection struct {
	from, to *Workload
	port     int
}

// address matches the addresses that a process connects to, and those that it tells others.
var address = regexp.MustCompile(`https://([a-z0-9.-]*[a-z][a-z0-9.-]*):(\d+)`)

// checkConnections checks that each address in the settings leads to a port, that both ends accept the certificate of the
// other, and that network policies admit these connections, clients of the gateway and Prometheus, and nothing else.
func (s *Set) checkConnections(report func(string, ...any)) {
	var needed []connection
	for _, from := range s.Workloads {
		for flag, values := range from.Settings {
			for _, m := range address.FindAllStringSubmatch(strings.Join(values, ","), -1) {
				port, _ := strconv.Atoi(m[2])
				if strings.Count(m[1], ".") > 1 {
					continue // outside
				}
				to, target := s.resolve(m[1], port)
				if to == nil {
					report("%s connects to %s:%d, which leads to no pod", from.Name, m[1], port)
					continue
				}
				if flag != "advertise-client-urls" { // which others connect to
					needed = append(needed, connection{from, to, target})
				}
				s.checkHandshake(from, to, m[1], report)
			}
		}
	}
	for _, to := range s.Workloads {
		for _, p := range to.Container.Ports {
			port := int(p.ContainerPort)
			for _, from := range s.Workloads {
				need := slices.Contains(needed, connection{from, to, port}) || to.Component == "gateway" && p.Name == "https"
				if got := s.admits(to, p.Name, from.Template.Labels, "portico"); got != need {
					report("network policies admit connections of %s to port %s of %s: %t", from.Name, p.Name, to.Name, got)
				}
			}
			if got := s.admits(to, p.Name, labels.Set{"app": "prometheus"}, "monitoring"); got != (p.Name == "probes" || p.Name == "https" && to.Component == "gateway") {
				report("network policies admit connections of the namespace monitoring to port %s of %s: %t", p.Name, to.Name, got)
			}
			if got := s.admits(to, p.Name, to.Template.Labels, "other"); got != (p.Name == "https" && to.Component == "gateway") {
				report("network policies admit connections of other namespaces to port %s of %s: %t", p.Name, to.Name, got)
			}
		}
	}
}

// resolve returns the pods behind a name, which is that of a Service, or POD.SERVICE, and the port of their container.
func (s *Set) resolve(host string, port int) (*Workload, int) {
	pod, name, isPod := strings.Cut(host, ".")
	if !isPod {
		name = host
	}
	for _, service := range s.services {
		w := s.selects(labels.SelectorFromSet(service.Spec.Selector))
		if service.Name != name || w == nil || isPod && !w.hasPod(pod, name) {
			continue
		}
		for _, p := range service.Spec.Ports {
			if int(p.Port) == port && (service.Spec.ClusterIP != "None" || portOf(w, p.TargetPort) == port) {
				return w, portOf(w, p.TargetPort)
			}
		}
	}
	return nil, 0
}

// hasPod reports whether a StatefulSet has a pod of that name in that Service.
func (w *Workload) hasPod(pod, service string) bool {
	n, err := strconv.Atoi(strings.TrimPrefix(pod, w.Name+"-"))
	return w.Service == service && err == nil && n >= 0 && n < w.Replicas
}

// handshake names the flags by which two processes show each other certificates.
type handshake struct{ server, serverCA, client, clientCA string }

func handshakeOf(from, to *Workload) handshake {
	switch {
	case from.Component == "etcd":
		return handshake{"peer-cert-file", "peer-trusted-ca-file", "peer-cert-file", "peer-trusted-ca-file"}
	case to.Component == "etcd":
		return handshake{"cert-file", "etcd-cafile", "etcd-certfile", "trusted-ca-file"}
	case to.Component == "gateway":
		return handshake{"tls-cert-file", "gateway-ca-file", "gateway-cert-file", "client-ca-file"}
	}
	return handshake{"tls-cert-file", "backend-ca-file", "proxy-client-cert-file", "requestheader-client-ca-file"}
}

// checkHandshake checks that both ends of a connection accept the certificate of the other.
func (s *Set) checkHandshake(from, to *Workload, host string, report func(string, ...any)) {
	h := handshakeOf(from, to)
	for _, shown := range []struct {
		by, verifier *Workload
		cert, ca     string
		name         string
		usage        x509.ExtKeyUsage
	}{
		{to, from, h.server, h.serverCA, host, x509.ExtKeyUsageServerAuth}, {from, to, h.client, h.clientCA, "", x509.ExtKeyUsageClientAuth},
	} {
		roots := x509.NewCertPool()
		data, _ := s.file(shown.verifier, shown.verifier.setting(shown.ca))
		roots.AppendCertsFromPEM(data)
		c, err := s.certificate(shown.by, shown.cert)
		if err == nil {
			_, err = c.Verify(x509.VerifyOptions{Roots: roots, DNSName: shown.name, KeyUsages: []x509.ExtKeyUsage{shown.usage}})
		}
		if err != nil {
			report("%s connects to %s: --%s of %s: %v", from.Name, host, shown.cert, shown.by.Name, err)
		}
	}
}

// admits reports whether network policies let a pod with labels, in a namespace, connect to a port.
func (s *Set) admits(to *Workload, port string, from labels.Set, namespace string) bool {
	governed := false
	for _, p := range s.policies {
		if !matching(&p.Spec.PodSelector).Matches(labels.Set(to.Template.Labels)) {
			continue
		}
		governed = true
		for _, rule := range p.Spec.Ingress {
			at := func(p networkingv1.NetworkPolicyPort) bool {
				return p.Port == nil || *p.Port == intstr.FromString(port)
			}
			by := func(peer networkingv1.NetworkPolicyPeer) bool {
				inside := namespace == "portico"
				if peer.NamespaceSelector != nil {
					inside = matching(peer.NamespaceSelector).Matches(labels.Set{"kubernetes.io/metadata.name": namespace})
				}
				return inside && (peer.PodSelector == nil || matching(peer.PodSelector).Matches(from))
			}
			if slices.ContainsFunc(rule.Ports, at) && (len(rule.From) == 0 || slices.ContainsFunc(rule.From, by)) {
				return true
			}
		}
	}
	return !governed
}
