// Package datadir lays out the data folder of an installation and locks it for one
// process at a time.
//
//	lock         held (flock) while a process uses the folder; names its pid
//	etcd/        the data of the embedded etcd
//	pki/         certificates and keys
//	kubeconfig   the administrator's
//	logs/        logs of the child processes
//	run/         sockets; a symbolic link where the folder's own path is too
//	             long for a socket's address
//
// The lock is the kernel's, not a pid file: it is gone when the process is,
// however it ended.
//
// Runs in: portico up.
package datadir

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
)

// Dir is a data folder in use by this process.
type Dir struct {
	// Path is absolute.
	Path string
	// Run is the folder for sockets, mode 0700, with a path short enough.
	Run  string
	lock *os.File
}

// Default returns portico/ in the user's XDG data folder: $XDG_DATA_HOME, or
// ~/.local/share without it.
func Default() (string, error) {
	// The XDG specification ignores a relative XDG_DATA_HOME.
	if base := os.Getenv("XDG_DATA_HOME"); filepath.IsAbs(base) {
		return filepath.Join(base, "portico"), nil
	}
	home, err := os.UserHomeDir()
	if err != nil {
		return "", fmt.Errorf("find data folder: %w", err)
	}
	return filepath.Join(home, ".local", "share", "portico"), nil
}

// InUseError says that another process uses the folder.
type InUseError struct {
	Path string
	// PID is the other process; 0 if it is unknown.
	PID int
}

func (e *InUseError) Error() string {
	if e.PID == 0 {
		return fmt.Sprintf("data folder %s is in use by another process", e.Path)
	}
	return fmt.Sprintf("data folder %s is in use by process %d", e.Path, e.PID)
}

// Open makes the folder where needed, mode 0700, and takes it for this process.
// It returns an *InUseError if another one has it.
func Open(path string) (*Dir, error) {
	path, err := filepath.Abs(path)
	if err != nil {
		return nil, fmt.Errorf("find data folder: %w", err)
	}
	if err := os.MkdirAll(path, 0o700); err != nil {
		return nil, fmt.Errorf("create data folder: %w", err)
	}
	d := &Dir{Path: path}
	if err := d.takeLock(); err != nil {
		return nil, err
	}
	if err := d.prepare(); err != nil {
		d.Close()
		return nil, err
	}
	return d, nil
}

// File returns a path below the folder.
func (d *Dir) File(elem ...string) string {
	return filepath.Join(append([]string{d.Path}, elem...)...)
}

// Close lets others have the folder.
func (d *Dir) Close() { d.lock.Close() }

func (d *Dir) takeLock() error {
	f, err := os.OpenFile(d.File("lock"), os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return fmt.Errorf("open lock: %w", err)
	}
	if err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		defer f.Close()
		if errors.Is(err, syscall.EWOULDBLOCK) {
			return &InUseError{Path: d.Path, PID: readPID(f)}
		}
		return fmt.Errorf("lock data folder: %w", err)
	}
	// The pid is for the error message of another process only. It may be missing:
	// a process starts on a full disk as well.
	if err := f.Truncate(0); err == nil {
		_, _ = f.WriteAt(fmt.Appendln(nil, os.Getpid()), 0)
	}
	d.lock = f
	return nil
}

func readPID(f *os.File) int {
	buf := make([]byte, 32)
	n, _ := f.ReadAt(buf, 0)
	pid, _ := strconv.Atoi(strings.TrimSpace(string(buf[:n])))
	return pid
}

func (d *Dir) prepare() error {
	if err := os.MkdirAll(d.File("logs"), 0o700); err != nil {
		return fmt.Errorf("create log folder: %w", err)
	}
	run, err := runFolder(d.File("run"))
	if err != nil {
		return err
	}
	d.Run = run
	return nil
}

// ignoreMissing drops the error that something is not there.
func ignoreMissing(err error) error {
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}
