package main

import (
	"bufio"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"portico/cmd/e2e"
	"portico/cmd/e2e/etcdprocess"
	"portico/cmd/internal/testtools"
	"portico/internal/testing/await"
)

// directives are those of the units, which systemd 250 knows.
const directives = ` Description Wants After Type ExecStart ExecReload User Group StateDirectory StateDirectoryMode RuntimeDirectory LogsDirectory
 LogsDirectoryMode ConfigurationDirectory LoadCredential Restart RestartSec TimeoutStartSec TimeoutStopSec WatchdogSec KillMode OOMPolicy LimitNOFILE
 LimitCORE NoNewPrivileges CapabilityBoundingSet AmbientCapabilities ProtectSystem ProtectHome ProtectClock ProtectControlGroups ProtectHostname
 ProtectKernelLogs ProtectKernelModules ProtectKernelTunables ProtectProc PrivateTmp PrivateDevices DevicePolicy RemoveIPC KeyringMode LockPersonality
 MemoryDenyWriteExecute RestrictAddressFamilies RestrictNamespaces RestrictRealtime RestrictSUIDSGID SystemCallArchitectures SystemCallFilter
 SystemCallErrorNumber UMask WantedBy ListenStream FileDescriptorName Service Backlog `

// readUnit returns the values of each directive of a unit.
func readUnit(t *testing.T, path string) map[string][]string {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	unit := map[string][]string{}
	lines := bufio.NewScanner(strings.NewReader(strings.ReplaceAll(string(text), "\\\n", "")))
	for lines.Scan() {
		line := lines.Text()
		if line == "" || line[0] == '#' || line[0] == '[' {
			continue
		}
		name, value, found := strings.Cut(line, "=")
		if !found || !strings.Contains(strings.ReplaceAll(directives, "\n", " "), " "+name+" ") {
			t.Errorf("%s: unknown: %s", path, line)
		}
		unit[name] = append(unit[name], value)
	}
	return unit
}

// Directives of the units exist; what they start is a command with its flags; a credential of
// each %d is loaded, of a file that `portico certs installation` makes; systemd waits longer than the
// process takes; and the socket units start services that exist.
func TestSystemdUnits(t *testing.T) {
	t.Parallel()
	pki := t.TempDir()
	if _, err := command(t, strings.Fields("certs installation --server=https://127.0.0.1:6443 --gateway-host=a --core-host=b --crd-host=c --etcd-host=d --dir="+pki)...); err != nil {
		t.Fatal(err)
	}
	names, err := filepath.Glob(filepath.Join(e2e.Repository(), "deploy/systemd/*.s*"))
	if err != nil || len(names) != 6 {
		t.Fatal(names, err)
	}
	for _, name := range names {
		unit := readUnit(t, name)
		if strings.HasSuffix(name, ".socket") {
			if service := unit["Service"][0]; !slices.Contains(names, filepath.Join(filepath.Dir(name), service)) {
				t.Errorf("%s starts %s", name, service)
			}
			continue
		}
		line := unit["ExecStart"][0]
		if err := takes(strings.TrimPrefix(line, "/usr/local/bin/")); err != nil || unit["Type"][0] != "notify" || unit["User"][0] != "portico" {
			t.Errorf("%s: %v", name, err)
		}
		loaded := map[string]bool{}
		for _, credential := range unit["LoadCredential"] {
			id, path, _ := strings.Cut(credential, ":")
			loaded[id] = true
			if _, err := os.Stat(strings.Replace(path, "/etc/portico/pki", pki, 1)); err != nil || !strings.Contains(line, "=%d/"+id) {
				t.Errorf("%s: %s: %v", name, credential, err)
			}
		}
		for _, m := range regexp.MustCompile(`%d/(\S+)`).FindAllStringSubmatch(line, -1) {
			if !loaded[m[1]] {
				t.Errorf("%s: no credential %s", name, m[1])
			}
		}
		if stop, err := time.ParseDuration(unit["TimeoutStopSec"][0]); err != nil || stop < 70*time.Second {
			t.Errorf("%s: TimeoutStopSec is %v, %v", name, stop, err)
		}
	}
	for _, name := range []string{"portico.yaml", "portico-processes.yaml"} {
		if _, err := command(t, "config", "validate", filepath.Join(e2e.Repository(), "deploy/systemd", name)); err != nil {
			t.Error(err)
		}
	}
}

// host is a machine of its own for the units: a root with what `portico install` writes.
type host struct {
	root, program string
}

