//go:build kubeapiserver

package adopt

import (
	"bytes"
	"encoding/base64"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	"portico/cmd/e2e"
	"portico/cmd/e2e/etcdprocess"
	"portico/cmd/e2e/kubeapiserver"
	"portico/cmd/internal/testtools"
	"portico/internal/testing/kmstest"
)

// encryption encrypts everything, by each provider.
const encryption = `apiVersion: apiserver.config.k8s.io/v1
kind: EncryptionConfiguration
resources:
- {resources: [secrets], providers: [{secretbox: {keys: [{name: a, secret: %[1]s}]}}]}
- {resources: [configmaps, widgets.adopt.example.com], providers: [{kms: {apiVersion: v2, name: vault, endpoint: %[2]q}}]}
- {resources: ['*.apps'], providers: [{aesgcm: {keys: [{name: a, secret: %[1]s}]}}]}
- {resources: ['*.*'], providers: [{aescbc: {keys: [{name: a, secret: %[1]s}]}}]}
`

// What kube-apiserver encrypted is adopted, served and updated by Portico with its configuration,
// and kube-apiserver reads what Portico encrypted. Neither encrypts addresses of servers and ports that are taken.
func TestKubeAPIServerEncrypts(t *testing.T) {
	e2e.Program(t, testtools.Portico)
	etcd, dir, plugin := etcdprocess.Start(t), t.TempDir(), kmstest.Start(t)
	file := filepath.Join(dir, "encryption.yaml")
	e2e.WriteFile(t, file, fmt.Sprintf(encryption, base64.StdEncoding.EncodeToString(bytes.Repeat([]byte("k"), 32)), plugin.Endpoint()))
	flag := "--encryption-provider-config=" + file
	k := kubeapiserver.Start(t, etcd.Endpoint(), dir, flag)
	fill(t, k, newSigner(t, dir))
	served := readAll(t, k.Config)
	k.Stop()
	encrypted := func(by string) {
		t.Helper()
		stored := storedIn(t, connect(t, etcd))
		for key, value := range stored {
			path, _, _ := strings.Cut(strings.TrimPrefix(key, "/registry/"), "/")
			if plain := path == "masterleases" || path == "peerserverleases" || path == "ranges"; plain == bytes.HasPrefix(value, []byte("k8s:enc:")) {
				t.Errorf("%s stored %s as %.100q", by, key, value)
			}
		}
		t.Logf("%s: %d keys", by, len(stored))
	}
	encrypted("kube-apiserver")
	if out, err := portico(t, "adopt", "--dry-run", "--etcd-servers="+etcd.Endpoint()); err == nil || !strings.Contains(out, "not served: encrypted: secretbox:v1:a") {
		t.Errorf("adopt without the configuration: %v\n%s", err, out)
	}
	e2e.Eventually(t, "the etcd is adopted", func() error {
		if out, err := portico(t, "adopt", "--yes", "--etcd-servers="+etcd.Endpoint(), flag); err != nil {
			return errors.New(out)
		}
		return nil
	})
	up := e2e.Install(t, t.TempDir(), "--etcd-servers="+etcd.Endpoint(), "--service-cluster-ip-range="+serviceRange, "--controllers="+onlyController, flag)
	compare(t, served, readAll(t, up.Config(t)), reconciled)
	served.updateAll(t, up.Config(t), "portico")
	written := readAll(t, up.Config(t))
	if err := up.Stop(); err != nil {
		t.Error(err)
	}
	encrypted("portico")
	k = kubeapiserver.Start(t, etcd.Endpoint(), dir, flag)
	back := readAll(t, k.Config)
	compare(t, written, back, reconciled)
	back.updateAll(t, k.Config, "kube-apiserver")
}
