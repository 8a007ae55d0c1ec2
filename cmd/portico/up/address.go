package up

import (
	"errors"
	"fmt"
	"net"
	"os"
	"syscall"

	"portico/cmd/portico/server"
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
	hosts, err := server.ServiceHosts(cidrs)
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
