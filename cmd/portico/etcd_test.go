package main

import (
	"bytes"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"portico/cmd/e2e"
	"portico/cmd/internal/testtools"
)

// An etcd that dies takes nothing with it: the gateway serves what it has in memory,
// and writes pass again once etcd was started again.
func TestKilledEtcd(t *testing.T) {
	t.Parallel()
	up := e2e.Install(t, t.TempDir())
	e2e.Create(t, up, "before")
	client := e2e.HTTPClient(t, up.Config(t))
	gateway, etcd := up.Child(t, "gateway"), up.Child(t, "etcd")
	if err := syscall.Kill(etcd, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{"/apis", "/api/v1", "/livez", "/api/v1/namespaces/default/configmaps/before?resourceVersion=0"} {
		if code, body := e2e.Get(t, client, up.Endpoint+path, ""); code != http.StatusOK {
			t.Errorf("%s without etcd: %d %s", path, code, body)
		}
	}
	if err := up.Await("etcd is ready again"); err != nil {
		t.Fatal(err)
	}
	e2e.Eventually(t, "a write passes", func() error {
		code, answer := up.Do(t, http.MethodPost, "/api/v1/namespaces/default/configmaps", `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"after"}}`)
		if code != http.StatusCreated && code != http.StatusConflict {
			return fmt.Errorf("%d %s", code, answer)
		}
		return nil
	})
	e2e.Expect(t, up, "before")
	if now := up.Child(t, "gateway"); now != gateway {
		t.Errorf("the gateway was started again: process %d, %d before", now, gateway)
	}
}

// Damaged data of etcd ends the start with one sentence, which names the folder,
// and without a stack.
func TestDamagedEtcdData(t *testing.T) {
	t.Parallel()
	e2e.NeedsInstallation(t)
	dir := t.TempDir()
	up, err := e2e.Launch(dir)
	if err != nil {
		t.Fatal(err)
	}
	if err := up.Stop(); err != nil {
		t.Fatal(err)
	}
	db := filepath.Join(dir, "etcd", "member", "snap", "db")
	whole, err := os.ReadFile(db)
	if err != nil {
		t.Fatal(err)
	}
	for _, size := range []int{100, 8 << 10, 20 << 10, 40 << 10} {
		if err := os.WriteFile(db, whole[:size], 0o600); err != nil {
			t.Fatal(err)
		}
		var stdout, stderr bytes.Buffer
		cmd := exec.Command(e2e.Program(t, testtools.Portico), "up", "--listen=127.0.0.1:0", "--data-dir="+dir)
		cmd.Stdout, cmd.Stderr = &stdout, &stderr
		if err := cmd.Run(); err == nil {
			t.Fatalf("%d bytes: up ran on damaged data:\n%s", size, &stdout)
		}
		t.Logf("%d bytes: %s", size, &stderr)
		lines := strings.Split(strings.TrimSpace(stderr.String()), "\n")
		last := lines[len(lines)-1]
		if !strings.HasPrefix(last, "portico: start etcd: ") || !strings.Contains(last, "restore the folder "+filepath.Join(dir, "etcd")) {
			t.Errorf("%d bytes: the last line is %q", size, last)
		}
		if len(lines) != 2 || strings.Contains(stderr.String()+stdout.String(), "goroutine") {
			t.Errorf("%d bytes: more than a few lines:\n%s%s", size, &stdout, &stderr)
		}
	}
}
