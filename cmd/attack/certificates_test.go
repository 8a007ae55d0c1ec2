package attack

import (
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"testing"
	"time"
)

// A certificate is valid only for the role of its authority.
func TestClientCertificates(t *testing.T) {
	t.Parallel()
	i := target
	file := func(name string) *tls.Certificate {
		pair, err := tls.LoadX509KeyPair(i.file(name+".crt"), i.file(name+".key"))
		if err != nil {
			t.Fatal(err)
		}
		return &pair
	}
	middle := i.clients.issue(t, subject{name: "jane", ca: true})
	middleCert, err := x509.ParseCertificate(middle.Certificate[0])
	if err != nil {
		t.Fatal(err)
	}
	chained := (&authority{cert: middleCert, key: ecdsaKey(middle)}).issue(t, subject{name: "mallory", groups: []string{masters}})
	names := []string{"X-Remote-User: mallory", "X-Remote-Group: system:masters"}
	for _, tc := range []struct {
		name        string
		certificate *tls.Certificate
		header      []string
		code        int
		user        string
		groups      []string // beside system:authenticated
	}{
		{"control: a user", i.clients.issue(t, subject{name: "jane", groups: []string{"g"}}), nil, 201, "jane", []string{"g"}},
		{"control: the front proxy with a user", i.frontProxies.issue(t, subject{name: "front-proxy-client"}), names, 201, "mallory", []string{masters}},
		{"control: without extended key usages", i.clients.issue(t, subject{name: "jane", noUsages: true}), nil, 201, "jane", nil},
		{"no certificate", nil, nil, 403, "", nil},
		{"no certificate, with a user", nil, names, 403, "", nil},
		{"a user's, with another user", i.clients.issue(t, subject{name: "jane"}), names, 201, "jane", nil},
		{"a user with the front proxy's name, with another user", i.clients.issue(t, subject{name: "front-proxy-client"}), names, 201, "front-proxy-client", nil},
		{"a user of the front proxy's authority", i.frontProxies.issue(t, subject{name: "mallory", groups: []string{masters}}), nil, 401, "", nil},
		{"the front proxy without a user", file("front-proxy-client"), nil, 401, "", nil},
		{"the front proxy with groups only", file("front-proxy-client"), names[1:], 401, "", nil},
		{"a front proxy of another name", i.frontProxies.issue(t, subject{name: "mallory"}), names, 401, "", nil},
		{"an expired front proxy", i.frontProxies.issue(t, subject{name: "front-proxy-client", from: -2 * time.Hour, until: -time.Hour}), names, 401, "", nil},
		{"a front proxy for servers", i.frontProxies.issue(t, subject{name: "front-proxy-client", usages: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}}), names, 401, "", nil},
		{"a user of the servers' authority", i.servers.issue(t, subject{name: "mallory", groups: []string{masters}}), nil, 401, "", nil},
		{"a front proxy of the servers' authority", i.servers.issue(t, subject{name: "front-proxy-client"}), names, 401, "", nil},
		{"the gateway's own", file("gateway"), nil, 401, "", nil},
		{"the gateway's own, with a user", file("gateway"), names, 401, "", nil},
		{"the core server's own, with a user", file("core"), names, 201, "system:portico:core", nil},
		{"a user of a stranger", i.stranger.issue(t, subject{name: "portico:admin", groups: []string{masters}}), nil, 401, "", nil},
		{"a front proxy of a stranger", i.stranger.issue(t, subject{name: "front-proxy-client"}), names, 401, "", nil},
		{"an expired user", i.clients.issue(t, subject{name: "jane", from: -2 * time.Hour, until: -time.Hour}), nil, 401, "", nil},
		{"a user to come", i.clients.issue(t, subject{name: "jane", from: time.Hour, until: 2 * time.Hour}), nil, 401, "", nil},
		{"a user for servers", i.clients.issue(t, subject{name: "jane", usages: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}}), nil, 401, "", nil},
		{"a user for signing code", i.clients.issue(t, subject{name: "jane", usages: []x509.ExtKeyUsage{x509.ExtKeyUsageCodeSigning}}), nil, 401, "", nil},
		{"a user without a name", i.clients.issue(t, subject{groups: []string{masters}}), nil, 401, "", nil},
		{"the certificate of an authority's name, signed by itself", selfSigned(t, i.clients), nil, 401, "", nil},
		{"signed by a user's certificate, without the chain", chained, nil, 401, "", nil},
	} {
		code, user, groups, err := i.review(i.client(tc.certificate), tc.header...)
		if err != nil {
			t.Errorf("%s: %v", tc.name, err)
			continue
		}
		want := slices.Clone(tc.groups)
		if tc.code == http.StatusCreated {
			want = append(want, "system:authenticated")
		}
		if code != tc.code || user != tc.user || !slices.Equal(groups, want) {
			t.Errorf("%s: %d as %q of %q, want %d as %q of %q", tc.name, code, user, groups, tc.code, tc.user, want)
		}
	}
}

