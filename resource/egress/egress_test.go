package egress

import (
	"bufio"
	"context"
	"crypto/tls"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"k8s.io/client-go/util/cert"
)

// write writes a configuration with selections of YAML, and returns its path.
func write(t *testing.T, selections string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "egress.yaml")
	text := "apiVersion: apiserver.k8s.io/v1beta1\nkind: EgressSelectorConfiguration\negressSelections:\n" + selections
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// Destinations that the file does not name, or names as Direct, are not proxied.
func TestDestinations(t *testing.T) {
	t.Parallel()
	s, err := Open("")
	if err != nil || s.ControlPlane != nil || s.Cluster != nil || s.Etcd != nil {
		t.Errorf("without a file: %v, %v", s, err)
	}
	s, err = Open(write(t, `
- {name: Cluster, connection: {proxyProtocol: HTTPConnect, transport: {uds: {udsName: /x.sock}}}}
- {name: etcd, connection: {proxyProtocol: GRPC, transport: {uds: {udsName: /x.sock}}}}
`))
	if err != nil || s.Cluster == nil || s.Etcd == nil || s.ControlPlane != nil {
		t.Errorf("got %v, %v", s, err)
	}
}

// A file that kube-apiserver refuses is refused with the name of the flag, and so is one with a proxy that
// upstream has no dialer for.
func TestWrongFiles(t *testing.T) {
	t.Parallel()
	for about, c := range map[string]struct{ selections, want string }{
		"unknown name":      {"- {name: other, connection: {proxyProtocol: Direct}}", `Unsupported value: "other"`},
		"name twice":        {"- {name: etcd, connection: {proxyProtocol: Direct}}\n- {name: Etcd, connection: {proxyProtocol: Direct}}", "Duplicate value"},
		"unknown field":     {"- {name: etcd, connexion: {}}", "connexion"},
		"unknown protocol":  {"- {name: etcd, connection: {proxyProtocol: SOCKS}}", `Unsupported value: "SOCKS"`},
		"direct by a proxy": {"- {name: etcd, connection: {proxyProtocol: Direct, transport: {uds: {udsName: /x}}}}", "must be absent for direct connect"},
		"no transport":      {"- {name: etcd, connection: {proxyProtocol: HTTPConnect}}", "transport must be set for HTTPConnect"},
		"two transports":    {"- {name: etcd, connection: {proxyProtocol: HTTPConnect, transport: {uds: {udsName: /x}, tcp: {url: 'https://x'}}}}", "TCP and UDS cannot both be set"},
		"GRPC over TCP":     {"- {name: etcd, connection: {proxyProtocol: GRPC, transport: {tcp: {url: 'https://x'}}}}", "UDS must be set with GRPC"},
		"no TLS":            {"- {name: etcd, connection: {proxyProtocol: HTTPConnect, transport: {tcp: {url: 'https://x'}}}}", "TLSConfig must be present when using HTTPS"},
		"plain HTTP":        {"- {name: etcd, connection: {proxyProtocol: HTTPConnect, transport: {tcp: {url: 'http://x'}}}}", "the proxy http://x must be https"},
		"no certificate": {"- {name: etcd, connection: {proxyProtocol: HTTPConnect, transport: {tcp: {url: 'https://x', tlsConfig: {clientCert: /none, clientKey: /none}}}}}",
			"TLS client cert does not exist"},
	} {
		t.Run(about, func(t *testing.T) {
			t.Parallel()
			_, err := Open(write(t, c.selections))
			if err == nil || !strings.Contains(err.Error(), c.want) || !strings.Contains(err.Error(), "--egress-selector-config-file=") {
				t.Errorf("got %v, want %q", err, c.want)
			}
		})
	}
	if _, err := Open("/none.yaml"); err == nil || !strings.Contains(err.Error(), "/none.yaml") {
		t.Errorf("a file that is not there: %v", err)
	}
}

// A proxy by TLS is asked with the client certificate; what it answers other than 200 is the error.
func TestProxyByTLS(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	crt, key, err := cert.GenerateSelfSignedCertKey("127.0.0.1", nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	for name, data := range map[string][]byte{"tls.crt": crt, "tls.key": key} {
		if err := os.WriteFile(filepath.Join(dir, name), data, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	pair, err := tls.X509KeyPair(crt, key)
	if err != nil {
		t.Fatal(err)
	}
	l, err := tls.Listen("tcp", "127.0.0.1:0", &tls.Config{Certificates: []tls.Certificate{pair}, ClientAuth: tls.RequireAnyClientCert})
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	go func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			if r, err := http.ReadRequest(bufio.NewReader(conn)); err == nil && r.Method == http.MethodConnect && r.RequestURI == "a.invalid:443" {
				fmt.Fprint(conn, "HTTP/1.1 200 OK\r\n\r\n")
			} else {
				fmt.Fprint(conn, "HTTP/1.1 403 Forbidden\r\n\r\n")
			}
			conn.Close()
		}
	}()
	s, err := Open(write(t, fmt.Sprintf(`
- name: controlplane
  connection:
    proxyProtocol: HTTPConnect
    transport: {tcp: {url: "https://%s", tlsConfig: {caBundle: %s/tls.crt, clientCert: %[2]s/tls.crt, clientKey: %[2]s/tls.key}}}
`, l.Addr(), dir)))
	if err != nil {
		t.Fatal(err)
	}
	conn, err := s.ControlPlane(context.Background(), "tcp", "a.invalid:443")
	if err != nil {
		t.Fatal(err)
	}
	conn.Close()
	if _, err := s.ControlPlane(context.Background(), "tcp", "b.invalid:443"); err == nil || !strings.Contains(err.Error(), "403") {
		t.Errorf("an address that the proxy refuses: %v", err)
	}
}
