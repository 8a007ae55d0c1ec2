package main

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"portico/cmd/e2e"
	"portico/cmd/internal/testtools"
	"portico/internal/testing/await"
)

// A gateway serves all addresses of --listen, and its certificate has their hosts and those of
// --tls-san. Without them the next start makes another certificate of the same authority.
func TestSeveralAddresses(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	path := filepath.Join(dir, "gateway.sock")
	up := e2e.Install(t, filepath.Join(dir, "data"), "--listen=127.0.0.1:0", "--listen=[::1]:0", "--listen=unix://"+path, "--tls-san=portico.example.com")
	bound, err := testtools.Listeners(up.Child(t, "gateway"))
	if err != nil || len(bound) != 3 {
		t.Fatalf("got %v, %v", bound, err)
	}
	for _, l := range bound {
		client := dialing(t, l.Network, l.Address, "portico.example.com", up.Dir)
		url := "https://portico.example.com/livez"
		if l.Network == "unix" {
			url = "http://portico/livez"
		}
		if code, body := e2e.Get(t, client, url, ""); code != http.StatusOK || body != "ok" {
			t.Errorf("%v: got %d %s", l, code, body)
		}
	}
	ca, err := os.ReadFile(filepath.Join(up.Dir, "pki/serving-ca.crt"))
	if err != nil {
		t.Fatal(err)
	}
	if err := up.Stop(); err != nil {
		t.Fatal(err)
	}
	up = e2e.Install(t, up.Dir)
	address := strings.TrimPrefix(up.Endpoint, "https://")
	if code, _ := e2e.Get(t, dialing(t, "tcp", address, "localhost", up.Dir), "https://localhost/livez", ""); code != http.StatusOK {
		t.Errorf("got %d", code)
	}
	_, err = dialing(t, "tcp", address, "portico.example.com", up.Dir).Get("https://portico.example.com/livez")
	if err == nil || !strings.Contains(err.Error(), "certificate is valid for") {
		t.Errorf("the name that --tls-san no longer has: %v", err)
	}
	if now, err := os.ReadFile(filepath.Join(up.Dir, "pki/serving-ca.crt")); err != nil || !slices.Equal(now, ca) {
		t.Errorf("the authority is another: %v", err)
	}
}

// dialing returns a client that connects to an address, and trusts the installation in dir to be
// the server of that name.
func dialing(t *testing.T, network, address, name, dir string) *http.Client {
	t.Helper()
	var dialer net.Dialer
	transport := &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return dialer.DialContext(ctx, network, address)
	}}
	t.Cleanup(transport.CloseIdleConnections)
	if network != "unix" {
		ca, err := os.ReadFile(filepath.Join(dir, "pki/serving-ca.crt"))
		if err != nil {
			t.Fatal(err)
		}
		roots := x509.NewCertPool()
		roots.AppendCertsFromPEM(ca)
		transport.TLSClientConfig = &tls.Config{RootCAs: roots, ServerName: name}
	}
	return &http.Client{Transport: transport, Timeout: await.Patience()}
}

// `up` passes the sockets of systemd on to its gateway, also when that is started again;
// connections wait meanwhile.
func TestSocketActivation(t *testing.T) {
	t.Parallel()
	program, dir := e2e.Program(t, testtools.Portico), t.TempDir()
	bound, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer bound.Close()
	file, err := bound.(*net.TCPListener).File()
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	up := activate(t, file, program, "up", "--listen=systemd:portico.socket", "--data-dir="+dir)
	address := bound.Addr().String()
	e2e.Eventually(t, "the installation is ready", func() error {
		if !strings.Contains(up.String(), "https://"+address) {
			return fmt.Errorf("it has printed: %s", up)
		}
		return nil
	})
	client := dialing(t, "tcp", address, "localhost", dir)
	answers := func(when string) {
		t.Helper()
		if code, body := e2e.Get(t, client, "https://localhost/livez", ""); code != http.StatusOK {
			t.Errorf("%s: got %d %s", when, code, body)
		}
	}
	answers("at first")
	installed := &e2e.Installation{Installation: &testtools.Installation{Dir: dir, Cmd: up.cmd}}
	for range 2 {
		client.CloseIdleConnections()
		if err := syscall.Kill(installed.Child(t, "gateway"), syscall.SIGKILL); err != nil {
			t.Fatal(err)
		}
		e2e.Eventually(t, "the gateway answers again", func() error {
			response, err := client.Get("https://localhost/readyz")
			if err != nil {
				return err
			}
			response.Body.Close()
			if response.StatusCode != http.StatusOK {
				return fmt.Errorf("got %s", response.Status)
			}
			return nil
		})
	}
}

// activated is a process and what it prints.
type activated struct {
	*testtools.Output
	cmd *exec.Cmd
}

// activate starts a program as systemd does, with a socket of the name portico.socket, and stops
// it at the end of the test.
func activate(t *testing.T, socket *os.File, program string, args ...string) *activated {
	t.Helper()
	// systemd sets the process id in the child, and so does the shell.
	cmd := exec.Command("sh", append([]string{"-c", `LISTEN_PID=$$ exec "$0" "$@"`, program}, args...)...)
	cmd.Env = append(os.Environ(), "LISTEN_FDS=1", "LISTEN_FDNAMES=portico.socket")
	cmd.ExtraFiles = []*os.File{socket}
	a := &activated{testtools.NewOutput(), cmd}
	cmd.Stdout, cmd.Stderr = a, a
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := cmd.Process.Signal(syscall.SIGTERM); err != nil {
			t.Error(err)
		}
		if err := cmd.Wait(); err != nil {
			t.Errorf("%v\n%s", err, a)
		}
	})
	return a
}
