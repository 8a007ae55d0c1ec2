package inspect

import (
	"fmt"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"

	"portico/cmd/internal/datadir"
)

// Folder is the data folder of an installation of `portico up`.
type Folder struct {
	// Path is "" until Find.
	Path  string
	named bool
}

// Add adds --data-dir.
func (f *Folder) Add(cmd *cobra.Command) {
	cmd.Flags().StringVar(&f.Path, "data-dir", "", "data `folder` of portico up (default: $XDG_DATA_HOME/portico or ~/.local/share/portico)")
}

// Find sets Path to an absolute path. A folder that is named must exist; the default one need not. It is an error if
// this process may not read the folder.
func (f *Folder) Find() error {
	if err := f.find(); err != nil {
		return err
	}
	return datadir.CheckAccess(f.Path)
}

func (f *Folder) find() (err error) {
	if f.named = f.Path != ""; !f.named {
		f.Path, err = datadir.Default()
		if err != nil {
			return fmt.Errorf("%w; name one with --data-dir", err)
		}
		return nil
	}
	if err := datadir.CheckAccess(f.Path); err != nil {
		return err
	}
	info, err := os.Stat(f.Path)
	switch {
	case err != nil:
		return fmt.Errorf("--data-dir: %w; give the one of portico up", err)
	case !info.IsDir():
		return fmt.Errorf("--data-dir %s: is not a folder; give the one of portico up", f.Path)
	}
	f.Path, err = filepath.Abs(f.Path)
	return err
}

// Exists reports whether the folder is one of portico up.
func (f *Folder) Exists() bool {
	_, err := os.Stat(f.File("lock"))
	return err == nil
}

// File returns a path below the folder.
func (f *Folder) File(elem ...string) string {
	return filepath.Join(append([]string{f.Path}, elem...)...)
}
