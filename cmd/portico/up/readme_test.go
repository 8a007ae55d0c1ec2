package up

import (
	"bytes"
	"os"
	"strings"
	"testing"

	"portico/cmd/internal/datadir"
	"portico/cmd/portico/server"
)

// README.md shows what portico up prints.
func TestReadmeShowsTheGreeting(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile("../../../README.md")
	if err != nil {
		t.Fatal(err)
	}
	const folder = "/home/jane/.local/share/portico"
	var out bytes.Buffer
	greet(&out, &stack{
		endpoint: "https://127.0.0.1:6443", kubeconfig: folder + "/kubeconfig", dir: &datadir.Dir{Path: folder},
		etcd: server.EtcdFlags{Servers: []string{"unix://" + folder + "/run/etcd.sock"}},
	})
	shown := strings.ReplaceAll(string(page), "\n    ", "\n")
	if !strings.Contains(shown, out.String()) {
		t.Errorf("README.md does not show\n%s", &out)
	}
}
