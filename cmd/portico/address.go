package main

import (
	"errors"
	"fmt"
	"net"
	"os"
	"strings"
	"syscall"

	"github.com/spf13/pflag"

	"portico/backends/core/services"
)

// freeAddress checks that address can be bound, and chooses a port for port 0. The
// gateway binds it later; if another process was faster, the gateway fails.
func freeAddress(address string) (host, port string, err error) {
	const remedy = "choose another address with --listen, for example --listen=127.0.0.1:0 for any free port"
	if host, _, err = net.SplitHostPort(address); err != nil {
		return "", "", fmt.Errorf("listen on %q: must have the form host:port; %s", address, remedy)
	}
	ln, err := net.Listen("tcp", address)
	var op *net.OpError
	switch {
	case errors.Is(err, syscall.EADDRINUSE):
		return "", "", fmt.Errorf("listen on %s: the address is in use by another process; %s", address, remedy)
	case errors.As(err, &op):
		return "", "", fmt.Errorf("listen on %s: %w; %s", address, op.Err, remedy)
	case err != nil:
		return "", "", fmt.Errorf("listen on %s: %w; %s", address, err, remedy)
	}
	_, port, err = net.SplitHostPort(ln.Addr().String())
	return host, port, errors.Join(err, ln.Close())
}

// reachableHost returns a host to connect to: loopback where the address is
// every address of the machine.
func reachableHost(host string) string {
	if ip := net.ParseIP(host); host == "" || ip != nil && ip.IsUnspecified() {
		return "127.0.0.1"
	}
	return host
}

// certificateHosts returns the hosts of the gateway's certificate: the host that it
// listens on, or all addresses and the name of the machine if it listens on all; and
// the names and addresses of Service default/kubernetes, by the CIDRs of Services.
func certificateHosts(host, cidrs string) ([]string, error) {
	hosts, err := serviceHosts(cidrs)
	if err != nil {
		return nil, err
	}
	if reachable := reachableHost(host); reachable == host {
		return append(hosts, host), nil
	}
	if name, err := os.Hostname(); err == nil && name != "" {
		hosts = append(hosts, name)
	}
	addresses, err := net.InterfaceAddrs()
	if err != nil {
		return nil, fmt.Errorf("list addresses of this machine: %w", err)
	}
	for _, a := range addresses {
		if network, ok := a.(*net.IPNet); ok && !network.IP.IsLinkLocalUnicast() {
			hosts = append(hosts, network.IP.String())
		}
	}
	return hosts, nil
}

// defaultServiceCIDR is the range of addresses of Services.
const defaultServiceCIDR = "10.96.0.0/16"

// addNodePorts adds --service-node-port-range.
func addNodePorts(fs *pflag.FlagSet, to *string) {
	fs.StringVar(to, "service-node-port-range", "30000-32767", "`ports` of Services of type NodePort and LoadBalancer on nodes: first-last")
}

// serviceHosts returns the names of Service default/kubernetes and the first address of each
// CIDR of Services, which are separated by commas.
func serviceHosts(cidrs string) ([]string, error) {
	addresses, err := services.FirstAddresses(strings.Split(cidrs, ","))
	if err != nil {
		return nil, fmt.Errorf("--service-cluster-ip-range: %w", err)
	}
	return append([]string{"kubernetes", "kubernetes.default", "kubernetes.default.svc", "kubernetes.default.svc.cluster.local"}, addresses...), nil
}

// shellQuote quotes a path for a shell if it needs it.
func shellQuote(s string) string {
	if strings.Trim(s, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789/._-+@,:") == "" {
		return s
	}
	return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'"
}
