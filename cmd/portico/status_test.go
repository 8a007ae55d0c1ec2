package main

import (
	"context"
	"encoding/json"
	"fmt"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"

	"portico/cmd/e2e"
	"portico/cmd/portico/status"
)

// portico runs a command in this process and returns what it prints.
func portico(t *testing.T, args ...string) (string, error) {
	t.Helper()
	root := newRoot()
	var out strings.Builder
	root.SetArgs(args)
	root.SetOut(&out)
	root.SetErr(&out)
	err := root.ExecuteContext(t.Context())
	return out.String(), err
}

// statusOf returns what portico status shows as JSON.
func statusOf(t *testing.T, args ...string) (*status.Status, error) {
	t.Helper()
	out, err := portico(t, append([]string{"status", "-o", "json"}, args...)...)
	s := new(status.Status)
	if decodeErr := json.Unmarshal([]byte(out), s); decodeErr != nil {
		t.Fatalf("decode status: %v\n%s", decodeErr, out)
	}
	return s, err
}

// pictures counts how often the status is shown, and ends the command after the second time.
type pictures struct {
	n      int
	cancel func()
}

func (p *pictures) Write(data []byte) (int, error) {
	if strings.HasPrefix(string(data), "Healthy") {
		if p.n++; p.n == 2 {
			p.cancel()
		}
	}
	return len(data), nil
}

