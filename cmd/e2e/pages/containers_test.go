//go:build boot

package pages

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"portico/cmd/e2e"
)

// compose is how the commands of the page begin that say what compose does.
const compose = "docker compose --file=deploy/container/compose.yaml "

// followContainers follows deploy/container/README.md in a clone of HEAD.
func (m *machine) followContainers(t *testing.T) {
	const folder = "/home/newcomer/portico-clone"
	clone := filepath.Join(m.root, folder)
	if out, err := exec.Command("git", "clone", "--quiet", e2e.Repository(), clone).CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	m.shell = "cd " + folder + "; "
	const kubectl = "kubectl --kubeconfig=portico.kubeconfig "
	m.follow(t, "deploy/container/README.md", map[string]step{
		// Go is outside of the machine.
		"go -C cmd/tools run ./release --out=../../dist --platforms=linux/amd64 --samples": {instead: func(t *testing.T, line string) {
			cmd := exec.Command("sh", "-c", line)
			cmd.Dir, cmd.Env = clone, append(os.Environ(), "GOFLAGS=")
			if out, err := cmd.CombinedOutput(); err != nil {
				t.Fatalf("%v\n%s", err, out)
			}
			m.run(t, "sudo chown --recursive newcomer: .")
		}},
		"export PORTICO_VERSION=0.1.0": {instead: func(t *testing.T, _ string) {
			m.shell += "export PORTICO_VERSION=" + m.run(t, "docker images --format={{.Tag}} portico") + "; "
		}},
		"docker logs portico":       {await: true, shows: "Portico is ready."},
		"docker rm --force portico": {before: func(t *testing.T) { m.run(t, kubectl+"get apiservices") }},
		kubectl + "get apiservices": {await: true, shows: "v1.apps"},
		compose + "run --rm certs":  {after: m.restartsContainers},
		kubectl + "get --raw /apis/pets.example.com/v1/pets": {await: true, after: func(t *testing.T) {
			m.run(t, kubectl+"create namespace demo")
			m.run(t, kubectl+"--server=https://localhost:6444 get namespace demo")
		}},
		compose + "up --detach --no-deps --wait core": {after: func(t *testing.T) {
			for _, service := range []string{"crd", "gateway-0", "gateway-1"} {
				m.run(t, compose+"up --detach --no-deps --wait "+service)
			}
			m.run(t, kubectl+"get namespace demo")
		}},
		"umask 077; " + compose + "run --rm --no-TTY backup > portico.backup": {after: func(t *testing.T) {
			m.run(t, "/home/newcomer/portico backup verify portico.backup")
			if mode := m.run(t, "stat --format=%a portico.backup"); mode != "600" {
				t.Errorf("the mode of the backup is %s", mode)
			}
		}},
		compose + "down": {before: m.endsContainers, after: func(t *testing.T) {
			m.run(t, compose+"down --volumes")
			if out := m.run(t, "docker ps --all --quiet; docker volume ls --quiet | grep portico_ || true"); out != "" {
				t.Errorf("left: %s", out)
			}
		}},
	})
}

// restartsContainers kills the process of each container that serves, and waits until it is healthy again.
func (m *machine) restartsContainers(t *testing.T) {
	for _, service := range []string{"gateway-0", "core", "etcd-0"} {
		container := "portico-" + service + "-1"
		m.run(t, "sudo kill -KILL $(docker inspect --format={{.State.Pid}} "+container+")")
		m.await(t, "docker inspect --format='{{.RestartCount}} {{.State.Health.Status}}' "+container, "1 healthy")
	}
}

// endsContainers stops all containers. Each ends by itself, before docker kills it.
func (m *machine) endsContainers(t *testing.T) {
	m.run(t, compose+"stop")
	codes := m.run(t, "docker inspect --format='{{.Name}} {{.State.ExitCode}}' $(docker ps --all --quiet)")
	if strings.Count(codes, "\n") < 8 || regexp.MustCompile(`(?m) 137$`).MatchString(codes) {
		t.Errorf("containers and their exit codes:\n%s", codes)
	}
}
