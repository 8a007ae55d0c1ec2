// Package egress chooses how connections leave a process: by kube-apiserver's EgressSelectorConfiguration,
// directly or through a proxy, for the control plane, etcd and the cluster. The dialers and their metrics are
// upstream's.
//
// Runs in: gateway, core, crd.
package egress

import (
	"context"
	"fmt"
	"net"
	"strings"

	"k8s.io/apiserver/pkg/server/egressselector"
)

// Dial connects to host:port.
type Dial = func(ctx context.Context, network, address string) (net.Conn, error)

// Selector is the dialers by destination; nil: directly. Connections to unix sockets are always direct.
type Selector struct {
	// ControlPlane is for the servers that a gateway starts with, and for webhooks that are named by URLs.
	ControlPlane Dial
	// Etcd is for etcd.
	Etcd Dial
	// Cluster is for Backends, and for what Services, nodes and pods run.
	Cluster Dial
}

// Metrics are the prefixes of upstream's metrics.
var Metrics = []string{"apiserver_egress_dialer_", "konnectivity_network_proxy_client_"}

// Open reads an EgressSelectorConfiguration; "": everything is direct. The file, and the certificates that it
// names, are read once, as by kube-apiserver.
func Open(path string) (Selector, error) {
	if path == "" {
		return Selector{}, nil
	}
	s, err := open(path)
	if err != nil {
		return Selector{}, fmt.Errorf("--egress-selector-config-file=%s: %w", path, err)
	}
	return s, nil
}

func open(path string) (out Selector, err error) {
	config, err := egressselector.ReadEgressSelectorConfiguration(path)
	if err != nil {
		return out, err
	}
	if problems := egressselector.ValidateEgressSelectorConfiguration(config); len(problems) > 0 {
		return out, problems.ToAggregate()
	}
	for _, s := range config.EgressSelections {
		// Upstream accepts it, and has no dialer for it.
		if t := s.Connection.Transport; t != nil && t.TCP != nil && strings.HasPrefix(t.TCP.URL, "http://") {
			return out, fmt.Errorf("egressSelection %q: the proxy %s must be https", s.Name, t.TCP.URL)
		}
	}
	selector, err := egressselector.NewEgressSelector(config)
	if err != nil || selector == nil {
		return out, err
	}
	for kind, to := range map[egressselector.EgressType]*Dial{
		egressselector.ControlPlane: &out.ControlPlane, egressselector.Etcd: &out.Etcd, egressselector.Cluster: &out.Cluster,
	} {
		dial, err := selector.Lookup(kind.AsNetworkContext())
		if err != nil {
			return Selector{}, err
		}
		*to = dial
	}
	return out, nil
}
