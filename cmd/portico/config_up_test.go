package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"portico/cmd/e2e"
)

// Sections of a file reach the children of `up`; its environment is stronger, and flags are stronger than
// that. What two of them permit together and should not is one warning. A change of the log level or of a
// limit in the file takes effect while the processes run, one of another flag and one that is invalid are
// lines of their logs.
func TestConfigurationOfInstallation(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "portico.yaml")
	const sections = `
up: {enable-priority-and-fairness: false, max-requests-inflight: 301, max-mutating-requests-inflight: 302, discovery-grace: 1m, log-format: json, service-account-jwks-uri: "https://keys.example.com/jwks"}
gateway: {request-timeout: 2m, authorization-mode: [Node, RBAC], max-mutating-requests-inflight: 303}
core: {runtime-config: [batch/v1=false]}
crd: {profiling: false}
`
	const issuers = `, service-account-issuer: ["https://new.example.com", "https://old.example.com"]}`
	e2e.WriteFile(t, file, head+"all: {v: 0, etcd-prefix: /configured"+issuers+sections)
	env := []string{"PORTICO_CONFIG=" + file, "PORTICO_DISCOVERY_GRACE=3m", "PORTICO_MAX_LONG_RUNNING_REQUESTS=6000"}
	up := e2e.InstallWith(t, env, t.TempDir(), "--max-long-running-requests=7000")
	if want := "portico: warning: the authorizer Node "; strings.Count(up.Output.String(), want) != 1 {
		t.Errorf("no line %q, or several:\n%s", want, up.Output)
	}
	_, text := up.Do(t, "GET", "/flagz", "", "Accept: application/json;g=config.k8s.io;v=v1beta1;as=Flagz")
	var page struct{ Flags map[string]string }
	if err := json.Unmarshal([]byte(text), &page); err != nil {
		t.Fatalf("/flagz: %v: %s", err, text)
	}
	for name, want := range map[string]string{
		"etcd-prefix": "/configured", "request-timeout": "2m0s", "max-requests-inflight": "301", "max-mutating-requests-inflight": "303",
		"discovery-grace": "3m0s", "max-long-running-requests": "7000",
	} {
		if got := page.Flags[name]; got != want {
			t.Errorf("/flagz of the gateway: %s is %q, want %q", name, got, want)
		}
	}
	if code, _ := up.Do(t, "GET", "/apis/batch/v1", ""); code != 404 {
		t.Errorf("batch/v1, which section core switches off: %d", code)
	}
	if _, text := up.Do(t, "GET", "/.well-known/openid-configuration", ""); !strings.Contains(text, `"issuer":"https://new.example.com","jwks_uri":"https://keys.example.com/jwks"`) {
		t.Errorf("the issuer's document: %s", text)
	}
	if _, text := up.Do(t, "POST", "/api/v1/namespaces/default/serviceaccounts/default/token", `{"apiVersion":"authentication.k8s.io/v1","kind":"TokenRequest","spec":{}}`); !strings.Contains(text, `"audiences":["https://new.example.com","https://old.example.com"]`) {
		t.Errorf("the answer to a TokenRequest: %s", text)
	}
	for _, want := range []string{`portico_inflight_requests_limit{request_kind="readOnly"} 301`, `portico_inflight_requests_limit{request_kind="mutating"} 303`} {
		if _, text := up.Do(t, "GET", "/metrics", ""); !strings.Contains(text, want) {
			t.Errorf("%s is not among the metrics of the gateway", want)
		}
	}
	for _, child := range []string{"etcd", "core", "crd", "gateway"} {
		environment, err := os.ReadFile(fmt.Sprintf("/proc/%d/environ", up.Child(t, child)))
		if err != nil || strings.Contains(string(environment), "PORTICO_DISCOVERY_GRACE") {
			t.Errorf("%s has the environment of up: %v", child, err)
		}
	}

	e2e.WriteFile(t, file, head+"all: {v: 1, etcd-prefix: /another"+issuers+sections)
	for _, child := range []string{"core", "crd", "gateway"} {
		logged(t, up, child, `"msg":"configuration reloaded"`, `"changed":["all.v"]`)
		logged(t, up, child, `"msg":"changes in the configuration file need a restart of the process"`, `"changed":["all.etcd-prefix"]`)
	}
	e2e.WriteFile(t, file, head+"all: {v: 1, etcd-prefix: /another"+issuers+strings.Replace(sections, "303", "305", 1))
	logged(t, up, "gateway", `"msg":"configuration reloaded"`, `"changed":["gateway.max-mutating-requests-inflight"]`)
	_, metrics := up.Do(t, "GET", "/metrics", "")
	if want := `portico_inflight_requests_limit{request_kind="mutating"} 305`; !strings.Contains(metrics, want) {
		t.Errorf("%s is not among the metrics of the gateway", want)
	}
	e2e.WriteFile(t, file, head+"core: {event-ttl: soon}")
	logged(t, up, "core", `"level":"ERROR"`, `core.event-ttl: \"soon\": must be a time with its unit`)
}

// logged waits for a line of a child's log that has all of the texts.
func logged(t *testing.T, up *e2e.Installation, child string, texts ...string) {
	t.Helper()
	e2e.Eventually(t, fmt.Sprintf("%s logs %q", child, texts), func() error {
		data, err := os.ReadFile(filepath.Join(up.Dir, "logs", child+".log"))
		for line := range strings.Lines(string(data)) {
			all := true
			for _, text := range texts {
				all = all && strings.Contains(line, text)
			}
			if all {
				return nil
			}
		}
		return errors.Join(errors.New("no such line"), err)
	})
}
