package datadir

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"unicode"
)

const (
	// maxSocketPath is the longest path of a socket on every system: 104 bytes on BSD and
	// macOS, 108 on Linux, with the final zero.
	maxSocketPath = 103
	// longestSocket is the longest name of a socket in the run folder.
	longestSocket = "etcd.sock"
	// notInFlags are the characters, beside control characters, that a path must not have
	// to be part of a URL in a comma-separated flag.
	notInFlags = `#%?,"`
)

// EtcdSocket returns the socket of the embedded etcd that runs on a data folder; an error if none runs.
func EtcdSocket(path string) (string, error) {
	run, err := filepath.EvalSymlinks(filepath.Join(path, "run")) // to a folder with a shorter path
	if err != nil {
		return "", err
	}
	socket, err := filepath.Abs(filepath.Join(run, longestSocket))
	if err != nil {
		return "", err
	}
	_, err = os.Stat(socket)
	return socket, err
}

// holdsSockets reports whether the sockets in a folder can be used: their paths are short
// enough, and unix:// and a path is a URL in flags of the processes.
func holdsSockets(folder string) bool {
	return len(folder)+1+len(longestSocket) <= maxSocketPath &&
		!strings.ContainsFunc(folder, func(r rune) bool { return unicode.IsControl(r) || strings.ContainsRune(notInFlags, r) })
}

// runFolder returns a folder for sockets: preferred if it holds them, otherwise one in
// $XDG_RUNTIME_DIR or the temporary folder, and preferred as a symbolic link to it.
func runFolder(preferred string) (string, error) {
	if holdsSockets(preferred) {
		if info, err := os.Lstat(preferred); err == nil && info.Mode()&fs.ModeSymlink != 0 {
			if err := os.Remove(preferred); err != nil {
				return "", fmt.Errorf("remove old run folder: %w", err)
			}
		}
		if err := os.MkdirAll(preferred, 0o700); err != nil {
			return "", fmt.Errorf("create run folder: %w", err)
		}
		return preferred, checkPrivate(preferred)
	}
	base := os.Getenv("XDG_RUNTIME_DIR")
	if !filepath.IsAbs(base) {
		base = os.TempDir()
	}
	sum := sha256.Sum256([]byte(preferred))
	short := filepath.Join(base, "portico-"+hex.EncodeToString(sum[:6]))
	if !holdsSockets(short) {
		return "", fmt.Errorf("create run folder: %s is too long a path for sockets, or has a character of %s; set XDG_RUNTIME_DIR to another", short, notInFlags)
	}
	if err := os.Mkdir(short, 0o700); err != nil && !errors.Is(err, fs.ErrExist) {
		return "", fmt.Errorf("create run folder: %w", err)
	}
	if err := checkPrivate(short); err != nil {
		return "", err
	}
	return short, link(preferred, short)
}

// link replaces path by a symbolic link to target.
func link(path, target string) error {
	if old, err := os.Readlink(path); err == nil && old == target {
		return nil
	}
	if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("remove old run folder: %w", err)
	}
	if err := os.Symlink(target, path); err != nil {
		return fmt.Errorf("link run folder: %w", err)
	}
	return nil
}

// checkPrivate rejects a folder of another user, and closes one that others may enter:
// in a shared temporary folder another user may have taken the name.
func checkPrivate(path string) error {
	info, err := os.Lstat(path)
	if err != nil {
		return fmt.Errorf("check run folder: %w", err)
	}
	if !info.IsDir() {
		return fmt.Errorf("check run folder: %s is not a folder", path)
	}
	if stat, ok := info.Sys().(*syscall.Stat_t); ok && int(stat.Uid) != os.Geteuid() {
		return fmt.Errorf("check run folder: %s belongs to another user", path)
	}
	if info.Mode().Perm()&0o077 != 0 {
		if err := os.Chmod(path, 0o700); err != nil {
			return fmt.Errorf("close run folder to others: %w", err)
		}
	}
	return nil
}
