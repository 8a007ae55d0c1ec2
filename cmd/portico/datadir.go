package main

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"syscall"
)

// maxSocketPath is the longest path of a unix socket that every system takes;
// the longest name in the folder is etcd-peer.sock.
const maxSocketPath = 100

// dataDir is the folder of one installation, locked by this process.
type dataDir struct {
	path    string
	sockets string // a short, private folder
	lock    *os.File
}

// defaultDataDir is the user's data folder by the XDG base directory
// specification.
func defaultDataDir() string {
	base := os.Getenv("XDG_DATA_HOME")
	if base == "" {
		home, err := os.UserHomeDir()
		if err != nil {
			return "portico-data"
		}
		base = filepath.Join(home, ".local", "share")
	}
	return filepath.Join(base, "portico")
}

// openDataDir makes and locks the folder.
func openDataDir(path string) (*dataDir, error) {
	path, err := filepath.Abs(path)
	if err != nil {
		return nil, fmt.Errorf("find data folder: %w", err)
	}
	if err := os.MkdirAll(path, 0o700); err != nil {
		return nil, fmt.Errorf("cannot create the data folder %s (%w); choose another with --data-dir", path, reason(err))
	}
	lock, err := os.OpenFile(filepath.Join(path, "lock"), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, fmt.Errorf("cannot write to the data folder %s (%w); choose another with --data-dir", path, reason(err))
	}
	if err := syscall.Flock(int(lock.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		lock.Close()
		return nil, fmt.Errorf("another portico up is using the data folder %s; stop it, or choose another with --data-dir", path)
	}
	d := &dataDir{path: path, lock: lock}
	if d.sockets, err = socketDir(path); err != nil {
		lock.Close()
		return nil, err
	}
	return d, nil
}

// socketDir returns a private folder for unix sockets: in the data folder, or
// where that is too deep, among the temporary files.
func socketDir(data string) (string, error) {
	dir := filepath.Join(data, "run")
	if len(filepath.Join(dir, "etcd-peer.sock")) > maxSocketPath {
		sum := sha256.Sum256([]byte(data))
		base := os.Getenv("XDG_RUNTIME_DIR")
		if base == "" {
			base = os.TempDir()
		}
		dir = filepath.Join(base, "portico-"+hex.EncodeToString(sum[:6]))
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return "", fmt.Errorf("cannot create the socket folder %s (%w)", dir, reason(err))
	}
	info, err := os.Lstat(dir)
	if err != nil {
		return "", fmt.Errorf("read socket folder: %w", err)
	}
	stat, ok := info.Sys().(*syscall.Stat_t)
	if !info.IsDir() || ok && int(stat.Uid) != os.Geteuid() {
		return "", fmt.Errorf("the socket folder %s belongs to somebody else; remove it", dir)
	}
	if err := os.Chmod(dir, 0o700); err != nil {
		return "", fmt.Errorf("protect socket folder: %w", err)
	}
	return dir, nil
}

func (d *dataDir) file(parts ...string) string {
	return filepath.Join(append([]string{d.path}, parts...)...)
}

func (d *dataDir) socket(name string) string { return filepath.Join(d.sockets, name) }

// close lets go of the lock.
func (d *dataDir) close() { d.lock.Close() }

// reason is the part of a file error that people need.
func reason(err error) error {
	var p *os.PathError
	if errors.As(err, &p) {
		return p.Err
	}
	return err
}

// freeAddress checks that nobody listens on address and returns it with a port
// that is not 0.
func freeAddress(address string) (string, error) {
	l, err := net.Listen("tcp", address)
	if errors.Is(err, syscall.EADDRINUSE) {
		return "", fmt.Errorf("the address %s is in use; stop what listens there, or choose another with --listen", address)
	}
	if err != nil {
		return "", fmt.Errorf("cannot listen on %s (%w); choose another with --listen", address, err)
	}
	defer l.Close()
	return l.Addr().String(), nil
}
