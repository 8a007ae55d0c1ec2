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

// promtool is built from its Go module, without the clients of clouds.
var promtool = []string{"run", "-tags", "remove_all_sd", "github.com/prometheus/prometheus/cmd/promtool@v0.316.0"}

// promtool takes the rules and the PromQL of dashboards, and each alert fires when rules_test.yaml says so.
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
	file := filepath.Join(t.TempDir(), "queries.yaml")
	if err := os.WriteFile(file, text, 0o600); err != nil {
		t.Fatal(err)
	}
	dir := filepath.Join(e2e.Repository(), "deploy", "monitoring")
	for _, args := range [][]string{
		{"check", "rules", "--lint=all", "--lint-fatal", file, filepath.Join(dir, "rules.yaml")},
		{"test", "rules", filepath.Join(dir, "rules_test.yaml")},
	} {
		out, err := exec.Command("go", append(slices.Clone(promtool), args...)...).CombinedOutput()
		t.Logf("promtool %s\n%s", strings.Join(args, " "), out)
		if err != nil {
			t.Error(err)
		}
	}
}
