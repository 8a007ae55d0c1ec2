package servers

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"portico/cmd/e2e"
	"portico/cmd/internal/testtools"
)

// restServer is a REST server without Kubernetes discovery behind an installation.
type restServer struct {
	up     *e2e.Installation
	listen string
	prefix string
	cmd    *exec.Cmd
}

// registerREST registers a server as shop.example.com. Its paths begin with a prefix.
func registerREST(t *testing.T, up *e2e.Installation, prefix string) *restServer {
	t.Helper()
	s := &restServer{up: up, listen: "127.0.0.1:" + e2e.FreePort(t, "127.0.0.1"), prefix: prefix}
	manifest := filepath.Join(t.TempDir(), "backend.yaml")
	e2e.WriteFile(t, manifest, fmt.Sprintf(`
apiVersion: gateway.portico.dev/v1alpha1
kind: Backend
metadata: {name: shop}
spec:
  endpoints: [{url: "http://%s"}]
  rest: {group: shop.example.com, version: v1, openAPIPath: %s/openapi.json}
`, s.listen, prefix))
	up.MustKubectl(t, "apply", "-f", manifest)
	t.Cleanup(s.kill)
	return s
}

func (s *restServer) start(t *testing.T) {
	t.Helper()
	s.cmd = exec.Command(e2e.Program(t, testtools.RESTServer), "--listen="+s.listen, "--prefix="+s.prefix)
	s.cmd.Stdout, s.cmd.Stderr = os.Stderr, os.Stderr
	if err := s.cmd.Start(); err != nil {
		t.Fatal(err)
	}
}

func (s *restServer) kill() {
	if s.cmd != nil {
		s.cmd.Process.Kill()
		_ = s.cmd.Wait() // its error is that it was killed
		s.cmd = nil
	}
}

// shows waits until the output of kubectl contains want.
func (s *restServer) shows(t *testing.T, want string, args ...string) {
	t.Helper()
	e2e.Eventually(t, strings.Join(args, " ")+" shows "+want, func() error {
		out, err := s.up.Kubectl(t, args...)
		if err == nil && !strings.Contains(out, want) {
			err = errors.New(out)
		}
		return err
	})
}

// refused checks that kubectl fails with an error that contains want.
func (s *restServer) refused(t *testing.T, want string, args ...string) {
	t.Helper()
	out, err := s.up.Kubectl(t, args...)
	if err == nil || !strings.Contains(out, want) {
		t.Errorf("kubectl %s: %v, want %q in\n%s", strings.Join(args, " "), err, want, out)
	}
}

// A REST server is an API by its OpenAPI document: kubectl lists its resources and reaches its
// paths, and gets an error for what only Kubernetes servers support.
func TestRESTServer(t *testing.T) {
	t.Parallel()
	up := e2e.SharedInstallation(t)
	const shop = "/apis/gateway.portico.dev/v1alpha1/backends/shop"
	s := registerREST(t, up, "/api/v1")
	defer up.MustKubectl(t, "delete", "backend", "shop")
	up.Shows(t, shop, `"type":"Available","status":"False"`)
	s.start(t)
	up.Shows(t, shop, `"type":"Available","status":"True"`)
	s.shows(t, "pets", "api-resources", "--api-group=shop.example.com")
	out := up.MustKubectl(t, "api-resources", "--api-group=shop.example.com", "--no-headers", "-o", "wide")
	lines := strings.Split(strings.TrimSpace(out), "\n")
	if len(lines) != 2 || !strings.Contains(lines[0], "pets") || !strings.Contains(lines[0], "Pet ") ||
		!strings.Contains(lines[0], "create,delete,get,list ") || !strings.Contains(lines[1], "whoami") {
		t.Errorf("api-resources:\n%s", out)
	}

	const root = "/apis/shop.example.com/v1"
	pet := filepath.Join(t.TempDir(), "pet.json")
	e2e.WriteFile(t, pet, `{"name":"rex","kind":"dog"}`)
	if out := up.MustKubectl(t, "create", "--raw", root+"/pets", "-f", pet); !strings.Contains(out, `"id":1`) {
		t.Errorf("create says %s", out)
	}
	for path, want := range map[string]string{
		"/pets": `"name":"rex"`, "/pets/1": `"name":"rex"`, "/pets/1/toys": "[]", "/whoami": `"user":"`,
	} {
		if out := up.MustKubectl(t, "get", "--raw", root+path); !strings.Contains(out, want) {
			t.Errorf("%s says %s", path, out)
		}
	}
	if out := up.MustKubectl(t, "explain", "pets.name"); !strings.Contains(out, "What it is called") {
		t.Errorf("explain says %s", out)
	}
	s.refusesKubernetesVerbs(t)
	up.MustKubectl(t, "delete", "--raw", root+"/pets/1")
	s.refused(t, "NotFound", "get", "--raw", root+"/pets/1")

	s.kill()
	up.Shows(t, shop, `"type":"Available","status":"False"`)
	s.refused(t, "ServiceUnavailable", "get", "--raw", root+"/pets")
	s.shows(t, "pets", "api-resources", "--api-group=shop.example.com")
}

// refusesKubernetesVerbs checks the errors of requests that only Kubernetes servers support.
func (s *restServer) refusesKubernetesVerbs(t *testing.T) {
	t.Helper()
	const plain = "pets.shop.example.com is served by a REST server"
	object := filepath.Join(t.TempDir(), "object.yaml")
	e2e.WriteFile(t, object, "{apiVersion: shop.example.com/v1, kind: Pet, metadata: {name: x}, name: x}")
	for _, args := range [][]string{
		{"get", "pets"}, {"get", "pets", "1"}, {"get", "pets", "-o", "json"}, {"get", "pet", "1", "-o", "yaml"}, {"get", "pets", "--watch"},
		{"describe", "pet", "1"}, {"label", "pet", "1", "a=b"}, {"create", "--validate=false", "-f", object}, {"delete", "pet", "1"}, {"delete", "pet", "1", "--dry-run=server"},
		{"get", "--raw", "/apis/shop.example.com/v1/pets?watch=true"},
	} {
		s.refused(t, plain, args...)
	}
	// The gateway authorizes by the resources of discovery.
	s.refused(t, `User "jane" cannot list resource "pets" in API group "shop.example.com"`, "get", "--raw", "/apis/shop.example.com/v1/pets", "--as=jane")
	s.refused(t, `cannot get resource "pets/toys"`, "get", "--raw", "/apis/shop.example.com/v1/pets/1/toys", "--as=jane")
	s.shows(t, "rex", "get", "--raw", "/apis/shop.example.com/v1/pets/1") // still
}
