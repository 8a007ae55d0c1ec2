package install

import (
	"bytes"
	"crypto/sha256"
	"embed"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
)

//go:embed units
var embedded embed.FS

// file is a file of units, and where it is installed.
type file struct{ name, path string }

func unit(name string) file { return file{name, "/etc/systemd/system/" + name} }

// units are the units of each role, the service first.
var units = map[string][]file{
	"up":      {unit("portico.service"), unit("portico.socket")},
	"gateway": {unit("portico-gateway.service"), unit("portico-gateway.socket")},
	"core":    {unit("portico-core.service")},
	"crd":     {unit("portico-crd.service")},
}

// shared are the files of all roles.
var shared = []file{
	{"sysusers.conf", "/etc/sysusers.d/portico.conf"},
	{"tmpfiles.conf", "/etc/tmpfiles.d/portico.conf"},
}

// configurationPath is the configuration file of all processes of a machine.
const configurationPath = "/etc/portico/portico.yaml"

// configuration is the first configuration file of each role.
var configuration = map[string]file{
	"up":      {"portico.yaml", configurationPath},
	"gateway": {"portico-processes.yaml", configurationPath},
	"core":    {"portico-processes.yaml", configurationPath},
	"crd":     {"portico-processes.yaml", configurationPath},
}

// text returns the content of a file.
func (f file) text() []byte {
	data, err := embedded.ReadFile("units/" + f.name)
	if err != nil {
		panic(err) // a test reads all of them
	}
	return data
}

const checksumLine = "# Written by portico install. SHA-256 of what follows: "

// withChecksum puts the checksum before a text.
func withChecksum(text []byte) []byte {
	return append(fmt.Appendf(nil, "%s%x\n", checksumLine, sha256.Sum256(text)), text...)
}

// pristine reports whether a file is as portico wrote it.
func pristine(data []byte) bool {
	_, text, found := bytes.Cut(data, []byte("\n"))
	return found && bytes.Equal(data, withChecksum(text))
}

// write writes a file, unless an administrator changed the one that is there.
func (o *options) write(r *report, f file) error {
	want := withChecksum(f.text())
	have, err := os.ReadFile(filepath.Join(o.root, f.path))
	switch {
	case errors.Is(err, fs.ErrNotExist):
	case err != nil:
		return err
	case bytes.Equal(have, want):
		r.say("unchanged", "%s", f.path)
		return nil
	case !pristine(have) && !o.force:
		r.say("kept", "%s: an administrator changed it; it %s; --force replaces it", f.path, difference(have, want))
		return nil
	}
	r.did("wrote", "write", f.path)
	return o.put(f, want, 0o644)
}

// writeOnce writes a file if there is none.
func (o *options) writeOnce(r *report, f file) error {
	if _, err := os.Stat(filepath.Join(o.root, f.path)); !errors.Is(err, fs.ErrNotExist) {
		if err == nil {
			r.say("kept", "%s: it is yours", f.path)
		}
		return err
	}
	r.did("wrote", "write", f.path)
	return o.put(f, f.text(), 0o640)
}

// put writes a file under a temporary name and renames it.
func (o *options) put(f file, data []byte, mode fs.FileMode) error {
	if o.dryRun {
		return nil
	}
	path := filepath.Join(o.root, f.path)
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return err
	}
	temporary := path + ".portico-new"
	if err := os.WriteFile(temporary, data, mode); err != nil {
		return err
	}
	// The umask may have taken away rights.
	if err := errors.Join(os.Chmod(temporary, mode), os.Rename(temporary, path)); err != nil {
		return errors.Join(err, os.Remove(temporary))
	}
	return nil
}

// difference says in which line two texts begin to differ, but for the checksum.
func difference(have, want []byte) string {
	lines := func(data []byte) [][]byte {
		if bytes.HasPrefix(data, []byte(checksumLine)) {
			_, data, _ = bytes.Cut(data, []byte("\n"))
		}
		return bytes.Split(data, []byte("\n"))
	}
	mine, theirs := lines(want), lines(have)
	for i, line := range theirs {
		if i >= len(mine) {
			return fmt.Sprintf("has %q beyond the end of this version's", line)
		}
		if !bytes.Equal(line, mine[i]) {
			return fmt.Sprintf("has %q where this version has %q", line, mine[i])
		}
	}
	return "ends earlier than this version's"
}

// report prints what is done to each file.
type report struct {
	to  io.Writer
	dry bool
}

func (r *report) say(what, format string, args ...any) {
	fmt.Fprintf(r.to, "%-10s %s\n", what, fmt.Sprintf(format, args...))
}

// did says that something was done, or would be.
func (r *report) did(done, would, what string) {
	if r.dry {
		done = "would " + would
	}
	r.say(done, "%s", what)
}
