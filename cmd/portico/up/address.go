package up

import (
	"errors"
	"fmt"
	"net"
	"os"
	"strconv"
	"strings"
	"syscall"

	"k8s.io/apimachinery/pkg/util/validation"

	"portico/backends/core/services"
	"portico/resource/serve/socket"
)

const chooseAddress = "choose another address with --listen, for example --listen=127.0.0.1:0 for any free port"

var errNoNetworkAddress = errors.New("--listen names no network address, which the processes of the installation need; add one, for example --listen=127.0.0.1:0")

// gatewayAddresses are the addresses of the gateway.
type gatewayAddresses struct {
	// listen are the values of its --listen.
	listen []string
	// hosts are those of the network addresses; port is that of the first one.
	hosts []string
	port  string
	// files are sockets that systemd passed to this process for the gateway, and names their
	// names.
	files []*os.File
	names []string
}

// resolve checks the values of --listen of `up`, and chooses ports for port 0. The processes of
// the installation connect to the first network address. share is that of the gateway.
func (g *gatewayAddresses) resolve(values []string, share bool) error {
	for _, value := range values {
		name, isInherited := strings.CutPrefix(value, "systemd:")
		switch {
		case isInherited:
			if err := g.inherit(name); err != nil {
				return fmt.Errorf("listen on %s: %w", value, err)
			}
			g.listen = append(g.listen, value)
		case strings.HasPrefix(value, "unix://"):
			g.listen = append(g.listen, value)
		default:
			host, port, err := freeAddress(value, share)
			if err != nil {
				return err
			}
			g.listen = append(g.listen, net.JoinHostPort(host, port))
			g.add(host, port)
		}
	}
	if len(g.hosts) == 0 {
		return errNoNetworkAddress
	}
	return nil
}

// add adds a network address.
func (g *gatewayAddresses) add(host, port string) {
	if len(g.hosts) == 0 {
		g.port = port
	}
	g.hosts = append(g.hosts, host)
}

// inherit adds the sockets that systemd passed under a name.
func (g *gatewayAddresses) inherit(name string) error {
	files, err := socket.Inherited(name)
	if err != nil {
		return err
	}
	for _, file := range files {
		bound, err := net.FileListener(file)
		if err != nil {
			return fmt.Errorf("it is not a stream socket that listens: %w", err)
		}
		address := bound.Addr()
		if err := bound.Close(); err != nil {
			return err
		}
		if tcp, ok := address.(*net.TCPAddr); ok {
			g.add(tcp.IP.String(), strconv.Itoa(tcp.Port))
		}
		g.files, g.names = append(g.files, file), append(g.names, name)
	}
	return nil
}

// reachable returns the host:port to connect to.
func (g *gatewayAddresses) reachable() string {
	return net.JoinHostPort(reachableHost(g.hosts[0]), g.port)
}

// env passes the sockets of systemd on to the gateway, sd_listen_fds(3), but for the process
// id, which is not known before it starts.
func (g *gatewayAddresses) env() []string {
	if len(g.files) == 0 {
		return nil
	}
	return []string{"LISTEN_FDS=" + strconv.Itoa(len(g.files)), "LISTEN_FDNAMES=" + strings.Join(g.names, ":")}
}

// freeAddress checks that address can be bound, and chooses a port for port 0. The
// gateway binds it later; if another process was faster, the gateway fails.
func freeAddress(address string, share bool) (host, port string, err error) {
	if host, _, err = splitAddress(address); err != nil {
		return "", "", err
	}
	ln, err := socket.ListenTCP(address, share)
	var op *net.OpError
	switch {
	case errors.Is(err, syscall.EADDRINUSE):
		return "", "", fmt.Errorf("listen on %s: the address is in use by another process; %s", address, chooseAddress)
	case errors.As(err, &op):
		return "", "", fmt.Errorf("listen on %s: %w; %s", address, op.Err, chooseAddress)
	case err != nil:
		return "", "", fmt.Errorf("listen on %s: %w; %s", address, err, chooseAddress)
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

// certificateHosts returns the hosts of the gateway's certificate: those that it listens
// on, or all addresses and the name of the machine if it listens on all; the names and
// addresses of Service default/kubernetes, by the CIDRs of Services; and further ones.
func certificateHosts(listened []string, cidrs string, further []string) ([]string, error) {
	hosts, err := services.Hosts(cidrs)
	if err != nil {
		return nil, fmt.Errorf("--service-cluster-ip-range: %w", err)
	}
	hosts = append(hosts, further...)
	everywhere := false
	for _, host := range listened {
		if reachableHost(host) == host {
			hosts = append(hosts, host)
		} else {
			everywhere = true
		}
	}
	if !everywhere {
		return hosts, nil
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

// checkSANs checks the values of --tls-san.
func checkSANs(hosts []string) error {
	for _, host := range hosts {
		if net.ParseIP(host) == nil && len(validation.IsDNS1123Subdomain(strings.TrimPrefix(host, "*."))) > 0 {
			return fmt.Errorf("--tls-san=%s: must be a DNS name, also *.NAME, or an IP address, without a port", host)
		}
	}
	return nil
}
