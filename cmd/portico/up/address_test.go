package up

import (
	"slices"
	"strings"
	"testing"
)

// The certificate of the gateway names Service default/kubernetes, with its address in each
// family.
func TestCertificateHosts(t *testing.T) {
	t.Parallel()
	hosts, err := certificateHosts([]string{"192.0.2.1", "::1"}, "10.96.0.0/16,fd00::/112", []string{"portico.example.com"})
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"192.0.2.1", "::1", "portico.example.com", "kubernetes.default.svc", "10.96.0.1", "fd00::1"} {
		if !slices.Contains(hosts, want) {
			t.Errorf("%s is not among %v", want, hosts)
		}
	}
	if _, err := certificateHosts([]string{"192.0.2.1"}, "10.96.0.0", nil); err == nil {
		t.Error("a range that is no CIDR is accepted")
	}
}

// The kubeconfig has the first network address; unix sockets are the gateway's alone.
func TestGatewayAddresses(t *testing.T) {
	t.Parallel()
	var g gatewayAddresses
	if err := g.resolve([]string{"unix:///run/portico/gateway.sock", "0.0.0.0:0", "[::1]:0"}, false); err != nil {
		t.Fatal(err)
	}
	if want := "127.0.0.1:" + g.port; g.reachable() != want || g.listen[1] != "0.0.0.0:"+g.port || !strings.HasPrefix(g.listen[2], "[::1]:") {
		t.Errorf("got %q at %s", g.listen, g.reachable())
	}
	for value, want := range map[string]string{
		"unix:///x":     "--listen names no network address",
		"systemd:other": "listen on systemd:other: systemd passed no socket; start the .socket unit",
	} {
		var g gatewayAddresses
		if err := g.resolve([]string{value}, false); err == nil || !strings.HasPrefix(err.Error(), want) {
			t.Errorf("%s: got %v", value, err)
		}
	}
}

// --tls-san takes names and addresses, without ports.
func TestCheckSANs(t *testing.T) {
	t.Parallel()
	if err := checkSANs([]string{"portico.example.com", "*.example.com", "192.0.2.1", "2001:db8::1"}); err != nil {
		t.Error(err)
	}
	for _, bad := range []string{"portico.example.com:6443", "https://x", "", "*"} {
		if err := checkSANs([]string{bad}); err == nil || !strings.HasPrefix(err.Error(), "--tls-san="+bad+":") {
			t.Errorf("%q: %v", bad, err)
		}
	}
}
