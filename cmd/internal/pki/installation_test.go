package pki

import (
	"crypto/x509"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

func installation(t *testing.T, etcd ...string) Installation {
	t.Helper()
	return Installation{
		Dir: filepath.Join(t.TempDir(), "pki"), Server: "https://portico.example.com:6443",
		Gateway: []string{"gateway", "portico.example.com"}, Core: []string{"core"}, CRD: []string{"crd"}, Etcd: etcd,
	}
}

// Each process gets what it needs, and no key of an authority. Only members of etcd can be
// members, and users of the gateway are no users of etcd.
func TestEnsureInstallation(t *testing.T) {
	t.Parallel()
	in := installation(t, "etcd-0", "etcd-1")
	if err := EnsureInstallation(in); err != nil {
		t.Fatal(err)
	}
	for folder, want := range map[string]string{
		"gateway": "client-ca.crt etcd-ca.crt etcd-client.crt etcd-client.key front-proxy-ca.crt front-proxy-client.crt front-proxy-client.key gateway.crt gateway.key service-account.pub serving-ca.crt",
		"core":    "core-client.crt core-client.key core.crt core.key etcd-ca.crt etcd-client.crt etcd-client.key front-proxy-ca.crt service-account.key serving-ca.crt",
		"crd":     "crd-client.crt crd-client.key crd.crt crd.key etcd-ca.crt etcd-client.crt etcd-client.key front-proxy-ca.crt serving-ca.crt",
		"etcd":    "etcd-ca.crt etcd-client-ca.crt etcd.crt etcd.key",
		"admin":   "admin.crt admin.key etcd-ca.crt etcd-root.crt etcd-root.key kubeconfig serving-ca.crt",
	} {
		if got := strings.Join(slices.Sorted(maps.Keys(contents(t, filepath.Join(in.Dir, folder)))), " "); got != want {
			t.Errorf("%s has %s, want %s", folder, got, want)
		}
	}
	file := func(name string) string { return filepath.Join(in.Dir, name) }
	for _, tc := range []struct {
		cert, ca string
		usage    x509.ExtKeyUsage
		valid    bool
	}{
		{"gateway/gateway.crt", "core/serving-ca.crt", x509.ExtKeyUsageServerAuth, true},
		{"core/core-client.crt", "gateway/client-ca.crt", x509.ExtKeyUsageClientAuth, true},
		{"gateway/front-proxy-client.crt", "crd/front-proxy-ca.crt", x509.ExtKeyUsageClientAuth, true},
		{"etcd/etcd.crt", "gateway/etcd-ca.crt", x509.ExtKeyUsageServerAuth, true},
		{"etcd/etcd.crt", "etcd/etcd-ca.crt", x509.ExtKeyUsageClientAuth, true},
		{"crd/etcd-client.crt", "etcd/etcd-client-ca.crt", x509.ExtKeyUsageClientAuth, true},
		{"crd/etcd-client.crt", "etcd/etcd-ca.crt", x509.ExtKeyUsageClientAuth, false},
		{"crd/etcd-client.crt", "gateway/client-ca.crt", x509.ExtKeyUsageClientAuth, false},
		{"admin/admin.crt", "etcd/etcd-client-ca.crt", x509.ExtKeyUsageClientAuth, false},
		{"gateway/gateway.crt", "core/serving-ca.crt", x509.ExtKeyUsageClientAuth, false},
	} {
		if err := verify(t, certificate(t, file(tc.cert)), file(tc.ca), tc.usage); (err == nil) != tc.valid {
			t.Errorf("%s by %s: %v", tc.cert, tc.ca, err)
		}
	}
	if err := certificate(t, file("etcd/etcd.crt")).VerifyHostname("etcd-1"); err != nil {
		t.Error(err)
	}
}

// A second run changes nothing but what is about to expire or lacks a host; with an etcd of
// one's own there is nothing for etcd.
func TestEnsureInstallationAgain(t *testing.T) {
	t.Parallel()
	in := installation(t)
	in.Now = time.Now()
	all := func() map[string]string {
		t.Helper()
		if err := EnsureInstallation(in); err != nil {
			t.Fatal(err)
		}
		files := map[string]string{}
		for _, folder := range []string{"authorities", "gateway", "core", "crd", "admin"} {
			for name, data := range contents(t, filepath.Join(in.Dir, folder)) {
				files[folder+"/"+name] = string(data)
			}
		}
		return files
	}
	changed := func(old, now map[string]string) (names []string) {
		for _, name := range slices.Sorted(maps.Keys(now)) {
			if now[name] != old[name] {
				names = append(names, name)
			}
		}
		return names
	}
	first := all()
	for name := range first {
		if strings.Contains(name, "etcd") {
			t.Errorf("there is %s", name)
		}
	}
	if got := changed(first, all()); got != nil {
		t.Errorf("changed: %v", got)
	}
	in.Gateway = append(in.Gateway, "other.example.com")
	second := all()
	if got := changed(first, second); !slices.Equal(got, []string{"gateway/gateway.crt", "gateway/gateway.key"}) {
		t.Errorf("for another host: %v", got)
	}
	in.Now = in.Now.Add(DefaultLeafLifetime - DefaultLeafLifetime/3 + time.Hour)
	if got := changed(second, all()); len(got) != 15 || slices.ContainsFunc(got, func(name string) bool { return strings.HasPrefix(name, "authorities/") }) {
		t.Errorf("before they end: %v", got)
	}
}
