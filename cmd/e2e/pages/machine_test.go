//go:build boot

package pages

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"portico/cmd/e2e"
	"portico/cmd/internal/testtools"
)

// packages are those of Debian that the machine has besides the essential ones.
const packages = "systemd,systemd-sysv,dbus,sudo,procps,docker.io,docker-cli,docker-compose"

// limit bounds a command of a page.
const limit = 5 * time.Minute

// machine is a Debian system that runs, with the account newcomer, which may use sudo and docker.
type machine struct {
	root    string // its folder here
	systemd string // its process 1, by the id here
	// shell is run before each command of a page: the folder and the variables of the reader.
	shell string
}

// newMachine makes a system and boots it. It is gone at the end of the test.
func newMachine(t *testing.T) *machine {
	t.Helper()
	m := &machine{root: filepath.Join(t.TempDir(), "root")}
	start := time.Now()
	if out, err := exec.Command("mmdebstrap", "--variant=minbase", "--include="+packages, "trixie", m.root).CombinedOutput(); err != nil {
		t.Fatalf("mmdebstrap, of Debian's package: %v\n%s", err, out)
	}
	t.Logf("made in %v", time.Since(start).Round(time.Second))
	m.write(t, "/etc/hostname", "machine\n", 0o644)
	m.write(t, "/etc/hosts", "127.0.0.1 localhost machine portico.example.com etcd-0.example.com core-0.example.com crd-0.example.com\n", 0o644)
	m.write(t, "/etc/sudoers.d/newcomer", "newcomer ALL=(ALL) NOPASSWD: ALL\n", 0o440)
	useradd := exec.Command("chroot", m.root, "useradd", "--create-home", "--groups=sudo,docker", "--shell=/bin/bash", "newcomer")
	if out, err := useradd.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	// The kernel of this machine is not the system's to change.
	if err := os.Symlink("/dev/null", filepath.Join(m.root, "etc/systemd/system/systemd-modules-load.service")); err != nil {
		t.Fatal(err)
	}
	for program, path := range map[string]string{testtools.Kubectl: "/usr/local/bin/kubectl", testtools.Etcd: "/usr/local/bin/etcd", testtools.Portico: "/home/newcomer/portico"} {
		data, err := os.ReadFile(e2e.Program(t, program))
		if err != nil {
			t.Fatal(err)
		}
		m.write(t, path, string(data), 0o755)
	}
	m.boot(t)
	return m
}

// boot starts systemd and waits until the system runs.
func (m *machine) boot(t *testing.T) {
	t.Helper()
	group := filepath.Join(cgroups(t), fmt.Sprintf("portico-pages-%d", os.Getpid()))
	cmd := exec.Command("sh", "testdata/boot.sh", m.root, group)
	cmd.Stderr = os.Stderr
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	start := time.Now()
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = in.Close()
		if err := cmd.Wait(); err != nil {
			t.Error(err)
		}
	})
	parent, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		t.Fatal(err)
	}
	parent = strings.TrimSpace(parent)
	e2e.Eventually(t, "systemd", func() error {
		children, err := os.ReadFile("/proc/" + parent + "/task/" + parent + "/children")
		if err != nil {
			return err
		}
		m.systemd = strings.TrimSpace(string(children))
		state, err := m.inside(t.Context(), "systemctl", "is-system-running").CombinedOutput()
		if err != nil || strings.TrimSpace(string(state)) != "running" {
			failed, _ := m.inside(t.Context(), "systemctl", "--failed").CombinedOutput()
			return fmt.Errorf("%w: %s%s", err, state, failed)
		}
		return nil
	})
	t.Logf("booted in %v", time.Since(start).Round(100*time.Millisecond))
}

// cgroups returns where the unified hierarchy of control groups is mounted.
func cgroups(t *testing.T) string {
	t.Helper()
	mounts, err := os.ReadFile("/proc/self/mounts")
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(mounts)) {
		if fields := strings.Fields(line); fields[2] == "cgroup2" {
			return fields[1]
		}
	}
	t.Fatal("cgroup2 is mounted nowhere")
	return ""
}

// inside returns a command that root runs in the machine.
func (m *machine) inside(ctx context.Context, args ...string) *exec.Cmd {
	return exec.CommandContext(ctx, "nsenter", append([]string{"--target=" + m.systemd, "--all", "--"}, args...)...)
}

// try runs a line of shell as newcomer, in a new login, and returns what it prints.
func (m *machine) try(t *testing.T, line string) (string, error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), limit)
	defer cancel()
	cmd := m.inside(ctx, "su", "--login", "newcomer", "--command", m.shell+line)
	cmd.WaitDelay = time.Second
	out, err := cmd.CombinedOutput()
	if err != nil {
		err = fmt.Errorf("%s: %w\n%s", line, err, out)
	}
	return strings.TrimSpace(string(out)), err
}

// run is try for a line that succeeds.
func (m *machine) run(t *testing.T, line string) string {
	t.Helper()
	out, err := m.try(t, line)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// fails runs a line that must not succeed.
func (m *machine) fails(t *testing.T, line, because string) {
	t.Helper()
	if out, err := m.try(t, line); err == nil || !strings.Contains(out, because) {
		t.Errorf("%s: %v, want %s\n%s", line, err, because, out)
	}
}

// await runs a line until it succeeds and prints a text.
func (m *machine) await(t *testing.T, line, text string) {
	t.Helper()
	e2e.Eventually(t, line, func() error {
		out, err := m.try(t, line)
		if err == nil && !strings.Contains(out, text) {
			err = fmt.Errorf("want %s: %s", text, out)
		}
		return err
	})
}

// write writes a file of the machine. What is in the home of newcomer belongs to newcomer.
func (m *machine) write(t *testing.T, path, text string, mode os.FileMode) {
	t.Helper()
	file, err := os.OpenFile(filepath.Join(m.root, path), os.O_CREATE|os.O_TRUNC|os.O_WRONLY, mode)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := io.WriteString(file, text); err != nil {
		t.Fatal(err)
	}
	if err := file.Chmod(mode); err != nil {
		t.Fatal(err)
	}
	if strings.HasPrefix(path, "/home/newcomer/") {
		if err := file.Chown(1000, 1000); err != nil {
			t.Fatal(err)
		}
	}
	if err := file.Close(); err != nil {
		t.Fatal(err)
	}
}