// portico status shows an installation that is well, then a child that died, an API that is
// down, what a user may not read, and at last that nothing runs.
func TestStatus(t *testing.T) {
	t.Parallel()
	up := e2e.Install(t, t.TempDir())
	at := "--data-dir=" + up.Dir
	var out string
	e2e.Eventually(t, "the installation is healthy", func() (err error) {
		out, err = portico(t, "status", at)
		return err
	})
	for _, want := range []string{
		`Endpoint +` + up.Endpoint, `Processes +gateway +\S+ +v1\.37\S+ +127\.0\.0\.1:\d+ +up `, ` +crd +\S+ +v1\.37\S+ +unix:///\S+crd\.sock +up `, `Leaders +controllers +\S+`, `etcd +unix:///\S+etcd\.sock +3\.\S+ +leads +\d+ KiB, `,
		`Ready +yes`, `This machine +up +` + fmt.Sprint(up.Cmd.Process.Pid), `Certificates +\d+; the first one that ends: `, `APIs +\d+, none down`,
		`Busiest +v1\.\S* +\d+ requests?`, `Healthy +yes`,
	} {
		if !regexp.MustCompile(`(?m)^` + want).MatchString(out) {
			t.Errorf("%q is not in:\n%s", want, out)
		}
	}
	if strings.Contains(out, "\x1b") || strings.Count(out, "\n") > 40 {
		t.Errorf("not plain text on one screen:\n%s", out)
	}
	s, err := statusOf(t, at)
	if err != nil || !s.Healthy || len(s.Installation.Etcd.Elections) != 5 || len(s.Folder.Processes) != 5 || len(s.Unread) != 0 {
		t.Errorf("status is %+v, %v", s, err)
	}

	leases := up.MustKubectl(t, "get", "leases", "-n", "kube-system", "-L", "apiserver.kubernetes.io/identity")
	if strings.Count(leases, "\napiserver-") != 3 || strings.Count(leases, " portico-c") != 2 || !strings.Contains(leases, " portico-gateway") {
		t.Errorf("leases of processes:\n%s", leases)
	}

	ctx, cancel := context.WithCancel(t.Context())
	pictures := &pictures{cancel: cancel}
	root := newRoot()
	root.SetArgs([]string{"status", at, "--watch"})
	root.SetOut(pictures)
	if err := root.ExecuteContext(ctx); err != nil || pictures.n != 2 {
		t.Errorf("--watch showed it %d times, and ended with %v", pictures.n, err)
	}

	if err := syscall.Kill(up.Child(t, "crd"), syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	e2e.Eventually(t, "the CRD server was started again", func() error {
		s, err := statusOf(t, at)
		for _, p := range s.Folder.Processes {
			if p.Name == "crd" && p.Restarts == 1 {
				return err
			}
		}
		return fmt.Errorf("processes are %+v", s.Folder.Processes)
	})

	// What does not answer is named, and the rest is shown from memory.
	for child, seen := range map[string]func(*status.Status) bool{
		"core": func(s *status.Status) bool { return strings.Contains(fmt.Sprint(s.Problems), "core server: ") },
		"etcd": func(s *status.Status) bool {
			return !s.Gateway.Ready && s.APIs != nil && s.Installation.Etcd.Members[0].Error != ""
		},
	} {
		pid := up.Child(t, child)
		if err := syscall.Kill(pid, syscall.SIGSTOP); err != nil {
			t.Fatal(err)
		}
		e2e.Eventually(t, child+" that is stopped is seen", func() error {
			s, err := statusOf(t, at)
			if err == nil || !seen(s) {
				return fmt.Errorf("%v, %+v", err, s)
			}
			return nil
		})
		if err := syscall.Kill(pid, syscall.SIGCONT); err != nil {
			t.Fatal(err)
		}
	}

	down := filepath.Join(t.TempDir(), "down.yaml")
	e2e.WriteFile(t, down, `{apiVersion: apiregistration.k8s.io/v1, kind: APIService, metadata: {name: v1.status.example.com}, spec: {group: status.example.com,
  version: v1, groupPriorityMinimum: 100, versionPriority: 100, insecureSkipTLSVerify: true, service: {namespace: nowhere, name: api}}}`)
	up.MustKubectl(t, "apply", "-f", down)
	e2e.Eventually(t, "the API is shown as down", func() error {
		out, err := portico(t, "status", at)
		if err == nil || !strings.Contains(err.Error(), "not healthy: 1 of ") || !strings.Contains(out, "v1.status.example.com: ServiceNotFound: ") {
			return fmt.Errorf("%v\n%s", err, out)
		}
		return nil
	})

	user := filepath.Join(t.TempDir(), "user")
	if _, err := portico(t, "certs", "kubeconfig", "--ca-dir="+filepath.Join(up.Dir, "pki"), "--server="+up.Endpoint, "--user=reader", "--out="+user); err != nil {
		t.Fatal(err)
	}
	out, err = portico(t, "status", "--kubeconfig="+user)
	if err == nil || !strings.Contains(out, "Ready        yes") || !strings.Contains(out, "--verb=get --non-resource-url=/metrics") || !strings.Contains(out, "--verb=list --resource=apiservices.apiregistration.k8s.io") {
		t.Errorf("a user without rights sees, with %v:\n%s", err, out)
	}

	if err := up.Stop(); err != nil {
		t.Fatal(err)
	}
	s, err = statusOf(t, at)
	if err == nil || s.Healthy || strings.Contains(err.Error(), "\n") || !strings.Contains(err.Error(), "connection refused") || s.Folder.Holder != 0 {
		t.Errorf("after the end: %v, %+v", err, s)
	}
	if lines := s.Folder.LastLines; len(lines) == 0 || !strings.Contains(strings.Join(lines, "\n"), "up: time=") {
		t.Errorf("the last lines are %q", lines)
	}
}

// What status cannot do is one line that names the flag.
func TestStatusRefuses(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "file")
	e2e.WriteFile(t, file, "")
	for args, want := range map[string]string{
		"-o xml":                           "-o xml: must be wide, json or yaml",
		"--watch -o json":                  "--watch is for the screen",
		"--data-dir=" + file + "x":         "--data-dir: ",
		"--data-dir=" + file:               "--data-dir " + file + ": is not a folder",
		"--data-dir=" + filepath.Dir(file): "read kubeconfig: ",
		"x":                                "takes no arguments",
	} {
		out, err := portico(t, append([]string{"status"}, strings.Fields(args)...)...)
		if err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "\n") {
			t.Errorf("%s: %v\n%s", args, err, out)
		}
	}
}
