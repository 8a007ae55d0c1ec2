package servers

import (
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	"portico/cmd/e2e"
	"portico/internal/testing/await"
)

// A real aggregated API server, registered by an APIService, is used, killed, started again, and
// explained by its OpenAPI v2 document.
func TestSampleAPIServer(t *testing.T) {
	t.Parallel()
	up := e2e.Install(t, t.TempDir())
	s := e2e.RegisterSample(t, up, func(_, text string) string { return text })
	s.Available(t, "False (FailedDiscoveryCheck)")
	s.Start(t)
	s.Available(t, "True")
	e2e.Eventually(t, "the server admits writes", func() error {
		_, err := up.Kubectl(t, "apply", "-f", filepath.Join(e2e.Repository(), "deploy/samples/sample-apiserver/objects"))
		return err
	})
	if out := up.MustKubectl(t, "api-resources", "--api-group=wardle.example.com", "-o", "name"); !strings.Contains(out, "flunders.") || !strings.Contains(out, "fischers.") {
		t.Errorf("api-resources lists %q", out)
	}
	s.UseFlunders(t)
	createOwned(t, s)

	s.Kill()
	await.Bar(t, "the notice of the end of the server", s.Available(t, "False (FailedDiscoveryCheck)"), e2e.Noticed)
	s.WhileAway(t)
	// Dependents on a server that is away hold up no others.
	up.MustKubectl(t, "delete", "configmap", "owner")
	collected(t, up, "configmap")

	s.Start(t)
	s.Serves(t)
	await.Bar(t, "the notice of the return of the server", s.Available(t, "True"), e2e.Noticed)
	up.Shows(t, "/apis/wardle.example.com/v1alpha1/namespaces/default/flunders/kept", "")
	collected(t, up, "flunder")
	explainsByOpenAPIV2(t, s)
}

// createOwned creates the ConfigMap owner, and a ConfigMap and a flunder that it owns.
func createOwned(t *testing.T, s *e2e.SampleServer) {
	t.Helper()
	s.Up.MustKubectl(t, "create", "configmap", "owner")
	uid := s.Up.MustKubectl(t, "get", "configmap", "owner", "-o", "jsonpath={.metadata.uid}")
	const object = `
apiVersion: %s
kind: %s
metadata:
  name: owned
  ownerReferences: [{apiVersion: v1, kind: ConfigMap, name: owner, uid: %s}]
---`
	s.Apply(t, "owned", fmt.Sprintf(object, "v1", "ConfigMap", uid)+fmt.Sprintf(object, "wardle.example.com/v1alpha1", "Flunder", uid))
}

// collected waits until the owned object of a kind is deleted.
func collected(t *testing.T, up *e2e.Installation, kind string) {
	t.Helper()
	e2e.Eventually(t, "the dependent "+kind+" is deleted", func() error {
		if out, err := up.Kubectl(t, "get", kind, "owned"); err == nil || !strings.Contains(out, "NotFound") {
			return fmt.Errorf("%s: %v", out, err)
		}
		return nil
	})
}
