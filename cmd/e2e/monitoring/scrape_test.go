package monitoring

import (
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"k8s.io/client-go/rest"

	"portico/cmd/e2e"
)

// jobs are the jobs that rules and dashboards know, and etcd's.
var jobs = []string{"portico", "portico-gateway", "portico-core", "portico-crd", "portico_slis", "etcd"}

// The files for Prometheus name the jobs of the rules, and the health checks by their path.
func TestScrapeConfigs(t *testing.T) {
	t.Parallel()
	names, err := filepath.Glob(filepath.Join(e2e.Repository(), "deploy", "monitoring", "scrape", "*.yaml"))
	if err != nil || len(names) == 0 {
		t.Fatalf("no files: %v", err)
	}
	for _, name := range names {
		var file struct {
			ScrapeConfigs []struct {
				JobName     string `json:"job_name"`
				MetricsPath string `json:"metrics_path"`
			} `json:"scrape_configs"`
		}
		decode(t, name, &file)
		for _, c := range file.ScrapeConfigs {
			if !slices.Contains(jobs, c.JobName) {
				t.Errorf("%s has the job %s, which no rule knows", filepath.Base(name), c.JobName)
			}
			if slis := c.JobName == "portico_slis"; slis != (c.MetricsPath == "/metrics/slis") {
				t.Errorf("%s: the job %s reads %q", filepath.Base(name), c.JobName, c.MetricsPath)
			}
		}
	}
}

// The commands of the page make a token that reads the metrics of the gateway, and nothing else.
func TestScrapeByToken(t *testing.T) {
	t.Parallel()
	up := e2e.SharedInstallation(t)
	text, err := os.ReadFile(filepath.Join(e2e.Repository(), "deploy", "monitoring", "README.md"))
	if err != nil {
		t.Fatal(err)
	}
	token := ""
	for _, m := range regexp.MustCompile(`(?m)^    kubectl ([^>\n]+)(?: > .*)?$`).FindAllStringSubmatch(string(text), -1) {
		token = strings.TrimSpace(up.MustKubectl(t, strings.Fields(m[1])...))
	}
	cfg := rest.AnonymousClientConfig(up.Config(t))
	cfg.BearerToken = token
	client := e2e.HTTPClient(t, cfg)
	for path, want := range map[string]int{"/metrics": http.StatusOK, "/metrics/slis": http.StatusOK, "/api/v1/secrets": http.StatusForbidden} {
		if code, body := e2e.Get(t, client, up.Endpoint+path, ""); code != want {
			t.Errorf("%s: got %d %.300s, want %d", path, code, body, want)
		}
	}
}
