package main

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"time"
)

// legalFiles go with every copy of the program.
var legalFiles = []string{"LICENSE", "NOTICE", "THIRD_PARTY_LICENSES"}

// entry is a file or folder of an archive or an image. A folder has neither data nor file.
type entry struct {
	path string
	mode fs.FileMode
	// uid is also the number of the group.
	uid int
	// The content of a file is data, or that of a file on the disk.
	data []byte
	file string
}

// writeTar writes entries, all of one date.
func writeTar(w io.Writer, entries []entry, date time.Time) error {
	t := tar.NewWriter(w)
	for _, e := range entries {
		if err := e.write(t, date); err != nil {
			return fmt.Errorf("archive %s: %w", e.path, err)
		}
	}
	return t.Close()
}

func (e *entry) write(t *tar.Writer, date time.Time) error {
	head := &tar.Header{
		Name: e.path, Mode: int64(e.mode.Perm()), Uid: e.uid, Gid: e.uid, ModTime: date,
		Typeflag: tar.TypeReg, Format: tar.FormatUSTAR,
	}
	if e.data == nil && e.file == "" {
		head.Typeflag, head.Name = tar.TypeDir, e.path+"/"
		return t.WriteHeader(head)
	}
	data := e.data
	if e.file != "" {
		var err error
		if data, err = os.ReadFile(e.file); err != nil {
			return err
		}
	}
	head.Size = int64(len(data))
	if err := t.WriteHeader(head); err != nil {
		return err
	}
	_, err := t.Write(data)
	return err
}

// legal returns the entries of the legal files in a folder of an archive.
func (s *source) legal(folder string) (all []entry) {
	for _, name := range legalFiles {
		all = append(all, entry{path: path.Join(folder, name), mode: 0o644, file: filepath.Join(s.dir, name)})
	}
	return all
}

// writeArchive writes the program with its legal files and the changelog.
func (r *release) writeArchive(out string) error {
	entries := append([]entry{
		{path: r.name(), mode: 0o755},
		{path: r.name() + "/portico", mode: 0o755, file: r.program},
		{path: r.name() + "/CHANGELOG.md", mode: 0o644, file: filepath.Join(r.dir, "CHANGELOG.md")},
	}, r.legal(r.name())...)
	var b bytes.Buffer
	z, err := gzip.NewWriterLevel(&b, gzip.BestCompression)
	if err != nil {
		return err
	}
	if err := writeTar(z, entries, r.date); err != nil {
		return err
	}
	if err := z.Close(); err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(out, r.name()+".tar.gz"), b.Bytes(), 0o644)
}

// writeChecksums writes SHA256SUMS, for sha256sum -c: every file of the release, and of the
// image layout its index, which has the digests of the rest.
func writeChecksums(out string) error {
	names, err := filepath.Glob(filepath.Join(out, "portico-*"))
	if err != nil {
		return err
	}
	if index := filepath.Join(out, layoutFolder, "index.json"); fileExists(index) {
		names = append(names, index)
	}
	var sums bytes.Buffer
	for _, name := range names {
		data, err := os.ReadFile(name)
		if err != nil {
			return err
		}
		rel, err := filepath.Rel(out, name)
		if err != nil {
			return err
		}
		fmt.Fprintf(&sums, "%x  %s\n", sha256.Sum256(data), filepath.ToSlash(rel))
	}
	return os.WriteFile(filepath.Join(out, "SHA256SUMS"), sums.Bytes(), 0o644)
}

func fileExists(name string) bool {
	_, err := os.Stat(name)
	return err == nil
}
