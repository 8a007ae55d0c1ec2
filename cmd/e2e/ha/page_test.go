package ha

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"sigs.k8s.io/yaml"

	"portico/cmd/e2e"
	"portico/cmd/internal/supervise"
	"portico/cmd/internal/testtools"
	"portico/internal/testing/await"
)

// section returns a section of deploy/machines/README.md.
func section(t *testing.T, heading string) string {
	t.Helper()
	return sectionOf(t, "deploy/machines/README.md", heading)
}

func sectionOf(t *testing.T, name, heading string) string {
	t.Helper()
	page, err := os.ReadFile(filepath.Join(e2e.Repository(), name))
	if err != nil {
		t.Fatal(err)
	}
	_, text, found := strings.Cut(string(page), "\n## "+heading+"\n")
	if !found {
		t.Fatalf("%s has no section %s", name, heading)
	}
	text, _, _ = strings.Cut(text, "\n## ")
	return text
}

// commands returns the lines of a section that begin with one of some words, without indentation.
func commands(text string, words string) []string {
	return regexp.MustCompile(`(?m)^ {4,}((?:`+words+`) .+)$`).FindAllString(text, -1)
}

// shell runs a command of the page in a folder.
func shell(t *testing.T, dir string, env []string, line string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), await.Patience())
	defer cancel()
	cmd := exec.CommandContext(ctx, "bash", "-c", strings.TrimSpace(line))
	cmd.Dir, cmd.Env = dir, env
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Errorf("%s: %v\n%s", strings.TrimSpace(line), err, out)
	}
}

// The page is what loopback.sh does, and its commands succeed: certificates, configuration, and requests
// to the installation. TestUsersOfEtcd runs the file that makes the users of etcd.
func TestPage(t *testing.T) {
	t.Parallel()
	e2e.Program(t, testtools.Etcd)
	e2e.Program(t, testtools.Etcdctl)
	e2e.Program(t, testtools.Kubectl)
	dir := t.TempDir()
	network := fmt.Sprintf("127.%d.%d", 1+rand.IntN(250), rand.IntN(256))
	env := append(os.Environ(), "PATH="+filepath.Dir(e2e.Program(t, testtools.Portico))+":"+os.Getenv("PATH"),
		"NETWORK="+network, "DELAY=100ms", "KUBECONFIG=bin/machines/pki/admin/kubeconfig", "HOME="+dir)
	for _, line := range commands(section(t, "1. Certificates"), "portico") {
		shell(t, dir, env, line)
	}

	cmd := exec.Command(filepath.Join(e2e.Repository(), "deploy/machines/loopback.sh"), "up", "bin/machines")
	out := testtools.NewOutput()
	cmd.Dir, cmd.Env, cmd.Stdout, cmd.Stderr, cmd.SysProcAttr = dir, env, out, out, supervise.ChildAttributes()
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := errors.Join(cmd.Process.Signal(syscall.SIGTERM), cmd.Wait()); err != nil {
			t.Errorf("loopback.sh ended with %v:\n%s", err, out)
		}
	}()
	e2e.Eventually(t, "loopback.sh is ready", func() error {
		if !strings.Contains(out.String(), "ready after") {
			return errors.New(out.String())
		}
		return nil
	})
	t.Log(out)
	for _, line := range commands(section(t, "Try it on one machine"), "portico|kubectl") {
		shell(t, dir, env, line)
	}
	pageConfigures(t, dir, env)
	showsProcesses(t, dir, env)
	here := strings.NewReplacer("etcd-0:", network+".7:", "etcd-1:", network+".8:", "etcd-2:", network+".9:",
		"/etc/portico/pki", "bin/machines/pki/core", "/etc/portico/portico.yaml", "bin/machines/core-0.yaml")
	for _, line := range commands(section(t, "Upgrade"), "portico") {
		shell(t, dir, env, here.Replace(line))
	}
}

