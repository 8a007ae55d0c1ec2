package main

import (
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// apply applies a manifest and returns what kubectl prints.
func (s *sampleServer) apply(t *testing.T, name, manifest string) string {
	t.Helper()
	file := filepath.Join(s.dir, name+".yaml")
	if err := os.WriteFile(file, []byte(manifest), 0o600); err != nil {
		t.Fatal(err)
	}
	return s.up.mustKubectl(t, "apply", "-f", file)
}

// says waits until a Backend's field is what is wanted.
func (s *sampleServer) says(t *testing.T, backend, path, want string) {
	t.Helper()
	eventually(t, fmt.Sprintf("Backend %s: %s is %q", backend, path, want), func() error {
		out, err := s.up.kubectl(t, "get", "backend", backend, "-o", "jsonpath={"+path+"}")
		if err == nil && !strings.Contains(out, want) {
			err = errors.New(out)
		}
		return err
	})
}

const wardleBackend = `apiVersion: gateway.portico.dev/v1alpha1
kind: Backend
metadata: {name: %s}
spec:
  %s
  tls: {insecureSkipVerify: true}
  autoRegister: {groups: [%q], versionPriority: 20}
`

// A real aggregated API server behind a Backend: found, used, killed, and gone
// with its Backend. What else claims its group is told so.
func TestBackendOfSampleServer(t *testing.T) {
	t.Parallel()
	up := install(t, t.TempDir())
	s := registerSample(t, up, func(file, text string) string {
		if file == "apiservice.yaml" {
			return "# a Backend instead\n"
		}
		return text
	})
	url := "endpoints: [{url: \"https://127.0.0.1:" + s.port + "\"}]"
	if out := s.apply(t, "wardle", fmt.Sprintf(wardleBackend, "wardle", url, "wardle.example.com")); !strings.Contains(out, "created") {
		t.Errorf("applied: %s", out)
	}
	if out := s.apply(t, "wardle", fmt.Sprintf(wardleBackend, "wardle", url, "wardle.example.com")); !strings.Contains(out, "unchanged") {
		t.Errorf("applied again: %s", out)
	}
	s.says(t, "wardle", ".status.endpoints[0].state", "Unhealthy")
	s.says(t, "wardle", ".status.endpoints[0].lastError", "connection refused")
	s.start(t)
	s.serves(t)
	s.says(t, "wardle", ".status.endpoints[0].state", "Healthy")
	s.says(t, "wardle", `.status.conditions[?(@.type=="Registered")].status`, "True")
	s.available(t, "True")
	// Its own status is another write than that of its APIService.
	s.says(t, "wardle", `.status.conditions[?(@.type=="Available")].status`, "True")
	out := up.mustKubectl(t, "get", "backends")
	if !strings.Contains(strings.Join(strings.Fields(out), " "), "wardle 1/1 True wardle.example.com") {
		t.Errorf("kubectl get backends:\n%s", out)
	}
	const jsonpath = `jsonpath={.metadata.annotations.gateway\.portico\.dev/backend} {.spec.versionPriority} {.metadata.labels.kube-aggregator\.kubernetes\.io/automanaged}`
	if out := up.mustKubectl(t, "get", "apiservice", "v1beta1.wardle.example.com", "-o", jsonpath); out != "wardle 20 true" {
		t.Errorf("its APIService: %s", out)
	}
	eventually(t, "the server admits writes", func() error {
		_, err := up.kubectl(t, "apply", "-f", filepath.Join(repository(), "deploy/samples/sample-apiserver/objects"))
		return err
	})
	s.useFlunders(t)

	// The same server by the Service that the sample has.
	service := "service: {namespace: wardle, name: api, port: " + s.port + "}"
	s.apply(t, "other", fmt.Sprintf(wardleBackend, "other", service, "*"))
	s.says(t, "other", `.status.conditions[?(@.type=="Registered")].message`, `v1beta1.wardle.example.com served by Backend "wardle"`)
	s.says(t, "other", `.status.conditions[?(@.type=="Available")].status`, "True")

	// What it served goes to who has asked for it too, and then is gone.
	up.mustKubectl(t, "delete", "backend", "wardle")
	s.says(t, "other", `.status.conditions[?(@.type=="Registered")].status`, "True")
	up.mustKubectl(t, "get", "flunders")
	s.kill()
	s.says(t, "other", ".status.endpoints[0].state", "Unhealthy")
	s.says(t, "other", `.status.conditions[?(@.type=="Available")].message`, "observed by")
	up.mustKubectl(t, "delete", "backend", "other")
	eventually(t, "the routes are gone", func() error {
		code, _ := get(t, httpClient(t, up.config(t)), up.endpoint+"/apis/wardle.example.com/v1alpha1/flunders", "")
		if out, err := up.kubectl(t, "get", "apiservice", "v1alpha1.wardle.example.com"); err == nil || code != http.StatusNotFound {
			return fmt.Errorf("%d %s", code, out)
		}
		return nil
	})
}
