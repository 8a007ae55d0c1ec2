package upgrade

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"portico/cmd/e2e"
	"portico/cmd/internal/embedetcd"
	"portico/cmd/internal/testtools"
	"portico/cmd/portico/stored"
	"portico/resource/etcd"
)

// fixture is the data folder of the oldest release after portico up was stopped, without logs, with the state that it
// served. `.ci/long upgrade` makes it again with UPDATE=1. Its authorities and the token without an end, which is removed if
// it is not used for a year, bound the age at which it can be used.
var fixture = filepath.Join("testdata", e2e.Releases[0].Version+".tar.gz")

// stateFile has the state of the fixture.
const stateFile = "state.json"

// This version serves the data folder of the oldest release: every object is as it was, and a token of a service account
// is valid. upgrade-check says so before, and docs/storage.md describes every key that is in etcd after it.
func TestFixture(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "data")
	before := unpack(t, fixture, dir)
	if err := check(t, dir, "no version is recorded"); err != nil {
		t.Error(err)
	}
	up := e2e.Install(t, dir)
	cfg := up.Config(t)
	var after state
	e2e.Eventually(t, "all objects are served", func() (err error) {
		after, err = read(t, cfg)
		return err
	})
	compare(t, "this version after "+e2e.Releases[0].Version, before, after)
	authenticated(t, cfg, tokenStored) // the other one ends
	e2e.Eventually(t, "versions are recorded", func() error { return check(t, dir, `core \S+, crd \S+, gateway \S+; this is \S+`) })
	if err := up.Stop(); err != nil {
		t.Fatal(err)
	}
	documented(t, dir)
}

// documented checks that docs/storage.md has every key of etcd.
func documented(t *testing.T, dir string) {
	t.Helper()
	page, err := os.ReadFile(filepath.Join(e2e.Repository(), "docs/storage.md"))
	if err != nil {
		t.Fatal(err)
	}
	kinds, err := stored.Kinds()
	if err != nil {
		t.Fatal(err)
	}
	seen := map[etcd.Family]bool{}
	err = embedetcd.ReadKeys(embedetcd.DatabaseFile(filepath.Join(dir, "etcd")), func(key string, _ []byte) {
		family, name := etcd.ParseKey(etcd.DefaultPrefix, key)
		parts := strings.SplitN(name, "/", 3)
		place := strings.TrimSuffix(key, name)
		if family == etcd.DocumentKeys || family == etcd.ElectionKeys {
			place += parts[0]
		}
		_, short := kinds[parts[0]]
		_, long := kinds[strings.Join(parts[:min(2, len(parts))], "/")]
		custom := parts[0] == "upgrade.example.com"
		if seen[family] = true; family == "" || family == etcd.Objects && !short && !long && !custom || !strings.Contains(string(page), "`"+strings.TrimSuffix(place, "/")) {
			t.Errorf("docs/storage.md does not describe the key %s", key)
		}
	})
	if err != nil || !seen[etcd.Objects] || !seen[etcd.DocumentKeys] {
		t.Errorf("etcd has %v: %v", seen, err)
	}
}

// check runs upgrade-check on a data folder. Nothing fails, and the output has a text.
func check(t *testing.T, dir, text string) error {
	t.Helper()
	out, err := exec.CommandContext(t.Context(), e2e.Program(t, testtools.Portico), "upgrade-check", "--data-dir="+dir).CombinedOutput()
	if err != nil {
		return fmt.Errorf("upgrade-check: %w\n%s", err, out)
	}
	if !regexp.MustCompile(text).Match(out) {
		return fmt.Errorf("upgrade-check does not say %q:\n%s", text, out)
	}
	return nil
}

// authenticated checks that the service account has its rights by the tokens in Secrets.
func authenticated(t *testing.T, admin *rest.Config, tokens ...string) {
	t.Helper()
	secrets, err := kubernetes.NewForConfig(admin)
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range tokens {
		secret, err := secrets.CoreV1().Secrets(namespace).Get(t.Context(), name, metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		cfg := rest.AnonymousClientConfig(admin)
		cfg.BearerToken = string(secret.Data[corev1.ServiceAccountTokenKey])
		if user := e2e.Whoami(t, cfg); user != "system:serviceaccount:"+namespace+":robot" {
			t.Errorf("the token %s is that of %s", name, user)
		}
		client, err := kubernetes.NewForConfig(cfg)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := client.CoreV1().ConfigMaps(namespace).List(t.Context(), metav1.ListOptions{}); err != nil {
			t.Errorf("the token %s has lost its rights: %v", name, err)
		}
	}
}

// unpack makes the folder of a fixture and returns the state that it has.
func unpack(t *testing.T, file, dir string) (before state) {
	t.Helper()
	f, err := os.Open(file)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	z, err := gzip.NewReader(f)
	if err != nil {
		t.Fatal(err)
	}
	for in := tar.NewReader(z); ; {
		header, err := in.Next()
		if errors.Is(err, io.EOF) {
			return before
		}
		if err != nil {
			t.Fatal(err)
		}
		data, err := io.ReadAll(in)
		if err != nil {
			t.Fatal(err)
		}
		if header.Name == stateFile {
			if err := json.Unmarshal(data, &before); err != nil {
				t.Fatal(err)
			}
			continue
		}
		path := filepath.Join(dir, header.Name)
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			t.Fatal(err)
		}
		// Most of the files of etcd is zeros at their end.
		e2e.WriteFile(t, path, strings.TrimRight(string(data), "\x00"))
		if err := os.Truncate(path, header.Size); err != nil {
			t.Fatal(err)
		}
	}
}

// pack writes a fixture.
func pack(t *testing.T, dir string, s state, file string) {
	t.Helper()
	var out bytes.Buffer
	z, err := gzip.NewWriterLevel(&out, gzip.BestCompression)
	if err != nil {
		t.Fatal(err)
	}
	to := tar.NewWriter(z)
	add := func(name string, data []byte) {
		if err := to.WriteHeader(&tar.Header{Name: name, Mode: 0o600, Size: int64(len(data))}); err != nil {
			t.Fatal(err)
		}
		if _, err := to.Write(data); err != nil {
			t.Fatal(err)
		}
	}
	text, err := json.Marshal(s)
	if err != nil {
		t.Fatal(err)
	}
	add(stateFile, text)
	for _, folder := range []string{"etcd", "pki", "gateway"} {
		err := filepath.WalkDir(filepath.Join(dir, folder), func(path string, e os.DirEntry, err error) error {
			if err != nil || e.IsDir() || strings.HasSuffix(path, ".tmp") {
				return err
			}
			data, err := os.ReadFile(path)
			if err != nil {
				return err
			}
			name, err := filepath.Rel(dir, path)
			add(name, data)
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	if err := errors.Join(to.Close(), z.Close(), os.WriteFile(file, out.Bytes(), 0o644)); err != nil {
		t.Fatal(err)
	}
	t.Logf("%s has %d KiB", file, out.Len()>>10)
}
