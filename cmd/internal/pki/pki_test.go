package pki

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"k8s.io/client-go/tools/clientcmd"
	certutil "k8s.io/client-go/util/cert"
)

// ensure calls Ensure, which must succeed.
func ensure(t *testing.T, cfg Config) *Files {
	t.Helper()
	f, err := Ensure(cfg)
	if err != nil {
		t.Fatal(err)
	}
	return f
}

// A file that a process left that was killed while it wrote is removed when the file is written again; files of other programs stay.
func TestTemporaryFilesAreRemoved(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "pki")
	f := ensure(t, Config{Dir: dir})
	left, swap, other := filepath.Join(dir, ".admin.key.123"), filepath.Join(dir, ".admin.key.swp"), filepath.Join(dir, ".gateway.key.123")
	for _, path := range []string{left, swap, other} {
		write(t, path, "half a k")
	}
	if err := os.Remove(f.Admin.KeyFile); err != nil {
		t.Fatal(err)
	}
	ensure(t, Config{Dir: dir})
	for path, want := range map[string]bool{left: false, swap: true, other: true} {
		if _, err := os.Stat(path); (err == nil) != want {
			t.Errorf("%s: %v", path, err)
		}
	}
}

// A second call writes nothing. Only the user may read the files.
func TestEnsureIsIdempotent(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "pki")
	first := ensure(t, Config{Dir: dir})
	before := contents(t, dir)
	if len(before) != 22 {
		t.Errorf("got %d files, want 22: five CAs and five leaves of two files, two of the signing key", len(before))
	}
	if second := ensure(t, Config{Dir: dir}); *first != *second {
		t.Errorf("file names changed: %v, then %v", first, second)
	}
	if after := contents(t, dir); !maps.Equal(before, after) {
		t.Error("files were written again")
	}
	if info, err := os.Stat(dir); err != nil || info.Mode().Perm() != 0o700 {
		t.Errorf("the folder has mode %v (%v)", info.Mode(), err)
	}
}

// Each leaf is valid for its use and hosts, by its own CA and by no other.
func TestLeavesBelongToTheirCA(t *testing.T) {
	f := ensure(t, Config{Dir: t.TempDir(), Hosts: []string{"api.example.com", "192.0.2.7"}})
	for _, tc := range []struct {
		ca    string
		pair  Pair
		usage x509.ExtKeyUsage
		hosts []string
	}{
		{f.ServingCAFile, f.Serving, x509.ExtKeyUsageServerAuth, []string{"localhost", "127.0.0.1", "::1", "api.example.com", "192.0.2.7"}},
		{f.ClientCAFile, f.Admin, x509.ExtKeyUsageClientAuth, nil},
		{f.ClientCAFile, f.Core, x509.ExtKeyUsageClientAuth, nil},
		{f.ClientCAFile, f.CRD, x509.ExtKeyUsageClientAuth, nil},
		{f.FrontProxyCAFile, f.FrontProxy, x509.ExtKeyUsageClientAuth, nil},
	} {
		if _, err := tls.LoadX509KeyPair(tc.pair.CertFile, tc.pair.KeyFile); err != nil {
			t.Fatal(err)
		}
		cert := certificate(t, tc.pair.CertFile)
		for _, host := range tc.hosts {
			if err := cert.VerifyHostname(host); err != nil {
				t.Error(err)
			}
		}
		for _, ca := range []string{f.ServingCAFile, f.ClientCAFile, f.FrontProxyCAFile} {
			if err := verify(t, cert, ca, tc.usage); (err == nil) != (ca == tc.ca) {
				t.Errorf("%s by %s: %v", tc.pair.CertFile, ca, err)
			}
		}
	}
	admin := certificate(t, f.Admin.CertFile)
	if admin.Subject.CommonName != AdminName || strings.Join(admin.Subject.Organization, ",") != "system:masters" {
		t.Errorf("admin is %v", admin.Subject)
	}
}

// verify checks a certificate by the CA in a file, for a use.
func verify(t *testing.T, cert *x509.Certificate, caFile string, usage x509.ExtKeyUsage) error {
	t.Helper()
	roots := x509.NewCertPool()
	roots.AddCert(certificate(t, caFile))
	_, err := cert.Verify(x509.VerifyOptions{Roots: roots, KeyUsages: []x509.ExtKeyUsage{usage}})
	return err
}

func TestLeafIsReplaced(t *testing.T) {
	start := time.Now()
	for _, tc := range []struct {
		name  string
		later time.Duration
		first []string // hosts at first
		hosts []string
		spoil func(t *testing.T, f *Files)
		again bool
	}{
		{name: "valid", later: 30 * 24 * time.Hour},
		{name: "near its end", later: DefaultLeafLifetime - DefaultLeafLifetime/3 + time.Hour, again: true},
		{name: "past its end", later: DefaultLeafLifetime + time.Hour, again: true},
		{name: "new host", hosts: []string{"new.example.com"}, again: true},
		{name: "host taken away", first: []string{"old.example.com"}, again: true},
		{name: "hosts in another order", first: []string{"a.example.com", "2001:db8::1", "::1"}, hosts: []string{"2001:DB8:0::1", "a.example.com"}},
		{name: "unreadable", spoil: func(t *testing.T, f *Files) { write(t, f.Serving.CertFile, "rubbish") }, again: true},
		{name: "key of another", spoil: func(t *testing.T, f *Files) { write(t, f.Serving.KeyFile, read(t, f.Admin.KeyFile)) }, again: true},
	} {
		t.Run(tc.name, func(t *testing.T) {
			dir := t.TempDir()
			f := ensure(t, Config{Dir: dir, Hosts: tc.first, Now: start})
			old := certificate(t, f.Serving.CertFile)
			ca, signing := read(t, f.ServingCAFile), read(t, f.ServiceAccountKeyFile)
			if tc.spoil != nil {
				tc.spoil(t, f)
			}
			ensure(t, Config{Dir: dir, Hosts: tc.hosts, Now: start.Add(tc.later)})
			got := certificate(t, f.Serving.CertFile)
			if again := !got.Equal(old); again != tc.again {
				t.Errorf("replaced: %v, want %v", again, tc.again)
			}
			if read(t, f.ServingCAFile) != ca || read(t, f.ServiceAccountKeyFile) != signing {
				t.Error("a CA or the signing key was replaced")
			}
		})
	}
}

