// Package datadir lays out the data folder of an installation and locks it for one
// process at a time.
//
//	lock         locked (flock) by the process that uses the folder; has its pid
//	etcd/        the data of the embedded etcd
//	pki/         certificates and keys
//	kubeconfig   the administrator's
//	logs/        logs of the child processes
//	run/         sockets; a symbolic link where the folder's own path is too
//	             long for a socket's address
//
// The kernel releases the lock when the process ends.
//
// Runs in: portico up; commands that look at its folder.
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

// Dir is a data folder that this process has locked.
type Dir struct {
	// Path is absolute.
	Path string
	// Run is the folder of sockets, mode 0700. Its path is short enough for them.
	Run  string
	lock *os.File
	made bool // by Open
}

// PKIFolder and LogsFolder are the folders of certificates and keys, and of logs, in a data folder.
const (
	PKIFolder  = "pki"
	LogsFolder = "logs"
)

// Default returns portico/ in $XDG_DATA_HOME, or in ~/.local/share without it.
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

// InUseError is the error of a folder that another process has locked.
type InUseError struct {
	Path string
	// PID is the id of the other process; 0 if it is unknown.
	PID int
}

func (e *InUseError) Error() string {
	if e.PID == 0 {
		return fmt.Sprintf("data folder %s is in use by another process", e.Path)
	}
	return fmt.Sprintf("data folder %s is in use by process %d", e.Path, e.PID)
}

// Open creates the folder if needed, mode 0700, and locks it. It returns an *InUseError if
// another process has locked it.
func Open(path string) (*Dir, error) {
	path, err := filepath.Abs(path)
	if err != nil {
		return nil, fmt.Errorf("find data folder: %w", err)
	}
	_, missing := os.Lstat(path)
	if err := os.MkdirAll(path, 0o700); err != nil {
		return nil, fmt.Errorf("create data folder: %w", err)
	}
	d := &Dir{Path: path, made: errors.Is(missing, fs.ErrNotExist)}
	if err := d.acquire(); err != nil {
		return nil, err
	}
	if err := d.prepare(); err != nil {
		d.Discard()
		d.Close()
		return nil, err
	}
	return d, nil
}

// File returns a path below the folder.
func (d *Dir) File(elem ...string) string {
	return filepath.Join(append([]string{d.Path}, elem...)...)
}

// Discard removes the folder, with all that is in it, if Open made it: a start that failed leaves nothing behind.
func (d *Dir) Discard() {
	if d.made {
		_ = os.RemoveAll(d.Run) // what is left is empty
		_ = os.RemoveAll(d.Path)
	}
}

// Close unlocks the folder.
func (d *Dir) Close() { d.lock.Close() }

func (d *Dir) acquire() error {
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
	// The pid is for the error message of another process. A process starts without it on
	// a full disk.
	if err := f.Truncate(0); err == nil {
		_, _ = f.WriteAt(fmt.Appendln(nil, os.Getpid()), 0)
	}
	d.lock = f
	return nil
}

// Holder returns the process that has locked the folder; 0 if none has.
func Holder(path string) int {
	f, err := os.Open(filepath.Join(path, "lock"))
	if err != nil {
		return 0
	}
	defer f.Close()
	pid := readPID(f)
	// The lock is tried only if a process has the id, which may be another one by now: a process that
	// starts finds it free.
	if pid == 0 || syscall.Kill(pid, 0) == syscall.ESRCH {
		return 0
	}
	if err := syscall.Flock(int(f.Fd()), syscall.LOCK_SH|syscall.LOCK_NB); err == nil {
		return 0
	}
	return pid
}

func readPID(f *os.File) int {
	buf := make([]byte, 32)
	n, _ := f.ReadAt(buf, 0)
	pid, _ := strconv.Atoi(strings.TrimSpace(string(buf[:n])))
	return pid
}

func (d *Dir) prepare() error {
	if err := os.MkdirAll(d.File(LogsFolder), 0o700); err != nil {
		return fmt.Errorf("create log folder: %w", err)
	}
	run, err := runFolder(d.File("run"))
	if err != nil {
		return err
	}
	d.Run = run
	return nil
}