// newHost installs roles.
func newHost(t *testing.T, roles ...string) *host {
	t.Helper()
	h := &host{root: t.TempDir(), program: e2e.Program(t, testtools.Portico)}
	program := filepath.Join(h.root, "usr/local/bin/portico")
	if err := os.MkdirAll(filepath.Dir(program), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(h.program, program); err != nil {
		t.Fatal(err)
	}
	for _, role := range roles {
		if _, err := command(t, "install", "--systemd", "--root="+h.root, "--role="+role); err != nil {
			t.Fatal(err)
		}
	}
	return h
}

// start runs what a unit starts, as systemd does but for the sandbox, and returns the socket to
// which it speaks. It is stopped at the end of the test.
func (h *host) start(t *testing.T, name string) *notified {
	t.Helper()
	unit := readUnit(t, filepath.Join(h.root, "etc/systemd/system", name))
	credentials := t.TempDir()
	for _, credential := range unit["LoadCredential"] {
		id, path, _ := strings.Cut(credential, ":")
		data, err := os.ReadFile(filepath.Join(h.root, path))
		if err != nil {
			t.Fatal(err)
		}
		e2e.WriteFile(t, filepath.Join(credentials, id), string(data))
	}
	line := strings.NewReplacer("%d", credentials, "%S", filepath.Join(h.root, "var/lib"), "=/etc/", "="+h.root+"/etc/", "=/var/", "="+h.root+"/var/").Replace(unit["ExecStart"][0])
	args := strings.Fields(line)
	if args[0] != "/usr/local/bin/portico" {
		t.Fatalf("%s starts %s", name, args[0])
	}
	n := listenForNotices(t)
	cmd := exec.Command(h.program, args[1:]...)
	cmd.Env = append(os.Environ(), "NOTIFY_SOCKET="+n.path, "WATCHDOG_USEC=1000000")
	out := testtools.NewOutput()
	cmd.Stdout, cmd.Stderr = out, out
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := cmd.Process.Signal(syscall.SIGTERM); err != nil {
			t.Error(err)
		}
		if err := cmd.Wait(); err != nil || t.Failed() {
			t.Errorf("%s: %v\n%s", name, err, out)
		}
	})
	return n
}

// configure replaces texts in the configuration file.
func (h *host) configure(t *testing.T, oldnew ...string) {
	t.Helper()
	path := filepath.Join(h.root, "etc/portico/portico.yaml")
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	e2e.WriteFile(t, path, strings.NewReplacer(oldnew...).Replace(string(text)))
}

// What `portico install` writes for each role starts, is ready, gives signs of life, and stops in order.
func TestInstalledUnitsRun(t *testing.T) {
	t.Parallel()
	t.Run("up", func(t *testing.T) {
		t.Parallel()
		h := newHost(t, "up")
		h.configure(t, "127.0.0.1:6443", "127.0.0.1:0")
		n := h.start(t, "portico.service")
		n.await(t, "READY=1")
		n.await(t, "WATCHDOG=1")
	})
	t.Run("processes", func(t *testing.T) {
		t.Parallel()
		h := newHost(t, "gateway", "core", "crd")
		var replace []string
		for _, name := range []string{"portico.example.com:6443 0.0.0.0:6443", "core-0.example.com:7443 0.0.0.0:7443", "crd-0.example.com:7444 0.0.0.0:7444", "127.0.0.1:8080", "127.0.0.1:8081", "127.0.0.1:8082"} {
			address := "127.0.0.1:" + e2e.FreePort(t, "127.0.0.1")
			for name := range strings.FieldsSeq(name) {
				replace = append(replace, name, address)
			}
		}
		h.configure(t, append(replace, "https://etcd-0.example.com:2379", etcdprocess.Start(t).Endpoint(), "shutdown-delay-duration: 5s", "shutdown-delay-duration: 0s")...)
		if _, err := command(t, strings.Fields("certs installation --server=https://127.0.0.1:6443 --gateway-host=127.0.0.1 --core-host=127.0.0.1 --crd-host=127.0.0.1 --etcd-host=127.0.0.1 --dir="+
			filepath.Join(h.root, "etc/portico/pki"))...); err != nil {
			t.Fatal(err)
		}
		var all []*notified
		for _, role := range []string{"gateway", "core", "crd"} {
			all = append(all, h.start(t, "portico-"+role+".service"))
		}
		for _, n := range all {
			n.await(t, "READY=1")
			n.await(t, "WATCHDOG=1")
		}
	})
}

// notified is the socket of $NOTIFY_SOCKET.
type notified struct {
	path string
	conn *net.UnixConn
}

func listenForNotices(t *testing.T) *notified {
	t.Helper()
	path := filepath.Join(t.TempDir(), "notify")
	conn, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Net: "unixgram", Name: path})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	return &notified{path, conn}
}

// await reads until a message begins with text, and returns those before it.
func (n *notified) await(t *testing.T, text string) (before []string) {
	t.Helper()
	if err := n.conn.SetReadDeadline(time.Now().Add(await.Patience())); err != nil {
		t.Fatal(err)
	}
	buffer := make([]byte, 4096)
	for {
		size, err := n.conn.Read(buffer)
		if err != nil {
			t.Fatal(fmt.Errorf("wait for %s: %w, got %q", text, err, before))
		}
		if strings.HasPrefix(string(buffer[:size]), text) {
			return before
		}
		before = append(before, string(buffer[:size]))
	}
}
