package servers

import (
	"path/filepath"
	"strings"
	"testing"

	"portico/cmd/e2e"
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

	s.Kill()
	if took := s.Available(t, "False (FailedDiscoveryCheck)"); took > e2e.Noticed {
		t.Errorf("the end of the server was noticed after %v", took)
	}
	s.WhileAway(t)

	s.Start(t)
	s.Serves(t)
	if took := s.Available(t, "True"); took > e2e.Noticed {
		t.Errorf("the return of the server was noticed after %v", took)
	}
	up.Shows(t, "/apis/wardle.example.com/v1alpha1/namespaces/default/flunders/kept", "")
	explainsByOpenAPIV2(t, s)
}
