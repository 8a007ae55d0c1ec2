package backup

import (
	"archive/tar"
	"bufio"
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"

	"filippo.io/age"
)

// ageMagic begins a file that age encrypted.
const ageMagic = "age-encryption.org/"

// writeArchive writes a backup. open returns the content of a part.
func writeArchive(w io.Writer, m *Manifest, recipients []age.Recipient, open func(Part) (io.ReadCloser, error)) error {
	closers := []io.Closer{}
	if len(recipients) > 0 {
		encrypted, err := age.Encrypt(w, recipients...)
		if err != nil {
			return fmt.Errorf("encrypt: %w", err)
		}
		w, closers = encrypted, append(closers, encrypted)
	}
	// Encoded objects compress well at the lowest level, four times as fast as at the default.
	compressed, err := gzip.NewWriterLevel(w, gzip.BestSpeed)
	if err != nil {
		return err
	}
	archive := tar.NewWriter(compressed)
	closers = append(closers, compressed, archive)
	manifest, err := json.MarshalIndent(m, "", "  ")
	if err != nil {
		return err
	}
	if err := writePart(archive, m, Part{Name: manifestName, Size: int64(len(manifest))}, bytes.NewReader(manifest)); err != nil {
		return err
	}
	for _, p := range m.Parts {
		content, err := open(p)
		if err != nil {
			return err
		}
		err = errors.Join(writePart(archive, m, p, content), content.Close())
		if err != nil {
			return err
		}
	}
	for i := len(closers) - 1; i >= 0; i-- {
		if err := closers[i].Close(); err != nil {
			return err
		}
	}
	return nil
}

func writePart(archive *tar.Writer, m *Manifest, p Part, content io.Reader) error {
	header := &tar.Header{Name: p.Name, Size: p.Size, Mode: 0o600, ModTime: m.Time, Format: tar.FormatPAX}
	if err := archive.WriteHeader(header); err != nil {
		return err
	}
	_, err := io.Copy(archive, content)
	return err
}

// readArchive reads a backup to its end. manifest is called first; an error of it, such as
// errManifestOnly, ends the reading. Then part is called for each part, and returns what its
// content is copied to; nil drops it. A part that differs from the manifest is an error after it
// was copied.
func readArchive(r io.Reader, identities func() ([]age.Identity, error), manifest func(*Manifest) error, part func(Part) (io.WriteCloser, error)) error {
	r, err := decrypt(bufio.NewReaderSize(r, 64<<10), identities)
	if err != nil {
		return err
	}
	compressed, err := gzip.NewReader(r)
	if err != nil {
		return readError(err, errNotBackup)
	}
	archive := tar.NewReader(compressed)
	header, err := archive.Next()
	if err != nil || header.Name != manifestName || header.Size > maxSmall {
		return readError(err, errNotBackup)
	}
	data, err := io.ReadAll(archive)
	if err != nil {
		return readError(err, errDamaged)
	}
	m, err := parseManifest(data)
	if err != nil {
		return err
	}
	if err := manifest(m); err != nil {
		return err
	}
	for _, p := range m.Parts {
		if err := readPart(archive, p, part); err != nil {
			return err
		}
	}
	if _, err := archive.Next(); !errors.Is(err, io.EOF) {
		return readError(err, errDamaged)
	}
	// The checksum of gzip, and the end of what is encrypted, are at the end.
	_, err = io.Copy(io.Discard, compressed)
	if err == nil {
		_, err = io.Copy(io.Discard, r)
	}
	return readError(err, nil)
}

func readPart(archive *tar.Reader, p Part, part func(Part) (io.WriteCloser, error)) error {
	header, err := archive.Next()
	if err != nil || header.Name != p.Name || header.Size != p.Size {
		return readError(err, errDamaged)
	}
	to, err := part(p)
	if err != nil {
		return err
	}
	hash, all := sha256.New(), io.Writer(nil)
	if all = hash; to != nil {
		all = io.MultiWriter(hash, to)
	}
	failed := &writeErrors{to: all}
	_, err = io.Copy(failed, archive)
	if to != nil {
		failed.err = errors.Join(failed.err, to.Close())
	}
	switch {
	case failed.err != nil:
		return failed.err
	case err != nil:
		return readError(err, errDamaged)
	case hex.EncodeToString(hash.Sum(nil)) != p.SHA256:
		return fmt.Errorf("it is damaged: %s does not have the hash that the manifest names", p.Name)
	}
	return nil
}

// writeErrors keeps the error of a writer, to tell it from that of the reader.
type writeErrors struct {
	to  io.Writer
	err error
}

func (w *writeErrors) Write(p []byte) (int, error) {
	n, err := w.to.Write(p)
	w.err = err
	return n, err
}

var errDamaged = errors.New("it is damaged")

// readError returns a sentence for an error of reading a backup; otherwise if there is none.
func readError(err, otherwise error) error {
	switch {
	case err == nil:
		return otherwise
	case errors.Is(err, io.ErrUnexpectedEOF), errors.Is(err, io.EOF):
		return errors.New("it is truncated")
	case errors.Is(otherwise, errNotBackup):
		return otherwise
	}
	return fmt.Errorf("%w: %w", errDamaged, err)
}
