package main

import (
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	"portico/cmd/e2e"
	"portico/cmd/internal/datadir"
)

// Every client finds its gateway in the same way: --kubeconfig, else $KUBECONFIG, else the kubeconfig of a portico up that
// runs on the default data folder.
func TestWhichKubeconfig(t *testing.T) {
	folder, elsewhere := t.TempDir(), t.TempDir()
	kubeconfig := func(dir, name string, port int) string {
		file := filepath.Join(dir, name)
		e2e.WriteFile(t, file, fmt.Sprintf("apiVersion: v1\nkind: Config\ncurrent-context: a\nclusters: [{name: a, cluster: {server: 'https://127.0.0.1:%d'}}]\ncontexts: [{name: a, context: {cluster: a, user: a}}]\nusers: [{name: a, user: {token: a}}]\n", port))
		return file
	}
	t.Setenv("XDG_DATA_HOME", folder)
	dir, err := datadir.Open(filepath.Join(folder, "portico"))
	if err != nil {
		t.Fatal(err)
	}
	defer dir.Close()
	kubeconfig(dir.Path, "kubeconfig", 1)
	flag := " --kubeconfig=" + kubeconfig(elsewhere, "flag", 3)
	leadsTo := func(line, port string) {
		t.Helper()
		// What status and doctor say of a gateway that does not answer is in their output.
		out, err := command(t, strings.Fields(line)...)
		if all := fmt.Sprint(out, err); !strings.Contains(all, "127.0.0.1:"+port) {
			t.Errorf("portico %s does not ask the gateway at port %s: %s", line, port, all)
		}
	}
	for _, line := range []string{"backends", "routes", "explain-route /api", "unregister x", "status", "doctor"} {
		t.Setenv("KUBECONFIG", "")
		leadsTo(line, "1")
		t.Setenv("KUBECONFIG", kubeconfig(elsewhere, "environment", 2))
		leadsTo(line, "2")
		leadsTo(line+flag, "3")
	}
	// Checks that are skipped for one reason are one line.
	out, _ := command(t, "doctor")
	if n := strings.Count(out, "no data folder of portico up here"); n != 1 || !strings.Contains(out, "SKIPPED data-folder, ") {
		t.Errorf("%d lines say that there is no data folder:\n%s", n, out)
	}
}
