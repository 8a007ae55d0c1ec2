//go:build promtool

package monitoring

import (
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"

	"portico/cmd/e2e"
)

// promtool is built from its Go module, of the discovery of targets only with what the files here use.
var promtool = []string{"run", "-tags", "remove_all_sd,enable_dns_sd,enable_kubernetes_sd", "github.com/prometheus/prometheus/cmd/promtool@v0.316.0"}

// promtool takes the rules, the PromQL of dashboards and the files for Prometheus, and each alert fires when
// rules_test.yaml says so.
func TestPromtool(t *testing.T) {
	all, _ := expressions(t)
	var queries []map[string]string
	for _, where := range slices.Sorted(maps.Keys(all)) {
		expr := strings.ReplaceAll(all[where], "$__rate_interval", "5m")
		queries = append(queries, map[string]string{"record": fmt.Sprintf("query:%d", len(queries)), "expr": expr})
	}
	text, err := yaml.Marshal(map[string]any{"groups": []any{map[string]any{"name": "queries", "rules": queries}}})
	if err != nil {
		t.Fatal(err)
	}
	dir, made := filepath.Join(e2e.Repository(), "deploy", "monitoring"), t.TempDir()
	file := func(name, text string) string {
		name = filepath.Join(made, name)
		if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return name
	}
	checks := [][]string{
		{"check", "rules", "--lint=all", "--lint-fatal", file("queries.yaml", string(text)), filepath.Join(dir, "rules.yaml")},
		{"test", "rules", filepath.Join(dir, "rules_test.yaml")},
	}
	scrapes, err := filepath.Glob(filepath.Join(dir, "scrape", "*.yaml"))
	if err != nil || len(scrapes) == 0 {
		t.Fatalf("no files for Prometheus: %v", err)
	}
	for _, name := range scrapes {
		config := file(filepath.Base(name), "scrape_config_files: ["+name+"]\nrule_files: ["+filepath.Join(dir, "rules.yaml")+"]\n")
		checks = append(checks, []string{"check", "config", "--syntax-only", config})
	}
	for _, args := range checks {
		out, err := exec.Command("go", append(slices.Clone(promtool), args...)...).CombinedOutput()
		t.Logf("promtool %s\n%s", strings.Join(args, " "), out)
		if err != nil {
			t.Error(err)
		}
	}
}