// masters is the group of administrators.
const masters = "system:masters"

// selfSigned returns a certificate that names a as its issuer, signed with another key.
func selfSigned(t *testing.T, a *authority) *tls.Certificate {
	t.Helper()
	other, err := newAuthority(a.cert.Subject.CommonName)
	if err != nil {
		t.Fatal(err)
	}
	return other.issue(t, subject{name: "mallory", groups: []string{masters}})
}

// The core server trusts X-Remote headers of the configured front proxies only, for health
// checks and metrics too.
func TestCoreServerOnTCP(t *testing.T) {
	t.Parallel()
	i := target
	names := []string{"X-Remote-User: root", "X-Remote-Group: system:masters"}
	clients := []struct {
		name             string
		certificate      *tls.Certificate
		named, unnamed   int // the status with --requestheader-allowed-names and without
		without, unasked int // without a CA file; of the proper client without a user
	}{
		{"control: the front proxy", i.frontProxies.issue(t, subject{name: "front-proxy-client"}), 200, 200, 401, 401},
		{"nobody", nil, 401, 401, 401, 401},
		{"a user", i.clients.issue(t, subject{name: "jane"}), 401, 401, 401, 401},
		{"an administrator", i.clients.issue(t, subject{name: "root", groups: []string{masters}}), 401, 401, 401, 401},
		{"a user with the front proxy's name", i.clients.issue(t, subject{name: "front-proxy-client"}), 401, 401, 401, 401},
		{"a front proxy of another name", i.frontProxies.issue(t, subject{name: "other"}), 401, 200, 401, 401},
		{"a front proxy of a stranger", i.stranger.issue(t, subject{name: "front-proxy-client"}), 401, 401, 401, 401},
		{"a front proxy of the servers' authority", i.servers.issue(t, subject{name: "front-proxy-client"}), 401, 401, 401, 401},
	}
	for _, tc := range []struct {
		name string
		args []string
		want func(i int) int
	}{
		{"allowed names", []string{"--requestheader-client-ca-file=" + i.file("front-proxy-ca.crt"), "--requestheader-allowed-names=front-proxy-client"}, func(n int) int { return clients[n].named }},
		{"any name", []string{"--requestheader-client-ca-file=" + i.file("front-proxy-ca.crt")}, func(n int) int { return clients[n].unnamed }},
		{"no CA file", nil, func(n int) int { return clients[n].without }},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			address := startCore(t, tc.args...)
			core := *i
			core.host, core.Installation = address, nil
			for n, c := range clients {
				for _, path := range []string{"/api/v1/namespaces", "/api/v1/secrets", "/metrics", "/healthz"} {
					if code, body := askAt(t, &core, c.certificate, path, names); code != tc.want(n) {
						t.Errorf("%s asks for %s: %d, want %d: %.200s", c.name, path, code, tc.want(n), body)
					}
				}
				if code, body := askAt(t, &core, c.certificate, "/api/v1/secrets", nil); code != c.unasked {
					t.Errorf("%s without a user: %d, want %d: %.200s", c.name, code, c.unasked, body)
				}
			}
		})
	}
}

// startCore starts a core server on TCP with the installation's etcd and returns its
// address.
func startCore(t *testing.T, args ...string) string {
	t.Helper()
	listener := listen(t)
	address := listener.Addr().String()
	listener.Close()
	cmd := exec.Command(target.Cmd.Path, append([]string{
		"core", "--listen=" + address, "--etcd-servers=" + target.Etcd, "--etcd-prefix=/attack" + filepath.Base(t.TempDir()) + address,
		"--tls-cert-file=" + target.file("gateway.crt"), "--tls-private-key-file=" + target.file("gateway.key"),
	}, args...)...)
	log, err := os.Create(filepath.Join(t.TempDir(), "core.log"))
	if err != nil {
		t.Fatal(err)
	}
	defer log.Close()
	cmd.Stdout, cmd.Stderr = log, log
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		cmd.Process.Kill()
		_ = cmd.Wait() // it was killed
	})
	eventually(t, "the core server listens", func() error {
		conn, err := net.Dial("tcp", address)
		if err != nil {
			said, _ := os.ReadFile(log.Name())
			return fmt.Errorf("%w: %s", err, said)
		}
		return conn.Close()
	})
	return address
}

// askAt sends a request to a server other than the gateway.
func askAt(t *testing.T, i *installation, certificate *tls.Certificate, path string, header []string) (code int, body string) {
	t.Helper()
	client := i.client(certificate)
	defer client.CloseIdleConnections()
	r, err := http.NewRequestWithContext(t.Context(), "GET", "https://"+i.host+path, nil)
	if err != nil {
		t.Fatal(err)
	}
	setHeader(r.Header, header)
	return do(t, client, r)
}
