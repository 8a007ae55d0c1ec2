//go:build kms

package main

import (
	"encoding/base64"
	"errors"
	"fmt"
	"net/http"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"portico/cmd/e2e"
	"portico/cmd/internal/testtools"
	"portico/internal/testing/kmstest"
)

// A KMS that is away while processes are killed and start again stops neither of them: what it encrypted is refused with an
// error that names it, writes of that are refused, and all else is served. Health and portico up say which KMS is away. Once
// it is back everything is served, by the same processes, and nothing is lost: not what a widget owns that could not be read.
func TestKMSAwayOverRestarts(t *testing.T) {
	t.Parallel()
	e2e.NeedsInstallation(t)
	plugin, dir := kmstest.Start(t), t.TempDir()
	flag := encryptedByKMS(t, plugin, "secrets, widgets.example.com")
	up := e2e.Install(t, dir, flag)
	owner := createEncrypted(t, up, e2e.DynamicClient(t, up.Config(t)))
	up.Post(t, "/api/v1/namespaces/default/configmaps", fmt.Sprintf(
		`{"metadata":{"name":"owned","ownerReferences":[{"apiVersion":"example.com/v1","kind":"Widget","name":"a","uid":%q}]}}`, owner.GetUID()))
	etcdctlShows(t, up, "kms:v2:vault")

	plugin.Stop()
	up.Kill9(t, "core")
	up.Kill9(t, "crd")
	refusedWithoutKMS(t, up, "killed")
	if err := up.Cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	if err := up.Stop(); err != nil {
		t.Error(err)
	}
	up = e2e.Install(t, dir, flag)
	if err := up.Await("what a KMS encrypted is not served until its plugin answers: "); err != nil {
		t.Error(err)
	}
	refusedWithoutKMS(t, up, "started")
	if code, answer := up.Do(t, http.MethodGet, "/readyz", ""); code != http.StatusInternalServerError || !strings.Contains(answer, "[-]kms-providers failed") {
		t.Errorf("readyz: %d %s", code, answer)
	}

	core, crd := up.Child(t, "core"), up.Child(t, "crd")
	plugin.Serve(t)
	up.Shows(t, "/api/v1/namespaces/default/secrets", base64.StdEncoding.EncodeToString([]byte(plainWord)))
	up.Shows(t, "/apis/example.com/v1/namespaces/default/widgets", plainColour)
	up.Shows(t, "/readyz?verbose", "[+]kms-providers ok")
	up.Shows(t, "/api/v1/namespaces/default/configmaps/owned", string(owner.GetUID()))
	up.Post(t, "/api/v1/namespaces/default/secrets", `{"metadata":{"name":"b"}}`)
	if core != up.Child(t, "core") || crd != up.Child(t, "crd") {
		t.Error("processes were started again")
	}
	up.MustKubectl(t, "delete", "widgets.example.com", "a")
	e2e.Eventually(t, "what the widget owned is collected", func() error {
		if code, answer := up.Do(t, http.MethodGet, "/api/v1/namespaces/default/configmaps/owned", ""); code != http.StatusNotFound {
			return errors.New(answer)
		}
		return nil
	})
}

// encryptedByKMS returns the flag of a configuration that encrypts resources by a KMS.
func encryptedByKMS(t *testing.T, plugin *kmstest.Plugin, resources string) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "encryption.yaml")
	e2e.WriteFile(t, file, fmt.Sprintf("apiVersion: apiserver.config.k8s.io/v1\nkind: EncryptionConfiguration\nresources:\n"+
		"- {resources: [%s], providers: [{kms: {apiVersion: v2, name: vault, timeout: 1s, endpoint: %q}}]}\n", resources, plugin.Endpoint()))
	return "--encryption-provider-config=" + file
}

// An installation with everything encrypted by a KMS that is away says so and waits, and is ready once the KMS is back.
func TestKMSAwayOfAllResources(t *testing.T) {
	t.Parallel()
	e2e.NeedsInstallation(t)
	plugin, dir := kmstest.Start(t), t.TempDir()
	flag := encryptedByKMS(t, plugin, "'*.*'")
	up := e2e.Install(t, dir, flag)
	createEncrypted(t, up, e2e.DynamicClient(t, up.Config(t)))
	if err := up.Stop(); err != nil {
		t.Error(err)
	}
	plugin.Stop()
	started, err := testtools.Start(dir, flag)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := started.Stop(); err != nil {
			t.Error(err)
		}
	})
	for _, text := range []string{"what a KMS encrypted is not served until its plugin answers: ", "core waits for "} {
		if err := started.Await(text); err != nil {
			t.Fatal(err)
		}
	}
	plugin.Serve(t)
	if err := started.Await("Ctrl-C stops it"); err != nil {
		t.Fatal(err)
	}
	again := regexp.MustCompile(`(?m)^  endpoint +(\S+)$`).FindStringSubmatch(started.Output.String())
	up.Endpoint = again[1] // its port is another one
	up.Shows(t, "/api/v1/namespaces/default/secrets", base64.StdEncoding.EncodeToString([]byte(plainWord)))
	up.Shows(t, "/apis/example.com/v1/namespaces/default/widgets", plainColour)
}

// refusedWithoutKMS checks what an installation serves while its KMS is away. name is of a ConfigMap that is created.
func refusedWithoutKMS(t *testing.T, up *e2e.Installation, name string) {
	t.Helper()
	up.Shows(t, "/api/v1/namespaces/default/configmaps/owned", "owned")
	up.Shows(t, "/apis/apiextensions.k8s.io/v1/customresourcedefinitions", "widgets.example.com")
	up.Post(t, "/api/v1/namespaces/default/configmaps", `{"metadata":{"name":"`+name+`"}}`)
	const unreadable = `it is encrypted by KMS provider \"vault\" (v2), which does not answer (health check kms-providers)`
	for _, collection := range []string{"/api/v1/namespaces/default/secrets", "/apis/example.com/v1/namespaces/default/widgets"} {
		object := `{"apiVersion":"v1","kind":"Secret","metadata":{"name":"%s"}}`
		if strings.HasPrefix(collection, "/apis") {
			object = `{"apiVersion":"example.com/v1","kind":"Widget","metadata":{"name":"%s"}}`
		}
		for _, request := range [][4]string{
			{http.MethodGet, "", "", unreadable}, {http.MethodGet, "/a", "", unreadable},
			{http.MethodPost, "", fmt.Sprintf(object, "b"), "in --encryption-provider-config cannot encrypt (health check kms-providers)"},
			{http.MethodPut, "/a", fmt.Sprintf(object, "a"), unreadable}, {http.MethodDelete, "/a", "", unreadable},
		} {
			e2e.Eventually(t, request[0]+" "+collection+request[1]+" is refused", func() error {
				code, answer := up.Do(t, request[0], collection+request[1], request[2])
				if code < http.StatusBadRequest {
					t.Fatalf("%s %s%s: %d %s", request[0], collection, request[1], code, answer)
				}
				if code != http.StatusInternalServerError || !strings.Contains(answer, request[3]) || !strings.Contains(answer, `"kind":"Status"`) {
					return fmt.Errorf("%d %s", code, answer)
				}
				return nil
			})
		}
	}
	up.Shows(t, "/livez", "ok")
	up.Read(t, "core", "/readyz")
	up.Read(t, "crd", "/readyz")
}
