package servers

import (
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"k8s.io/client-go/rest"

	"portico/cmd/e2e"
)

// backendAt is a Backend and the APIService of the group/version GROUP/v1 that it serves.
const backendAt = `
apiVersion: gateway.portico.dev/v1alpha1
kind: Backend
metadata: {name: %[1]s}
spec:
  endpoints: [{url: %[2]q}]
  tls: {insecureSkipVerify: true%[4]s}
---
apiVersion: apiregistration.k8s.io/v1
kind: APIService
metadata: {name: v1.%[3]s, annotations: {gateway.portico.dev/backend: %[1]s}}
spec: {group: %[3]s, version: v1, groupPriorityMinimum: 1000, versionPriority: 15}
`

// applyBackend registers a server. The test must call remove: a group that is not available
// delays the deletion of namespaces.
func applyBackend(t *testing.T, up *e2e.Installation, name, url, group, tls string) (remove func()) {
	t.Helper()
	manifest := filepath.Join(t.TempDir(), "backend.yaml")
	e2e.WriteFile(t, manifest, fmt.Sprintf(backendAt, name, url, group, tls))
	up.MustKubectl(t, "apply", "-f", manifest)
	return func() { up.MustKubectl(t, "delete", "-f", manifest) }
}

// A Backend at the gateway's own address is not available and says why, with and
// without the gateway's certificate; requests for it are answered at once.
func TestBackendAtTheGatewayItself(t *testing.T) {
	t.Parallel()
	up := e2e.SharedInstallation(t)
	client, err := rest.HTTPClientFor(up.Config(t))
	if err != nil {
		t.Fatal(err)
	}
	client.Timeout = 5 * time.Second
	for name, tls := range map[string]string{"selfloop": "", "selfloop-anonymous": ", clientCertificate: None"} {
		group := name + ".example.com"
		defer applyBackend(t, up, name, up.Endpoint, group, tls)()
		e2e.Eventually(t, "the APIService says why it is not available", func() error {
			_, body := up.Do(t, http.MethodGet, "/apis/apiregistration.k8s.io/v1/apiservices/v1."+group, "")
			if !strings.Contains(body, `"reason":"FailedDiscoveryCheck"`) || !strings.Contains(body, "508 Loop Detected: the address leads back to this gateway") {
				return fmt.Errorf("it is %s", body)
			}
			return nil
		})
		for _, query := range []string{"", "?watch=1"} {
			res, err := client.Get(up.Endpoint + "/apis/" + group + "/v1/foos" + query)
			if err != nil {
				t.Fatal(err)
			}
			body, _ := io.ReadAll(res.Body)
			res.Body.Close()
			if res.StatusCode != http.StatusServiceUnavailable || !strings.Contains(string(body), "508 Loop Detected") {
				t.Errorf("%s: %d %s", query, res.StatusCode, body)
			}
		}
	}
}

// An installation behind another one serves through it, if it trusts the other's
// front-proxy authority.
func TestPorticoBehindPortico(t *testing.T) {
	t.Parallel()
	first := e2e.SharedInstallation(t)
	dir := t.TempDir()
	if err := os.MkdirAll(filepath.Join(dir, "pki"), 0o700); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"front-proxy-ca.crt", "front-proxy-ca.key"} {
		data, err := os.ReadFile(filepath.Join(first.Dir, "pki", name))
		if err != nil {
			t.Fatal(err)
		}
		e2e.WriteFile(t, filepath.Join(dir, "pki", name), string(data))
	}
	second := e2e.Install(t, dir)
	const group = "behind.example.com"
	definition := filepath.Join(t.TempDir(), "definition.yaml")
	e2e.WriteFile(t, definition, `
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: gizmos.`+group+`}
spec:
  group: `+group+`
  scope: Namespaced
  names: {plural: gizmos, singular: gizmo, kind: Gizmo}
  versions: [{name: v1, served: true, storage: true, schema: {openAPIV3Schema: {type: object}}}]
`)
	second.MustKubectl(t, "apply", "-f", definition)
	defer applyBackend(t, first, "second", second.Endpoint, group, "")()
	gizmo := filepath.Join(t.TempDir(), "gizmo.yaml")
	e2e.WriteFile(t, gizmo, "{apiVersion: "+group+"/v1, kind: Gizmo, metadata: {name: one, namespace: default}}")
	e2e.Eventually(t, "an object is made through both", func() error {
		_, err := first.Kubectl(t, "apply", "-f", gizmo)
		return err
	})
	if out := second.MustKubectl(t, "get", "gizmos", "-o", "name"); !strings.Contains(out, "gizmo.behind.example.com/one") {
		t.Errorf("the second installation has %s", out)
	}
}
