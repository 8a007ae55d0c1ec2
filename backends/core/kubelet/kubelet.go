// Package kubelet serves the subresources that are connections: log, exec, attach,
// portforward and proxy of pods, and proxy of nodes and services. They lead to the address
// that the object names, and to no other.
//
// Kubelets are reached over TLS at the address in the status of their node, with the client
// certificate and CA of Config. Without a CA the certificate of a kubelet is not verified.
// Pods and services are reached at the address of a pod, with the scheme that the client
// names; certificates are not verified. No connection is made to loopback and link-local
// addresses, whatever a name resolves to, but to kubelets with Config.AllowLoopback.
//
// Runs in: core.
package kubelet

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"strconv"

	corev1 "k8s.io/api/core/v1"

	"portico/resource"
	"portico/resource/egress"
	"portico/resource/rest"
)

// Config of a Connector.
type Config struct {
	// PreferredAddressTypes are the types of addresses of a node, the preferred one first.
	// Default: DefaultAddressTypes.
	PreferredAddressTypes []string
	// ClientCertFile and ClientKeyFile are the certificate for kubelets, read again when they
	// change; "": none.
	ClientCertFile, ClientKeyFile string
	// CAFile has the CAs of the certificates of kubelets, and is read again when it changes; "":
	// they are not verified.
	CAFile string
	// Dial connects to nodes and pods; nil: directly. What a name stands for is then not known here, and
	// addresses alone are refused.
	Dial egress.Dial
	// Find returns a served resource (group, resource). Required.
	Find func(group, res string) *rest.Resource

	// AllowLoopback permits log, exec, attach and portforward to kubelets at loopback addresses.
	// Proxies never lead there.
	AllowLoopback bool

	// allowed reports whether an address may be connected to. Default: allowed. Tests change it.
	allowed func(netip.Addr) bool
}

// DefaultAddressTypes returns the default of Config.PreferredAddressTypes.
func DefaultAddressTypes() []string {
	return []string{
		string(corev1.NodeHostName), string(corev1.NodeInternalDNS), string(corev1.NodeInternalIP),
		string(corev1.NodeExternalDNS), string(corev1.NodeExternalIP),
	}
}

// defaultPort is the port of a kubelet if its node names none.
const defaultPort = 10250

// Connector serves connections. Safe for concurrent use.
type Connector struct {
	cfg        Config
	transports *transports
}

// New returns a Connector. It reads the files of the Config.
func New(cfg Config) (*Connector, error) {
	if len(cfg.PreferredAddressTypes) == 0 {
		cfg.PreferredAddressTypes = DefaultAddressTypes()
	}
	if cfg.allowed == nil {
		cfg.allowed = allowed
	}
	t, err := newTransports(&cfg)
	if err != nil {
		return nil, err
	}
	return &Connector{cfg: cfg, transports: t}, nil
}

// node is where the kubelet of a node is.
type node struct {
	host, port string
	features   []string
}

// address returns host:port.
func (n *node) address() string { return net.JoinHostPort(n.host, n.port) }

// node returns the kubelet of a node by its status. Errors: NotFound; another one for a node
// without an address.
func (c *Connector) node(ctx context.Context, name string) (*node, error) {
	n, err := rest.GetObject[*corev1.Node](ctx, c.cfg.Find("", "nodes"), resource.Key{Name: name}, resource.At{})
	if err != nil {
		return nil, err
	}
	port := int(n.Status.DaemonEndpoints.KubeletEndpoint.Port)
	if port <= 0 {
		port = defaultPort
	}
	for _, preferred := range c.cfg.PreferredAddressTypes {
		for _, a := range n.Status.Addresses {
			if string(a.Type) == preferred {
				return &node{host: a.Address, port: strconv.Itoa(port), features: n.Status.DeclaredFeatures}, nil
			}
		}
	}
	return nil, fmt.Errorf("no preferred addresses found; known addresses: %v", n.Status.Addresses)
}

func (c *Connector) pod(ctx context.Context, key resource.Key) (*corev1.Pod, error) {
	return rest.GetObject[*corev1.Pod](ctx, c.cfg.Find("", "pods"), key, resource.At{})
}

// Subresources returns the connections of a resource: "pods", "nodes" or "services".
func (c *Connector) Subresources(of string) []rest.Subresource {
	proxied := func(kind string, opts newOptions, to locate) rest.Subresource {
		return rest.Subresource{
			Name: "proxy", GVK: corev1.SchemeGroupVersion.WithKind(kind), Verbs: []string{"create", "delete", "get", "patch", "update"},
			Connect: c.proxy(opts, to),
		}
	}
	stream := func(name, kind string, opts newOptions) rest.Subresource {
		return rest.Subresource{
			Name: name, GVK: corev1.SchemeGroupVersion.WithKind(kind), Verbs: []string{"create", "get"}, Connect: c.stream(name, opts),
		}
	}
	switch of {
	case "nodes":
		return []rest.Subresource{proxied("NodeProxyOptions", options[corev1.NodeProxyOptions], c.locateNode)}
	case "services":
		return []rest.Subresource{proxied("ServiceProxyOptions", options[corev1.ServiceProxyOptions], c.locateService)}
	case "pods":
		return []rest.Subresource{
			stream("attach", "PodAttachOptions", options[corev1.PodAttachOptions]),
			stream("exec", "PodExecOptions", options[corev1.PodExecOptions]),
			{Name: "log", Verbs: []string{"get"}, Connect: &rest.Connection{Methods: []string{http.MethodGet}, Options: options[corev1.PodLogOptions], Serve: c.log}},
			stream("portforward", "PodPortForwardOptions", options[corev1.PodPortForwardOptions]),
			proxied("PodProxyOptions", options[corev1.PodProxyOptions], c.locatePod),
		}
	}
	return nil
}
