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

// readme returns the page.
func readme(t *testing.T) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(e2e.Repository(), "deploy", "monitoring", "README.md"))
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// With the configuration file of the page, each process of "portico up" serves metrics and the results
// of health checks without credentials.
func TestScrapeOfUp(t *testing.T) {
	t.Parallel()
	block := regexp.MustCompile(`(?m)^    apiVersion: config(.+\n)+`).FindString(readme(t))
	config := regexp.MustCompile(`(?m)^    `).ReplaceAllString(block, "")
	var addresses []string
	for _, documented := range []string{"127.0.0.1:8080", "127.0.0.1:8081", "127.0.0.1:8082"} {
		addresses = append(addresses, "127.0.0.1:"+e2e.FreePort(t, "127.0.0.1"))
		config = strings.Replace(config, documented, addresses[len(addresses)-1], 1)
	}
	file := filepath.Join(t.TempDir(), "portico.yaml")
	if err := os.WriteFile(file, []byte(config), 0o600); err != nil {
		t.Fatal(err)
	}
	e2e.Install(t, t.TempDir(), "--config="+file)
	for _, address := range addresses {
		for path, want := range map[string]string{"/metrics": "process_start_time_seconds", "/metrics/slis": "kubernetes_healthcheck"} {
			if code, body := e2e.Get(t, http.DefaultClient, "http://"+address+path, ""); code != http.StatusOK || !strings.Contains(body, want) {
				t.Errorf("%s of %s: got %d %.200s", path, address, code, body)
			}
		}
	}
}

// The commands of the page make a token that reads the metrics of the gateway, and nothing else.
func TestScrapeByToken(t *testing.T) {
	t.Parallel()
	up := e2e.SharedInstallation(t)
	token := ""
	for _, m := range regexp.MustCompile(`(?m)^    kubectl ([^>\n]+)(?: > .*)?$`).FindAllStringSubmatch(readme(t), -1) {
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
