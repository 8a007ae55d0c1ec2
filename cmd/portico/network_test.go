package main

import (
	"crypto/tls"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"k8s.io/client-go/util/cert"

	"portico/cmd/e2e"
	"portico/resource/serve/socket"
)

// The gateway of `up` has the flags of TLS, of connections and of browsers, by flag and by file; its other
// processes, which listen on sockets, start all the same. A certificate by name is read again.
func TestNetworkFlags(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	named := func(file, host string) string {
		crt, key, err := cert.GenerateSelfSignedCertKey(host, nil, nil)
		if err != nil {
			t.Fatal(err)
		}
		e2e.WriteFile(t, filepath.Join(dir, file+".crt"), string(crt))
		e2e.WriteFile(t, filepath.Join(dir, file+".key"), string(key))
		return filepath.Join(dir, file+".crt") + "," + filepath.Join(dir, file+".key")
	}
	file := filepath.Join(dir, "portico.yaml")
	e2e.WriteFile(t, file, head+`
all: {max-request-header-bytes: 8192}
up:
  tls-sni-cert-key: ["`+named("one", "one.example.com")+`", "`+named("two", "two.example.com")+`:*.example.org"]
  cors-allowed-origins: ['^https://console\.example\.com(:|$)']
gateway: {strict-transport-security-directives: [max-age=600, preload]}
`)
	up := e2e.Install(t, filepath.Join(dir, "data"), "--config="+file, "--tls-min-version=VersionTLS13", "--max-connections-per-address=200", "--permit-port-sharing")
	address := strings.TrimPrefix(up.Endpoint, "https://")
	other, err := socket.ListenTCP(address, true)
	if err != nil {
		t.Errorf("another process of the user: %v", err)
	} else {
		other.Close()
	}
	shown := func(name string) string {
		conn, err := tls.Dial("tcp", address, &tls.Config{ServerName: name, InsecureSkipVerify: true})
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		if names := conn.ConnectionState().PeerCertificates[0].DNSNames; len(names) > 0 {
			return names[0]
		}
		return ""
	}
	for asked, want := range map[string]string{"one.example.com": "one.example.com", "a.example.org": "two.example.com"} {
		if got := shown(asked); got != want {
			t.Errorf("%s: the certificate of %s, want %s", asked, got, want)
		}
	}
	if got := shown("localhost"); strings.Contains(got, "example") {
		t.Errorf("localhost: the certificate of %s", got)
	}
	if conn, err := tls.Dial("tcp", address, &tls.Config{MaxVersion: tls.VersionTLS12, InsecureSkipVerify: true}); err == nil {
		conn.Close()
		t.Error("TLS 1.2 was accepted")
	}

	client := dialing(t, "tcp", address, "localhost", up.Dir)
	request := func(header, value string) *http.Response {
		r, err := http.NewRequestWithContext(t.Context(), http.MethodOptions, "https://localhost/api", nil)
		if err != nil {
			t.Fatal(err)
		}
		r.Header.Set(header, value)
		response, err := client.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		response.Body.Close()
		return response
	}
	response := request("Origin", "https://console.example.com")
	if h := response.Header; response.StatusCode != 204 || h.Get("Access-Control-Allow-Origin") != "https://console.example.com" ||
		h.Get("Strict-Transport-Security") != "max-age=600; preload" {
		t.Errorf("preflight: %d %v", response.StatusCode, h)
	}
	if response := request("Origin", "https://console.example.com.evil.org"); response.StatusCode == 204 || response.Header.Get("Access-Control-Allow-Origin") != "" {
		t.Errorf("preflight of another origin: %d %v", response.StatusCode, response.Header)
	}
	if response := request("X-Long", strings.Repeat("x", 20_000)); response.StatusCode != http.StatusRequestHeaderFieldsTooLarge {
		t.Errorf("header of 20,000 bytes: %d", response.StatusCode)
	}

	named("one", "renewed.example.com")
	gateway, err := os.FindProcess(up.Child(t, "gateway"))
	if err != nil {
		t.Fatal(err)
	}
	if err := gateway.Signal(syscall.SIGHUP); err != nil {
		t.Fatal(err)
	}
	e2e.Eventually(t, "the renewed certificate", func() error {
		if got := shown("renewed.example.com"); got != "renewed.example.com" {
			return fmt.Errorf("got %q", got)
		}
		return nil
	})
}
