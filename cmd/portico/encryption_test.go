package main

import (
	"compress/gzip"
	"encoding/base64"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/dynamic"

	"portico/cmd/e2e"
	"portico/cmd/internal/testtools"
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

// createEncrypted creates a Secret and a widget of the name a.
func createEncrypted(t *testing.T, up *e2e.Installation, client dynamic.Interface) *unstructured.Unstructured {
	t.Helper()
	up.Post(t, "/api/v1/namespaces/default/secrets", `{"metadata":{"name":"a"},"stringData":{"word":"`+plainWord+`"}}`)
	widget := e2e.Widget("example.com", "a")
	if err := unstructured.SetNestedField(widget.Object, plainColour, "spec", "colour"); err != nil {
		t.Fatal(err)
	}
	created, err := e2e.Define(t, client, "example.com").Namespace("default").Create(t.Context(), widget, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return created
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

// Plain values of an encrypted Secret and custom resource.
const (
	plainWord   = "plain-word-of-a-secret"
	plainColour = "plain-colour-of-a-widget"
)

// etcdctlShows reads the encrypted objects by the command that docs/storage.md names.
func etcdctlShows(t *testing.T, up *e2e.Installation, encryption string) {
	t.Helper()
	document, err := os.ReadFile(filepath.Join(e2e.Repository(), "docs", "storage.md"))
	if err != nil {
		t.Fatal(err)
	}
	const command = "get --print-value-only /registry/secrets/default/a"
	if !strings.Contains(string(document), "run/etcd.sock "+command+" ") {
		t.Errorf("docs/storage.md does not have %q", command)
	}
	for _, args := range []string{command, "get --print-value-only /registry/example.com/widgets/default/a"} {
		cmd := exec.CommandContext(t.Context(), e2e.Program(t, testtools.Etcdctl), append([]string{"--endpoints=" + up.Etcd}, strings.Fields(args)...)...)
		out, err := cmd.Output()
		if err != nil || !strings.HasPrefix(string(out), "k8s:enc:"+encryption+":") || strings.Contains(string(out), plainWord) || strings.Contains(string(out), plainColour) {
			t.Errorf("etcdctl %s: %v, %.200q", args, err, out)
		}
	}
}

// backUpEncrypted makes a backup, which names the keys that a restored installation needs, and has plain values of what is not
// encrypted only.
func backUpEncrypted(t *testing.T, dir, encryption string) (file string) {
	t.Helper()
	file = filepath.Join(t.TempDir(), "portico.backup")
	if out, err := portico(t, "backup", file, "--data-dir="+dir); err != nil || !strings.Contains(out, " by "+encryption) || !strings.Contains(out, "keep the file of --encryption-provider-config") {
		t.Errorf("backup: %v\n%s", err, out)
	}
	f, err := os.Open(file)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	unzipped, err := gzip.NewReader(f)
	if err != nil {
		t.Fatal(err)
	}
	content, err := io.ReadAll(unzipped)
	if err != nil {
		t.Fatal(err)
	}
	for text, want := range map[string]bool{plainWord: false, plainColour: false, "k8s:enc:" + encryption: true, "plain-label-of-a-namespace": true} {
		if strings.Contains(string(content), text) != want {
			t.Errorf("the backup has %q: %t, want %t", text, !want, want)
		}
	}
	return file
}

// restoresEncrypted restores a backup of objects that are encrypted by secretbox. Without the configuration, or with another
// key, what they need is said, and other resources are served; with it they are served as before.
func restoresEncrypted(t *testing.T, file string, plugin *kmstest.Plugin) {
	t.Helper()
	work := t.TempDir()
	dir, keys, others := filepath.Join(work, "restored"), filepath.Join(work, "encryption.yaml"), filepath.Join(work, "others.yaml")
	encryptionFile(t, keys, plugin, "secretbox")
	text, err := os.ReadFile(keys)
	if err != nil {
		t.Fatal(err)
	}
	// A key of the same name.
	e2e.WriteFile(t, others, strings.Replace(string(text), "secret: c2Vj", "secret: c2VD", 1))
	out, err := portico(t, "restore", file, "--data-dir="+dir)
	if err != nil || !strings.Contains(out, " by secretbox:v1:secretbox-key") || !strings.Contains(out, "--encryption-provider-config=FILE") {
		t.Errorf("restore: %v\n%s", err, out)
	}
	for _, tt := range []struct{ flag, refused string }{
		{"--profiling=false", `name the configuration with --encryption-provider-config`},
		{"--encryption-provider-config=" + others, `it is encrypted by provider secretbox (v1) with key \"secretbox-key\", which --encryption-provider-config lacks or has with another secret`},
		{"--encryption-provider-config=" + keys, ""},
	} {
		up := e2e.Install(t, dir, tt.flag)
		up.Shows(t, "/api/v1/namespaces/labelled", "plain-label-of-a-namespace")
		for path, plain := range map[string]string{
			"/api/v1/namespaces/default/secrets": base64.StdEncoding.EncodeToString([]byte(plainWord)), "/apis/example.com/v1/namespaces/default/widgets": plainColour,
		} {
			for _, path := range []string{path, path + "/a"} {
				if tt.refused == "" {
					up.Shows(t, path, plain)
				} else if code, answer := up.Do(t, http.MethodGet, path, ""); code != http.StatusInternalServerError || !strings.Contains(answer, tt.refused) {
					t.Errorf("%s with %s: %d %s", path, tt.flag, code, answer)
				}
			}
		}
		if err := up.Stop(); err != nil {
			t.Error(err)
		}
	}
}

// What a configuration names is encrypted in etcd, by every process, and served as before. Its key
// is replaced and taken away again while all run: the file is read again, and portico storage
// rewrite writes the objects with the first key. Commands that read etcd take the configuration. A
// backup has no plain value of it.
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
	createEncrypted(t, up, client)
	up.Post(t, "/api/v1/namespaces", `{"metadata":{"name":"labelled","labels":{"a":"plain-label-of-a-namespace"}}}`)
	served := func() {
		t.Helper()
		up.Shows(t, "/api/v1/namespaces/default/secrets/a", base64.StdEncoding.EncodeToString([]byte(plainWord)))
		up.Shows(t, "/apis/example.com/v1/namespaces/default/widgets/a", plainColour)
		up.Shows(t, "/api/v1/configmaps", "kube-root-ca.crt")
	}
	expect := func(secrets string) {
		t.Helper()
		storedAs(t, up, map[string]string{"secrets/": secrets, "example.com/widgets/": secrets, "configmaps/": "kms:v2:vault", "namespaces/": ""})
	}
	served()
	expect("aescbc:v1:aescbc-key")
	etcdctlShows(t, up, "aescbc:v1:aescbc-key")
	if code, _ := up.Do(t, http.MethodGet, "/readyz/kms-providers", ""); code != http.StatusOK {
		t.Errorf("/readyz/kms-providers: %d", code)
	}
	up.Read(t, "core", "/readyz/kms-providers")

	var backup string
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
		if i == 0 {
			backup = backUpEncrypted(t, dir, "secretbox:v1:secretbox-key")
		}
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
	if err := up.Stop(); err != nil {
		t.Error(err)
	}
	restoresEncrypted(t, backup, plugin)
}
