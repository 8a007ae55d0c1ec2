package pki

import (
	"fmt"
	"os"
	"path/filepath"
)

// writeFile replaces path by data in one step, mode 0600. The folder must
// exist.
func writeFile(path string, data []byte) (err error) {
	f, err := os.CreateTemp(filepath.Dir(path), "."+filepath.Base(path)+".*")
	if err != nil {
		return fmt.Errorf("write file: %w", err)
	}
	defer func() {
		if err != nil {
			os.Remove(f.Name())
			err = fmt.Errorf("write file: %w", err)
		}
	}()
	// CreateTemp makes files 0600 already.
	if _, err = f.Write(data); err != nil {
		f.Close()
		return err
	}
	// Synced before the rename: after a power cut there is the old file or the
	// new one, not an empty one.
	if err = f.Sync(); err != nil {
		f.Close()
		return err
	}
	if err = f.Close(); err != nil {
		return err
	}
	return os.Rename(f.Name(), path)
}
