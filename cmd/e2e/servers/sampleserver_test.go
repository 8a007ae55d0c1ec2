package servers

import (
	"path/filepath"
	"portico/cmd/e2e"
	"strings"
	"testing"
)

// A real aggregated API server: registered, used, killed, started again.
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
		t.Errorf("that the server is dead was noticed after %v", took)
	}
	s.WhileAway(t)

	s.Start(t)
	s.Serves(t)
	if took := s.Available(t, "True"); took > e2e.Noticed {
		t.Errorf("that the server is back was noticed after %v", took)
	}
	e2e.Eventually(t, "what was stored is there again", func() error {
		_, err := up.Kubectl(t, "get", "flunder", "kept")
		return err
	})
}
