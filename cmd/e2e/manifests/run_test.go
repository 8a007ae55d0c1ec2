package manifests

import (
	"path/filepath"
	"testing"

	"portico/cmd/e2e"
)

// The processes of deploy/kubernetes, with the arguments, configuration and Secrets of their pods, become ready by their
// probes, serve the administrator of portico certs installation, do without the first pod of each kind, and end in order.
func TestRun(t *testing.T) {
	t.Parallel()
	set, err := Parse(e2e.SharedInstallation(t).MustKubectl(t, "kustomize", folder()), nil)
	if err != nil {
		t.Fatal(err)
	}
	c, dir := NewCluster(t, set), t.TempDir()
	c.Start(t, MakeSecrets(t, dir, "portico", "https://"+c.Address("portico-gateway-1", 6443), "127.0.0.1"))
	c.Serve(t, filepath.Join(dir, "admin/kubeconfig"))
}
