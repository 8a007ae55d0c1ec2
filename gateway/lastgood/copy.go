package lastgood

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
)

const (
	// copyName is the file in the state directory, and copyMagic its first line.
	copyName  = "last-good"
	copyMagic = "portico last-good 1\n"
	// maxCopy bounds the file, in bytes.
	maxCopy = 64 << 20
	// newSuffix ends the name of a file while it is written.
	newSuffix = ".new"
)

// localCopy is the file that a gateway which starts while etcd is away begins
// with: a line that names the format, one with the checksum of the rest in hex,
// and the documents by name as JSON. It belongs to one gateway.
type localCopy struct{ file string }

func newLocalCopy(dir string) (*localCopy, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("create state directory: %w", err)
	}
	return &localCopy{file: filepath.Join(dir, copyName)}, nil
}

// read returns the documents; none, and no error, if there is no file. A file
// that is broken is an error and no documents.
func (c *localCopy) read() (map[string][]byte, error) {
	f, err := os.Open(c.file)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read last-good copy: %w", err)
	}
	defer f.Close()
	data, err := io.ReadAll(io.LimitReader(f, maxCopy+1))
	if err != nil {
		return nil, fmt.Errorf("read last-good copy: %w", err)
	}
	return parseCopy(data)
}

// parseCopy reads the content of the file.
func parseCopy(data []byte) (map[string][]byte, error) {
	if len(data) > maxCopy {
		return nil, fmt.Errorf("the last-good copy is larger than %d bytes", maxCopy)
	}
	rest, ok := bytes.CutPrefix(data, []byte(copyMagic))
	if !ok {
		return nil, errors.New("the last-good copy is of an unknown format")
	}
	sum, payload, ok := bytes.Cut(rest, []byte("\n"))
	if want := sha256.Sum256(payload); !ok || string(sum) != hex.EncodeToString(want[:]) {
		return nil, errors.New("the last-good copy does not have the content of its checksum")
	}
	var docs map[string][]byte
	if err := json.Unmarshal(payload, &docs); err != nil {
		return nil, fmt.Errorf("decode last-good copy: %w", err)
	}
	return docs, nil
}

// formatCopy makes the content of the file.
func formatCopy(docs map[string][]byte) ([]byte, error) {
	payload, err := json.Marshal(docs)
	if err != nil {
		return nil, fmt.Errorf("encode last-good copy: %w", err)
	}
	sum := sha256.Sum256(payload)
	out := append([]byte(copyMagic), hex.EncodeToString(sum[:])+"\n"...)
	if len(out)+len(payload) > maxCopy {
		return nil, fmt.Errorf("the last-good copy would be larger than %d bytes", maxCopy)
	}
	return append(out, payload...), nil
}

// write replaces the file.
func (c *localCopy) write(docs map[string][]byte) error {
	data, err := formatCopy(docs)
	if err != nil {
		return err
	}
	if err := replaceFile(c.file, data); err != nil {
		return fmt.Errorf("write last-good copy: %w", err)
	}
	return nil
}

// replaceFile gives a file a new content. Whatever happens meanwhile, the file is
// the old or the new one.
func replaceFile(name string, data []byte) (err error) {
	// One name, so that little is left behind by processes that are killed.
	f, err := os.OpenFile(name+newSuffix, os.O_CREATE|os.O_TRUNC|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, os.Remove(f.Name()))
		}
	}()
	_, err = f.Write(data)
	if err == nil {
		err = f.Sync()
	}
	if err = errors.Join(err, f.Close()); err != nil {
		return err
	}
	return os.Rename(f.Name(), name)
}
