//go:build strangers

package strangers

import (
	"context"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"portico/cmd/e2e"
	"portico/internal/testing/await"
)

func TestMain(m *testing.M) { os.Exit(e2e.Main(m)) }

// source returns a writable copy of the files of a module, as MODULE@VERSION. It contains
// the module's manifests and charts, too.
func source(t *testing.T, module string) string {
	t.Helper()
	out, err := exec.CommandContext(t.Context(), "go", "mod", "download", "-json", module).Output()
	var downloaded struct{ Dir, Error string }
	if jsonErr := json.Unmarshal(out, &downloaded); err != nil || jsonErr != nil {
		t.Fatalf("download %s: %v, %v, %s", module, err, jsonErr, downloaded.Error)
	}
	dir := t.TempDir()
	copyModule(t, downloaded.Dir, dir)
	return dir
}

// copyModule copies the files of a module, which are read-only in the module cache, and makes them writable.
func copyModule(t *testing.T, from, to string) {
	t.Helper()
	if err := os.CopyFS(to, os.DirFS(from)); err != nil {
		t.Fatal(err)
	}
	run(t, to, nil, "chmod", "-R", "u+w", ".")
}

// build builds a package of the module in dir, and returns the program's path.
func build(t *testing.T, dir, what string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), filepath.Base(what))
	run(t, dir, []string{"GOFLAGS=-mod=mod", "GOWORK=off"}, "go", "build", "-trimpath", "-ldflags=-s -w", "-o", path, what)
	return path
}

// run runs a command in a folder, with variables of the environment as name=value, and
// returns its output. It must succeed.
func run(t *testing.T, dir string, env []string, name string, args ...string) string {
	t.Helper()
	out, err := try(t, dir, env, name, args...)
	if err != nil {
		t.Fatalf("%s %s: %v\n%s", name, strings.Join(args, " "), err, out)
	}
	return out
}

// try is run for a command that may fail.
func try(t *testing.T, dir string, env []string, name string, args ...string) (string, error) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), name, args...)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), env...)
	out, err := cmd.CombinedOutput()
	return string(out), err
}

// start starts a program that runs until the end of the test, and returns the file of its
// output. The end of the file is logged if the test fails.
func start(t *testing.T, env []string, name string, args ...string) (log string) {
	t.Helper()
	log, _ = startUntil(t, env, name, args...)
	return log
}

// startUntil is start for a program that may be stopped before.
func startUntil(t *testing.T, env []string, name string, args ...string) (log string, stop func()) {
	t.Helper()
	log = filepath.Join(t.TempDir(), filepath.Base(name)+".log")
	file, err := os.Create(log)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Env = append(os.Environ(), env...)
	cmd.Stdout, cmd.Stderr = file, file
	cmd.Cancel = func() error { return cmd.Process.Signal(os.Interrupt) }
	cmd.WaitDelay = await.Patience()
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	stop = sync.OnceFunc(func() {
		cancel()
		cmd.Wait()
		file.Close()
	})
	t.Cleanup(func() {
		stop()
		if !t.Failed() {
			return
		}
		if out, err := os.ReadFile(log); err == nil {
			t.Logf("end of the output of %s:\n%s", name, out[max(0, len(out)-8192):])
		}
	})
	return log, stop
}

// kubeconfig returns the variable that leads clients to an installation.
func kubeconfig(up *e2e.Installation) string {
	return "KUBECONFIG=" + up.Kubeconfig
}