// showsProcesses expects all processes of the installation in portico status, with their addresses.
func showsProcesses(t *testing.T, dir string, env []string) {
	t.Helper()
	e2e.Eventually(t, "portico status shows seven processes", func() error {
		cmd := exec.CommandContext(t.Context(), e2e.Program(t, testtools.Portico), "status")
		cmd.Dir, cmd.Env = dir, env
		out, err := cmd.CombinedOutput()
		got := map[string]int{}
		for _, m := range regexp.MustCompile(`(?m)^(?:Processes   |            ) (gateway|core|crd) +\S+ +v1\.\S+ +127\.\S+:(\d+) +up `).FindAllStringSubmatch(string(out), -1) {
			got[m[1]+" "+m[2]]++
		}
		if want := map[string]int{"gateway 6443": 3, "core 7443": 2, "crd 7444": 2}; err != nil || !maps.Equal(got, want) {
			return fmt.Errorf("%v, processes are %v\n%s", err, got, out)
		}
		return nil
	})
}

// pageConfigures checks that the configuration of the page is valid, and has the keys of those
// that loopback.sh made.
func pageConfigures(t *testing.T, dir string, env []string) {
	t.Helper()
	lines := regexp.MustCompile(`(?m)^    (.*)$`).FindAllStringSubmatch(section(t, "3. Servers"), -1)
	var text bytes.Buffer
	for _, m := range lines {
		text.WriteString(m[1] + "\n")
	}
	file := filepath.Join(dir, "portico.yaml")
	e2e.WriteFile(t, file, text.String())
	shell(t, dir, env, "portico config validate "+file)
	var page map[string]any
	if err := yaml.UnmarshalStrict(text.Bytes(), &page); err != nil {
		t.Fatal(err)
	}
	for _, kind := range []string{"gateway", "core", "crd"} {
		data, err := os.ReadFile(filepath.Join(dir, "bin/machines", kind+"-0.yaml"))
		if err != nil {
			t.Fatal(err)
		}
		var made map[string]map[string]any
		var file map[string]any
		if err := yaml.Unmarshal(data, &file); err != nil {
			t.Fatal(err)
		}
		made = map[string]map[string]any{kind: file[kind].(map[string]any)}
		delete(made[kind], "instance-id") // host names differ on other machines
		want := slices.Sorted(maps.Keys(made[kind]))
		all := maps.Clone(page["all"].(map[string]any))
		maps.Copy(all, page[kind].(map[string]any))
		if got := slices.Sorted(maps.Keys(all)); !slices.Equal(got, want) {
			t.Errorf("%s has %v on the page, and %v on loopback", kind, got, want)
		}
	}
}

// Gateways that start with nothing but etcd serve what is registered at one of them by the
// commands of the page, also one that starts later.
func TestRegisteredServers(t *testing.T) {
	t.Parallel()
	in := prepare(t, 100*time.Millisecond, func(in *installation, address string) { balance(t, in, address) })
	in.withoutBackends(t)
	in.start(t, append(backends, gateways[:2]...)...)
	for _, name := range slices.Concat(backends, gateways[:2]) {
		if err := in.processes[name].awaitReady(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	in.register(t)
	in.start(t, gateways[2])
	for _, name := range gateways {
		in.serves(t, "https://"+in.address(name))
	}
}

// withoutBackends removes the servers from the configurations of gateways.
func (in *installation) withoutBackends(t *testing.T) {
	t.Helper()
	for _, name := range gateways {
		file := filepath.Join(in.Dir, name+".yaml")
		data, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		e2e.WriteFile(t, file, regexp.MustCompile(`(?m)^  (?:backend(?:-ca-file)?:.*|- .*)\n`).ReplaceAllString(string(data), ""))
	}
}

// register registers the servers by the commands of the page.
func (in *installation) register(t *testing.T) {
	t.Helper()
	var hosts []string
	for _, name := range backends {
		_, port, _ := strings.Cut(in.address(name), ":")
		hosts = append(hosts, "https://server-"+name[len(name)-1:]+":"+port, "https://"+in.address(name))
	}
	for _, line := range commands(section(t, "Gateways that start with nothing but etcd"), "portico") {
		shell(t, in.Dir, append(in.env, "KUBECONFIG="+in.Kubeconfig), strings.NewReplacer(hosts...).Replace(line))
	}
}
