package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"portico/cmd/e2e"
	"portico/cmd/internal/testtools"
	"portico/internal/testing/await"
)

// A SIGTERM during the start ends the processes in order, and the next start succeeds.
func TestStopWhileStarting(t *testing.T) {
	t.Parallel()
	e2e.NeedsInstallation(t)
	dir := t.TempDir()
	for _, said := range []string{"starting etcd", "starting core server"} {
		up, err := testtools.Start(dir)
		if err != nil {
			t.Fatal(err)
		}
		err = up.Await(said)
		if stopErr := up.Stop(); stopErr != nil || err != nil {
			t.Errorf("stopped after %q: %v %v", said, err, stopErr)
		}
	}
	e2e.Install(t, dir)
}

// With a data folder or a port in use, or a folder that is not writable, `up` starts nothing,
// prints one line with a remedy, and exits with 1.
func TestUpRefuses(t *testing.T) {
	t.Parallel()
	up := e2e.SharedInstallation(t)
	own := t.TempDir()
	plain := httptest.NewServer(http.NotFoundHandler())
	t.Cleanup(plain.Close)
	foreign := own + "/own-kubeconfig"
	e2e.WriteFile(t, foreign, "apiVersion: v1\nkind: Config\n")
	for _, tc := range []struct {
		name string
		args []string
		want []string
	}{
		{"data in use", []string{"--listen=127.0.0.1:0", "--data-dir=" + up.Dir}, []string{up.Dir, fmt.Sprintf("in use by process %d", up.Cmd.Process.Pid), "--data-dir"}},
		{"busy port", []string{"--listen=" + strings.TrimPrefix(up.Endpoint, "https://"), "--data-dir=" + own + "/a"}, []string{"in use by another process", "--listen"}},
		{"no address", []string{"--listen=nonsense", "--data-dir=" + own + "/b"}, []string{"host:port", "--listen"}},
		{"not a folder", []string{"--listen=127.0.0.1:0", "--data-dir=" + foreign + "/data"}, []string{"not a directory", "--data-dir"}},
		{"read-only", []string{"--listen=127.0.0.1:0", "--data-dir=/proc/portico"}, []string{"/proc/portico", "--data-dir"}},
		{"another program's kubeconfig", []string{"--listen=127.0.0.1:0", "--data-dir=" + own + "/c", "--kubeconfig=" + foreign}, []string{foreign, "--kubeconfig"}},
		{"no audit policy", []string{"--listen=127.0.0.1:0", "--data-dir=" + own + "/d", "--audit-policy-file=" + own + "/none.yaml", "--audit-log-path=" + own + "/audit.log"},
			[]string{own + "/none.yaml"}},
		{"etcd without TLS", []string{"--listen=127.0.0.1:0", "--data-dir=" + own + "/e", "--etcd-servers=https://" + plain.Listener.Addr().String()},
			[]string{"--etcd-servers: https://" + plain.Listener.Addr().String(), "does not speak TLS"}},
		{"no etcd", []string{"--listen=127.0.0.1:0", "--data-dir=" + own + "/f", "--etcd-servers=" + plain.URL}, []string{plain.URL, "the server is no etcd"}},
		{"unknown flag", []string{"--port=1"}, []string{"unknown flag: --port"}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			program := e2e.Program(t, testtools.Portico)
			ctx, cancel := context.WithTimeout(t.Context(), await.Patience())
			defer cancel()
			cmd := exec.CommandContext(ctx, program, append([]string{"up"}, tc.args...)...)
			var stdout, stderr strings.Builder
			cmd.Stdout, cmd.Stderr = &stdout, &stderr
			_ = cmd.Run()
			if strings.Contains(stdout.String(), "starting") {
				t.Errorf("something was started first:\n%s", &stdout)
			}
			said := stderr.String()
			if cmd.ProcessState.ExitCode() != 1 || strings.Count(said, "\n") != 1 {
				t.Errorf("exit code %d, want 1 and one line:\n%s", cmd.ProcessState.ExitCode(), said)
			}
			for _, want := range tc.want {
				if !strings.Contains(said, want) {
					t.Errorf("%q is not in: %s", want, said)
				}
			}
		})
	}
}

// An etcd of the user's that does not answer ends `up` with its URL, why, and what to do, after a line of what it waits for;
// the folder of data was new and is not left behind.
func TestUpSaysWhyEtcdIsAway(t *testing.T) {
	t.Parallel()
	e2e.NeedsInstallation(t)
	dir, address := filepath.Join(t.TempDir(), "data"), "127.0.0.1:"+e2e.FreePort(t, "127.0.0.1")
	ctx, cancel := context.WithTimeout(t.Context(), await.Patience())
	defer cancel()
	out, err := exec.CommandContext(ctx, e2e.Program(t, testtools.Portico), "up", "--listen=127.0.0.1:0", "--data-dir="+dir, "--etcd-servers=http://"+address).CombinedOutput()
	cause := "http://" + address + ": dial tcp " + address + ": connect: connection refused: is etcd running there?"
	lines := strings.Split(strings.TrimSpace(string(out)), "\n")
	if err == nil || len(lines) != 2 || !strings.HasSuffix(lines[0], " s: waiting for etcd: "+cause) ||
		lines[1] != "portico: --etcd-servers: no etcd has answered within 10s: "+cause+"; start it, or name another one" {
		t.Errorf("%v:\n%s", err, out)
	}
	if _, err := os.Stat(dir); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the folder is left: %v", err)
	}
}