func TestMissingCAKeyIsAnError(t *testing.T) {
	dir := t.TempDir()
	ensure(t, Config{Dir: dir})
	key := filepath.Join(dir, "client-ca.key")
	if err := os.Remove(key); err != nil {
		t.Fatal(err)
	}
	if _, err := Ensure(Config{Dir: dir}); err == nil || !strings.Contains(err.Error(), key) {
		t.Errorf("got %v, want an error naming %s", err, key)
	}
}

func TestKubeconfig(t *testing.T) {
	dir := t.TempDir()
	f := ensure(t, Config{Dir: dir})
	path := filepath.Join(dir, "deeper", "kubeconfig")
	// The second call replaces the file of the first.
	for _, server := range []string{"https://127.0.0.1:1", "https://127.0.0.1:6443"} {
		if err := WriteKubeconfig(path, server, f.ServingCAFile, f.Admin); err != nil {
			t.Fatal(err)
		}
		cfg, err := clientcmd.BuildConfigFromFlags("", path)
		if err != nil {
			t.Fatal(err)
		}
		if cfg.Host != server || string(cfg.CAData) != read(t, f.ServingCAFile) ||
			string(cfg.CertData) != read(t, f.Admin.CertFile) || string(cfg.KeyData) != read(t, f.Admin.KeyFile) {
			t.Errorf("client-go reads another configuration: %v", cfg)
		}
	}
	const own = "apiVersion: v1\nkind: Config\n"
	write(t, path, own)
	if err := WriteKubeconfig(path, "https://x", f.ServingCAFile, f.Admin); !errors.Is(err, ErrForeignKubeconfig) {
		t.Errorf("got %v, want ErrForeignKubeconfig", err)
	}
	if read(t, path) != own {
		t.Error("a file of the user was changed")
	}
}

// kubectl can merge several kubeconfigs: no entry of one hides one of another.
func TestKubeconfigsCanBeMerged(t *testing.T) {
	dir := t.TempDir()
	f := ensure(t, Config{Dir: dir})
	var paths []string
	add := func(server, user string) {
		t.Helper()
		path := filepath.Join(dir, fmt.Sprint("config", len(paths)))
		paths = append(paths, path)
		var err error
		if user == "" {
			err = WriteKubeconfig(path, server, f.ServingCAFile, f.Admin)
		} else {
			_, err = IssueKubeconfig(dir, path, server, Request{User: user, ValidFor: time.Hour})
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	add("https://127.0.0.1:6443", "")
	add("https://[::1]:6443", "")
	add("https://127.0.0.1:6443", "jane: \"x\"")
	cfg, err := (&clientcmd.ClientConfigLoadingRules{Precedence: paths}).Load()
	if err != nil {
		t.Fatal(err)
	}
	if len(cfg.Clusters) != 2 || len(cfg.AuthInfos) != 3 || len(cfg.Contexts) != 3 {
		t.Errorf("%d clusters, %d users and %d contexts", len(cfg.Clusters), len(cfg.AuthInfos), len(cfg.Contexts))
	}
	for name, c := range cfg.Contexts {
		if cfg.Clusters[c.Cluster] == nil || cfg.AuthInfos[c.AuthInfo] == nil {
			t.Errorf("context %q is of nothing: %+v", name, c)
		}
	}
}

func certificate(t *testing.T, path string) *x509.Certificate {
	t.Helper()
	certs, err := certutil.CertsFromFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return certs[0]
}

// contents returns the files of a folder, which only the user may read.
func contents(t *testing.T, dir string) map[string]string {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	m := map[string]string{}
	for _, e := range entries {
		if info, err := e.Info(); err != nil || info.Mode().Perm() != 0o600 {
			t.Errorf("%s has mode %v (%v)", e.Name(), info.Mode(), err)
		}
		m[e.Name()] = read(t, filepath.Join(dir, e.Name()))
	}
	return m
}

func read(t *testing.T, path string) string {
	t.Helper()
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}

func write(t *testing.T, path, data string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(data), 0o600); err != nil {
		t.Fatal(err)
	}
}

// A public key file without the public key of the signing key is an error that names both
// files; it may have other keys too.
func TestPublicKeyOfAnotherSigningKey(t *testing.T) {
	dir := t.TempDir()
	f, g := ensure(t, Config{Dir: dir}), ensure(t, Config{Dir: t.TempDir()})
	own, foreign := read(t, f.ServiceAccountPublicKeyFile), read(t, g.ServiceAccountPublicKeyFile)
	for content, good := range map[string]bool{foreign: false, "": false, foreign + own: true} {
		write(t, f.ServiceAccountPublicKeyFile, content)
		_, err := Ensure(Config{Dir: dir})
		if good && err != nil {
			t.Errorf("the key beside others: %v", err)
		}
		if !good && (err == nil || !strings.Contains(err.Error(), f.ServiceAccountPublicKeyFile) || !strings.Contains(err.Error(), f.ServiceAccountKeyFile)) {
			t.Errorf("another key, or none: %v", err)
		}
	}
}
