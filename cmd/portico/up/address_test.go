package up

import (
	"slices"
	"testing"
)

// The certificate of the gateway names Service default/kubernetes, with its address in each
// family.
func TestCertificateHosts(t *testing.T) {
	t.Parallel()
	hosts, err := certificateHosts("192.0.2.1", "10.96.0.0/16,fd00::/112")
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"192.0.2.1", "kubernetes.default.svc", "10.96.0.1", "fd00::1"} {
		if !slices.Contains(hosts, want) {
			t.Errorf("%s is not among %v", want, hosts)
		}
	}
	if _, err := certificateHosts("192.0.2.1", "10.96.0.0"); err == nil {
		t.Error("a range that is no CIDR is accepted")
	}
}
