package datadir

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
)

// CheckAccess returns an error that says what to do if this process may not read the data folder at path: it is mode 0700,
// of the user that portico up runs as. A folder that does not exist is no error.
func CheckAccess(path string) error {
	_, err := os.ReadDir(path)
	if err == nil {
		var f *os.File
		if f, err = os.Open(filepath.Join(path, "lock")); err == nil {
			f.Close()
		}
	}
	if !errors.Is(err, fs.ErrPermission) {
		return nil
	}
	user := ""
	if info, err := os.Stat(path); err == nil {
		if stat, ok := info.Sys().(*syscall.Stat_t); ok {
			user = fmt.Sprintf(" (uid %d)", stat.Uid)
		}
	}
	return fmt.Errorf("cannot read %s: permission denied: run this as the user of portico up%s, or as root", path, user)
}
