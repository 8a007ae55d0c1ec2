package socket

import (
	"crypto/tls"
	"errors"
	"io"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strings"
	"syscall"
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

// Listeners that share a port get connections in turns of the kernel's; one that does not share it is refused. SO_REUSEADDR,
// kube-apiserver's --permit-address-sharing, is set on every listener.
func TestSharedPort(t *testing.T) {
	t.Parallel()
	first, err := ListenTCP("127.0.0.1:0", true)
	if err != nil {
		t.Fatal(err)
	}
	address := first.Addr().String()
	second, err := ListenTCP(address, true)
	if err != nil {
		t.Fatal(err)
	}
	if alone, err := ListenTCP(address, false); !errors.Is(err, syscall.EADDRINUSE) {
		alone.Close()
		t.Errorf("a listener that does not share the port: %v", err)
	}
	accepted := make(chan int)
	for i, bound := range []net.Listener{first, second} {
		go func() {
			for {
				conn, err := bound.Accept()
				if err != nil {
					return
				}
				_ = conn.Close()
				accepted <- i
			}
		}()
	}
	// With 200 connections the one or the other gets none at a chance of 2 to the power of -199.
	var got [2]int
	for range 200 {
		conn, err := net.Dial("tcp", address)
		if err != nil {
			t.Fatal(err)
		}
		got[<-accepted]++
		_ = conn.Close()
	}
	if got[0] == 0 || got[1] == 0 {
		t.Errorf("connections: %v", got)
	}
	_ = errors.Join(first.Close(), second.Close())

	alone, err := ListenTCP(address, false)
	if err != nil {
		t.Fatal(err)
	}
	defer alone.Close()
	raw, err := alone.(*net.TCPListener).SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	var reuse int
	if err := errors.Join(raw.Control(func(fd uintptr) {
		reuse, err = syscall.GetsockoptInt(int(fd), syscall.SOL_SOCKET, syscall.SO_REUSEADDR)
	}), err); err != nil || reuse == 0 {
		t.Errorf("SO_REUSEADDR is %d: %v", reuse, err)
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
