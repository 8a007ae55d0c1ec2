package portico

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"k8s.io/apiserver/pkg/util/webhook"
)

// resolve makes the processes reach Services at the addresses of the resolver of a test: through a proxy in this process, which
// their egress selector names.
func (s *Server) resolve(resolver webhook.ServiceResolver, args map[string][]string) error {
	socket, file := filepath.Join(s.dir, "egress.sock"), filepath.Join(s.dir, "egress.yaml")
	listener, err := net.Listen("unix", socket)
	if err != nil {
		return err
	}
	s.proxy = &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if err := connect(w, r, resolver); err != nil {
			http.Error(w, err.Error(), http.StatusBadGateway)
		}
	})}
	go s.proxy.Serve(listener)
	config := fmt.Sprintf(`apiVersion: apiserver.k8s.io/v1beta1
kind: EgressSelectorConfiguration
egressSelections:
- name: cluster
  connection: {proxyProtocol: HTTPConnect, transport: {uds: {udsName: %s}}}
`, socket)
	for _, name := range processes {
		args[name] = append(args[name], "--egress-selector-config-file="+file)
	}
	return os.WriteFile(file, []byte(config), 0o600)
}

// connect copies between the client of a CONNECT request and the address that the resolver has for NAME.NAMESPACE.svc:PORT.
func connect(w http.ResponseWriter, r *http.Request, resolver webhook.ServiceResolver) error {
	host, port, err := net.SplitHostPort(r.Host)
	if err != nil {
		return err
	}
	number, err := strconv.ParseInt(port, 10, 32)
	if err != nil {
		return err
	}
	name, domain, _ := strings.Cut(host, ".")
	namespace, _, _ := strings.Cut(domain, ".")
	url, err := resolver.ResolveEndpoint(namespace, name, int32(number))
	if err != nil {
		return err
	}
	server, err := net.Dial("tcp", url.Host)
	if err != nil {
		return err
	}
	defer server.Close()
	client, buffered, err := http.NewResponseController(w).Hijack()
	if err != nil {
		return err
	}
	defer client.Close()
	if _, err := io.WriteString(client, "HTTP/1.1 200 Connection established\r\n\r\n"); err != nil {
		return nil // the client has gone
	}
	go func() {
		io.Copy(server, buffered)
		server.Close()
	}()
	io.Copy(client, server)
	return nil
}
