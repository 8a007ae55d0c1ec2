package main

import (
	"encoding/base64"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"k8s.io/client-go/dynamic"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"portico/cmd/e2e"
	"portico/internal/testing/kmstest"
	"portico/resource/etcd"
)

// encryptionFile writes a configuration: keys for Secrets and widgets, the first of which writes,
// and a KMS for ConfigMaps.
func encryptionFile(t *testing.T, file string, plugin *kmstest.Plugin, providers ...string) {
	t.Helper()
	text := "apiVersion: apiserver.config.k8s.io/v1\nkind: EncryptionConfiguration\nresources:\n- resources: [secrets, widgets.example.com]\n  providers:\n"
	for _, provider := range providers {
		secret := base64.StdEncoding.EncodeToString([]byte(fmt.Sprintf("%-32s", provider)))
		if text += "  - " + provider; provider == "identity" {
			text += ": {}\n"
		} else {
			text += fmt.Sprintf(": {keys: [{name: %s-key, secret: %s}]}\n", provider, secret)
		}
	}
	text += fmt.Sprintf("- {resources: [configmaps], providers: [{kms: {apiVersion: v2, name: vault, endpoint: %q}}]}\n", plugin.Endpoint())
	if err := os.WriteFile(file+".new", []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(file+".new", file); err != nil {
		t.Fatal(err)
	}
}

// storedAs checks how the objects of three resources are stored.
func storedAs(t *testing.T, up *e2e.Installation, want map[string]string) {
	t.Helper()
	client, err := etcd.Open(etcd.Config{Endpoints: []string{up.Etcd}})
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	found := map[string]bool{}
	err = client.Scan(t.Context(), "", func(path string, value []byte) error {
		for prefix, encryption := range want {
			if !strings.HasPrefix(path, prefix) {
				continue
			}
			found[prefix] = true
			if got := etcd.Encryption(value); got != encryption || got != "" && strings.Contains(string(value), "default") {
				t.Errorf("%s is stored by %q, want %q: %.200q", path, got, encryption, value)
			}
		}
		return nil
	})
	if err != nil || len(found) != len(want) {
		t.Errorf("found %v, %v", found, err)
	}
}

// What a configuration names is encrypted in etcd, by every process, and served as before. Its key
// is replaced and taken away again while all run: the file is read again, and portico storage
// rewrite writes the objects with the first key. Commands that read etcd take the configuration.
func TestEncryptionAtRest(t *testing.T) {
	t.Parallel()
	e2e.NeedsInstallation(t)
	plugin, dir := kmstest.Start(t), t.TempDir()
	file := filepath.Join(t.TempDir(), "encryption.yaml")
	encryptionFile(t, file, plugin, "aescbc", "identity")
	flag := "--encryption-provider-config=" + file
	up := e2e.Install(t, dir, flag, "--encryption-provider-config-automatic-reload")
	client, err := dynamic.NewForConfig(up.Config(t))
	if err != nil {
		t.Fatal(err)
	}
	up.Post(t, "/api/v1/namespaces/default/secrets", `{"metadata":{"name":"a"},"stringData":{"word":"pass"}}`)
	widgets := e2e.Define(t, client, "example.com").Namespace("default")
	if _, err := widgets.Create(t.Context(), e2e.Widget("example.com", "a"), metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	served := func() {
		t.Helper()
		up.Shows(t, "/api/v1/namespaces/default/secrets/a", `"word":"cGFzcw=="`)
		up.Shows(t, "/apis/example.com/v1/namespaces/default/widgets/a", `"colour":"red"`)
		up.Shows(t, "/api/v1/configmaps", "kube-root-ca.crt")
	}
	expect := func(secrets string) {
		t.Helper()
		storedAs(t, up, map[string]string{"secrets/": secrets, "example.com/widgets/": secrets, "configmaps/": "kms:v2:vault", "namespaces/": ""})
	}
	served()
	expect("aescbc:v1:aescbc-key")
	if code, _ := up.Do(t, http.MethodGet, "/readyz/kms-providers", ""); code != http.StatusOK {
		t.Errorf("/readyz/kms-providers: %d", code)
	}
	up.Read(t, "core", "/readyz/kms-providers")

	for i, providers := range [][]string{{"secretbox", "aescbc", "identity"}, {"identity", "secretbox"}} {
		encryptionFile(t, file, plugin, providers...)
		for _, process := range []string{"core", "crd"} {
			e2e.Eventually(t, process+" reads the file again", func() error {
				want := fmt.Sprintf("status=\"success\"} %d\n", i+1)
				for line := range strings.Lines(up.Metrics(t, process)) {
					if strings.HasPrefix(line, "apiserver_encryption_config_controller_automatic_reloads_total") && strings.HasSuffix(line, want) {
						return nil
					}
				}
				return fmt.Errorf("no %s", want)
			})
		}
		served()
		out, err := portico(t, "storage", "rewrite", "secrets", "widgets.example.com", "--data-dir="+dir, flag)
		if err != nil || !strings.Contains(out, "widgets.example.com: 1 rewritten, 0 had the first key already, 0 could not be read\n") {
			t.Errorf("rewrite: %v\n%s", err, out)
		}
		out, err = portico(t, "storage", "rewrite", "widgets.example.com", "--data-dir="+dir, flag)
		if err != nil || out != "widgets.example.com: 0 rewritten, 1 had the first key already, 0 could not be read\n" {
			t.Errorf("rewrite again: %v\n%s", err, out)
		}
		expect(map[int]string{0: "secretbox:v1:secretbox-key"}[i])
		served()
	}
	if out, err := portico(t, "storage", "rewrite", "--all", "--data-dir="+dir, flag); err != nil || !strings.Contains(out, "all resources: 0 rewritten") {
		t.Errorf("rewrite all: %v\n%s", err, out)
	}

	for args, unreadable := range map[string]string{
		"adopt --dry-run --etcd-servers=" + up.Etcd:                              "not served: encrypted: kms:v2:vault",
		"upgrade-check --data-dir=" + dir:                                        "it is encrypted by kms:v2:vault: name the configuration with --encryption-provider-config",
		"upgrade-check -o json --etcd-servers=" + up.Etcd + " --data-dir=" + dir: "it is encrypted by kms:v2:vault",
	} {
		if out, err := portico(t, strings.Fields(args)...); err == nil || !strings.Contains(out, unreadable) {
			t.Errorf("%s without the configuration: %v\n%s", args, err, out)
		}
		if out, _ := portico(t, append(strings.Fields(args), flag)...); strings.Contains(out, "encrypted") {
			t.Errorf("%s: %s", args, out)
		}
	}
}
