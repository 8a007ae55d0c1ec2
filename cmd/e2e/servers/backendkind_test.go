package servers

import (
	"fmt"
	"net/http"
	"path/filepath"
	"strings"
	"testing"

	"portico/cmd/e2e"
)

const wardleBackend = `apiVersion: gateway.portico.dev/v1alpha1
kind: Backend
metadata: {name: %s}
spec:
  %s
  tls: {insecureSkipVerify: true}
  autoRegister: {groups: [%q], versionPriority: 20}
`

// A real aggregated API server, registered by a Backend, is used and killed, and its API is
// deleted with the Backend. A second Backend of its group gets a condition.
func TestBackendOfSampleServer(t *testing.T) {
	t.Parallel()
	up := e2e.Install(t, t.TempDir())
	s := e2e.RegisterSample(t, up, func(file, text string) string {
		if file == "apiservice.yaml" {
			return "# a Backend instead\n"
		}
		return text
	})
	url := "endpoints: [{url: \"https://127.0.0.1:" + s.Port + "\"}]"
	if out := s.Apply(t, "wardle", fmt.Sprintf(wardleBackend, "wardle", url, "wardle.example.com")); !strings.Contains(out, "created") {
		t.Errorf("applied: %s", out)
	}
	if out := s.Apply(t, "wardle", fmt.Sprintf(wardleBackend, "wardle", url, "wardle.example.com")); !strings.Contains(out, "unchanged") {
		t.Errorf("applied again: %s", out)
	}
	s.Says(t, "wardle", ".status.endpoints[0].state", "Unhealthy")
	s.Says(t, "wardle", ".status.endpoints[0].lastError", "connection refused")
	s.Start(t)
	s.Serves(t)
	s.Says(t, "wardle", ".status.endpoints[0].state", "Healthy")
	s.Says(t, "wardle", `.status.conditions[?(@.type=="Registered")].status`, "True")
	s.Available(t, "True")
	s.Says(t, "wardle", `.status.conditions[?(@.type=="Available")].status`, "True")
	out := up.MustKubectl(t, "get", "backends")
	if !strings.Contains(strings.Join(strings.Fields(out), " "), "wardle 1/1 True wardle.example.com") {
		t.Errorf("kubectl get backends:\n%s", out)
	}
	const jsonpath = `jsonpath={.metadata.annotations.gateway\.portico\.dev/backend} {.spec.versionPriority} {.metadata.labels.kube-aggregator\.kubernetes\.io/automanaged}`
	if out := up.MustKubectl(t, "get", "apiservice", "v1beta1.wardle.example.com", "-o", jsonpath); out != "wardle 20 true" {
		t.Errorf("its APIService: %s", out)
	}
	e2e.Eventually(t, "the server admits writes", func() error {
		_, err := up.Kubectl(t, "apply", "-f", filepath.Join(e2e.Repository(), "deploy/samples/sample-apiserver/objects"))
		return err
	})
	s.UseFlunders(t)

	// The same server by the Service that the sample has.
	service := "service: {namespace: wardle, name: api, port: " + s.Port + "}"
	s.Apply(t, "other", fmt.Sprintf(wardleBackend, "other", service, "*"))
	s.Says(t, "other", `.status.conditions[?(@.type=="Registered")].message`, `v1beta1.wardle.example.com served by Backend "wardle"`)
	s.Says(t, "other", `.status.conditions[?(@.type=="Available")].status`, "True")

	// Its group moves to the other Backend, and is deleted with that one.
	up.MustKubectl(t, "delete", "backend", "wardle")
	s.Says(t, "other", `.status.conditions[?(@.type=="Registered")].status`, "True")
	up.MustKubectl(t, "get", "flunders")
	s.Kill()
	s.Says(t, "other", ".status.endpoints[0].state", "Unhealthy")
	s.Says(t, "other", `.status.conditions[?(@.type=="Available")].message`, "observed by")
	up.MustKubectl(t, "delete", "backend", "other")
	e2e.Eventually(t, "the routes are gone", func() error {
		for _, path := range []string{"/apis/wardle.example.com/v1alpha1/flunders", "/apis/apiregistration.k8s.io/v1/apiservices/v1alpha1.wardle.example.com"} {
			if code, body := up.Do(t, http.MethodGet, path, ""); code != http.StatusNotFound {
				return fmt.Errorf("%s: %d %s", path, code, body)
			}
		}
		return nil
	})
}
