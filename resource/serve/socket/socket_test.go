package socket

import (
	"crypto/tls"
	"io"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"portico/resource/authn"
)

func quiet() *slog.Logger { return slog.New(slog.DiscardHandler) }

func TestConnectionsOfOtherUsersAreClosed(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "s.sock")
	bound, err := Listen(path, true, quiet())
	if err != nil {
		t.Fatal(err)
	}
	other := os.Geteuid() + 1
	bound.(*listener).only = &other
	accepted := make(chan error, 1)
	go func() { _, err := bound.Accept(); accepted <- err }()
	conn, err := net.Dial("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := conn.Read(make([]byte, 1)); err != io.EOF {
		t.Errorf("the connection is open: %v", err)
	}
	_ = bound.Close()
	if err := <-accepted; err == nil {
		t.Error("the connection was accepted")
	}
}

// A socket that no process listens on is replaced; one in use and other files are not.
func TestExistingFiles(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	stale := filepath.Join(dir, "stale.sock")
	old, err := net.ListenUnix("unix", &net.UnixAddr{Name: stale})
	if err != nil {
		t.Fatal(err)
	}
	old.SetUnlinkOnClose(false)
	_ = old.Close()
	first, err := Listen(stale, false, quiet())
	if err != nil {
		t.Fatalf("a stale socket: %v", err)
	}
	defer first.Close()
	if _, err = Listen(stale, false, quiet()); err == nil || !strings.Contains(err.Error(), "another process listens") {
		t.Errorf("a socket in use: %v", err)
	}
	file := filepath.Join(dir, "file")
	if err := os.WriteFile(file, []byte("precious"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err = Listen(file, false, quiet()); err == nil || !strings.Contains(err.Error(), "not a socket") {
		t.Errorf("a file: %v", err)
	}
	if data, err := os.ReadFile(file); err != nil || string(data) != "precious" {
		t.Error("the file is gone")
	}
}

// The uid of a peer is known below TLS as well.
func TestConnContextBelowTLS(t *testing.T) {
	t.Parallel()
	conn := tls.Server(&peerConn{uid: 7}, nil)
	if uid, ok := authn.PeerUIDFrom(ConnContext(t.Context(), conn)); uid != 7 || !ok {
		t.Error(uid, ok)
	}
}
