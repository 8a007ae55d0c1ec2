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

	"portico/cmd/e2e"
)

// A certificate is valid only for the role of its authority.
func TestClientCertificates(t *testing.T) {
	t.Parallel()
	i := target
	file := func(name string) *tls.Certificate {
		pair, err := i.pair(name)
		if err != nil {
			t.Fatal(err)
		}
		return pair
	}
	middle := i.clients.issue(t, subject{name: "jane", ca: true})
	middleCert, err := x509.ParseCertificate(middle.Certificate[0])
	if err != nil {
		t.Fatal(err)
	}
	chained := (&authority{cert: middleCert, key: ecdsaKey(middle)}).issue(t, subject{name: "mallory", groups: []string{masters}})
	names := []string{"X-Remote-User: mallory", "X-Remote-Group: system:masters"}
	others := []string{"X-Login-User: mallory", "X-Login-Group: system:masters"} // those of --requestheader-username-headers besides
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
		{"control: the front proxy with a user in another header", i.frontProxies.issue(t, subject{name: "front-proxy-client"}), others, 201, "mallory", []string{masters}},
		{"no certificate, with a user in another header", nil, others, 403, "", nil},
		{"a user's, with another user in another header", i.clients.issue(t, subject{name: "jane"}), others, 201, "jane", nil},
		{"a front proxy of another name, with a user in another header", i.frontProxies.issue(t, subject{name: "mallory"}), others, 401, "", nil},
		{"an expired front proxy, with a user in another header", i.frontProxies.issue(t, subject{name: "front-proxy-client", from: -2 * time.Hour, until: -time.Hour}), others, 401, "", nil},
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

// The core and the CRD server trust X-Remote headers of the configured front proxies only, for
// health checks and metrics too.
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
	ca, named := "--requestheader-client-ca-file="+i.file("front-proxy-ca.crt"), "--requestheader-allowed-names=front-proxy-client"
	for _, tc := range []struct {
		name, command string
		args          []string
		want          func(i int) int
	}{
		{"allowed names", "core", []string{ca, named}, func(n int) int { return clients[n].named }},
		{"any name", "core", []string{ca}, func(n int) int { return clients[n].unnamed }},
		{"no CA file", "core", nil, func(n int) int { return clients[n].without }},
		{"CRD server", "crd", []string{ca, named}, func(n int) int { return clients[n].named }},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			direct := *i
			direct.host = startServer(t, tc.command, tc.args...)
			objects := map[string]string{"core": "/api/v1/secrets", "crd": "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"}[tc.command]
			for n, c := range clients {
				client := direct.client(c.certificate)
				expect := func(path string, want int, header ...string) {
					if code, body, err := direct.ask(client, "GET", path, "", header...); err != nil || code != want {
						t.Errorf("%s asks for %s with %q: %d, want %d: %.200s %v", c.name, path, header, code, want, body, err)
					}
				}
				for _, path := range []string{objects, "/metrics", "/healthz"} {
					expect(path, tc.want(n), names...)
				}
				expect(objects, c.unasked)
				client.CloseIdleConnections()
			}
		})
	}
}

// startServer starts a core or CRD server on TCP with the installation's etcd and returns its
// address.
func startServer(t *testing.T, command string, args ...string) string {
	t.Helper()
	address := "127.0.0.1:" + e2e.FreePort(t, "127.0.0.1")
	cmd := exec.Command(target.Cmd.Path, append([]string{
		command, "--listen=" + address, "--etcd-servers=" + target.Etcd, "--etcd-prefix=/attack" + filepath.Base(t.TempDir()) + address,
		"--tls-cert-file=" + target.file("gateway.crt"), "--tls-private-key-file=" + target.file("gateway.key"),
	}, args...)...)
	log, err := os.Create(filepath.Join(t.TempDir(), "server.log"))
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
	eventually(t, "the server listens", func() error {
		conn, err := net.Dial("tcp", address)
		if err != nil {
			said, _ := os.ReadFile(log.Name())
			return fmt.Errorf("%w: %s", err, said)
		}
		return conn.Close()
	})
	return address
}
