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

	"portico/cmd/e2e"

	"k8s.io/client-go/rest"
)

// backendAt is a Backend and an APIService of one group/version, GROUP/v1, that it
// serves.
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

// applyBackend registers a server; the returned function, which must be called before
// the test ends, removes it: a group that is not available holds up the deletion of
// namespaces.
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
			out, err := up.Kubectl(t, "get", "apiservice", "v1."+group, "-o", `jsonpath={range .status.conditions[?(@.type=="Available")]}{.status} {.reason} {.message}{end}`)
			if err == nil && (!strings.HasPrefix(out, "False FailedDiscoveryCheck ") || !strings.Contains(out, "508 Loop Detected: the address leads back to this gateway")) {
				err = fmt.Errorf("it says %s", out)
			}
			return err
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
