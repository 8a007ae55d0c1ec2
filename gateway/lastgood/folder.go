package lastgood

import (
	"bytes"
	"compress/flate"
	"compress/gzip"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"
)

const (
	// folderName is the folder of OpenAPI documents in the state directory.
	folderName = "openapi"
	// folderSuffix ends the name of a document's file.
	folderSuffix = ".json.gz"
	// maxFolder bounds the folder, in bytes.
	maxFolder = 32 << 20
	// maxFolderDocument bounds a document that is read from the folder, in bytes
	// once it is unpacked. Nothing larger is accepted of a server.
	maxFolderDocument = 8 << 20
	// maxWaiting bounds the documents that wait to be written, in bytes.
	maxWaiting = 8 << 20
	// folderInterval is how often the folder is brought up to date. A document
	// that changes all the time is written once in that time, and only if somebody
	// asked for it.
	folderInterval = 5 * time.Second
)

// Link names the content of an OpenAPI document: the server that has it, and its
// URL there, with a hash. A hash of one server means nothing with another.
type Link struct{ Owner, URL string }

// file is the name of the document's file.
func (l Link) file() string {
	sum := sha256.Sum256([]byte(l.Owner + "\x00" + l.URL))
	return hex.EncodeToString(sum[:]) + folderSuffix
}

// FolderConfig is what a Folder needs. Named is required.
type FolderConfig struct {
	// StateDir is the state directory; "": nothing is kept.
	StateDir string
	// Named returns the documents that the present index names, all of them; false
	// while that is not known.
	Named func() (map[Link]bool, bool)
	// Logger, nil: slog.Default().
	Logger *slog.Logger
}

// Folder keeps OpenAPI documents of servers, compressed, a file for each: those
// that somebody asked for and that the index still names. Safe for concurrent
// use. Files of other names in the folder are not touched: the state directory may
// be anybody's.
//
// They are not in etcd: a few hundred group/versions make tens of megabytes,
// which every member would keep in memory and in every snapshot, for what any
// gateway can ask the server for while that is there. Nor are they in the local
// copy, which is written as a whole.
type Folder struct {
	cfg FolderConfig
	dir string // "": there is none
	log *slog.Logger

	mu sync.Mutex
	// sizes are those of the files there are, and total is their sum.
	sizes map[string]int64
	total int64
	// waiting are documents to be written, and waitingBytes is their size.
	waiting      map[Link][]byte
	waitingBytes int
	full         bool // and that was said
}

// NewFolder returns a Folder, and makes it in the file system.
func NewFolder(cfg FolderConfig) (*Folder, error) {
	if cfg.Logger == nil {
		cfg.Logger = slog.Default()
	}
	f := &Folder{cfg: cfg, log: cfg.Logger, sizes: map[string]int64{}, waiting: map[Link][]byte{}}
	if cfg.StateDir == "" {
		return f, nil
	}
	f.dir = filepath.Join(cfg.StateDir, folderName)
	if err := os.MkdirAll(f.dir, 0o700); err != nil {
		return nil, fmt.Errorf("create folder of OpenAPI documents: %w", err)
	}
	entries, err := os.ReadDir(f.dir)
	if err != nil {
		return nil, fmt.Errorf("read folder of OpenAPI documents: %w", err)
	}
	for _, e := range entries {
		if name, cut := strings.CutSuffix(e.Name(), newSuffix); cut && isOwn(name) {
			_ = os.Remove(filepath.Join(f.dir, e.Name())) // cut off while it was written
			continue
		}
		info, err := e.Info()
		if err != nil || !info.Mode().IsRegular() || !isOwn(e.Name()) {
			continue // somebody else's
		}
		f.sizes[e.Name()] = info.Size()
		f.total += info.Size()
	}
	return f, nil
}

// isOwn reports whether a file of this name is a document's.
func isOwn(name string) bool {
	sum, ok := strings.CutSuffix(name, folderSuffix)
	decoded, err := hex.DecodeString(sum)
	return ok && err == nil && len(decoded) == sha256.Size
}

// Keep has a document kept, as soon as Run comes to it, or at once if too many
// wait for that. data must not be changed.
func (f *Folder) Keep(l Link, data []byte) {
	if f.dir == "" || len(data) > maxFolderDocument || !f.lacks(l) {
		return
	}
	if !f.wait(l, data) {
		f.write(l, data)
	}
}

// wait has a document written at the next turn, if not too many are already.
func (f *Folder) wait(l Link, data []byte) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.waitingBytes+len(data) > maxWaiting {
		return false
	}
	if f.waiting[l] == nil {
		f.waiting[l] = data
		f.waitingBytes += len(data)
	}
	return true
}

func (f *Folder) lacks(l Link) bool {
	name := l.file()
	f.mu.Lock()
	defer f.mu.Unlock()
	_, kept := f.sizes[name]
	return !kept
}

// Read returns a document that is kept. One that is damaged is none, for good; one
// that only cannot be read now, because the gateway has no descriptors left, say,
// stays.
func (f *Folder) Read(l Link) ([]byte, bool) {
	name := l.file()
	f.mu.Lock()
	_, kept := f.sizes[name]
	f.mu.Unlock()
	if !kept {
		return nil, false
	}
	data, err := readDocument(filepath.Join(f.dir, name))
	if err != nil {
		f.log.Warn("a last-good OpenAPI document is not used", "url", l.URL, "err", err)
		if damaged(err) {
			f.remove(name)
		}
		return nil, false
	}
	return data, true
}

// errLarge says that a document is larger than any that is kept.
var errLarge = fmt.Errorf("it is larger than %d bytes", maxFolderDocument)

// damaged reports whether an error of readDocument is that of what is in the file, or
// of there being none.
func damaged(err error) bool {
	var corrupt flate.CorruptInputError
	return errors.As(err, &corrupt) || slices.ContainsFunc([]error{
		gzip.ErrHeader, gzip.ErrChecksum, io.EOF, io.ErrUnexpectedEOF, errLarge, fs.ErrNotExist,
	}, func(sort error) bool { return errors.Is(err, sort) })
}

func readDocument(name string) ([]byte, error) {
	file, err := os.Open(name)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	z, err := gzip.NewReader(file)
	if err != nil {
		return nil, err
	}
	data, err := io.ReadAll(io.LimitReader(z, maxFolderDocument+1))
	if err == nil && len(data) > maxFolderDocument {
		err = errLarge
	}
	return data, err
}

// Run keeps the folder up to date until ctx ends, and once more then.
func (f *Folder) Run(ctx context.Context) error {
	if f.dir == "" {
		<-ctx.Done()
		return ctx.Err()
	}
	every(ctx, folderInterval, func(context.Context) { f.turn() })
	return ctx.Err()
}

// turn removes what the index does not name any more, and writes what is wanted.
func (f *Folder) turn() {
	named, known := f.cfg.Named()
	if !known {
		return
	}
	there := make(map[string]bool, len(named))
	for l := range named {
		there[l.file()] = true
	}
	f.mu.Lock()
	var gone []string
	for name := range f.sizes {
		if !there[name] {
			gone = append(gone, name)
		}
	}
	waiting := f.waiting
	f.waiting, f.waitingBytes = map[Link][]byte{}, 0
	f.mu.Unlock()
	for _, name := range gone {
		f.remove(name)
	}
	for l, data := range waiting {
		if named[l] && !f.write(l, data) {
			f.wait(l, data)
		}
	}
}

// write keeps a document, unless the folder is full. It returns false if that failed
// for a reason that may pass, as the disk being full.
func (f *Folder) write(l Link, data []byte) bool {
	var packed bytes.Buffer
	z := gzip.NewWriter(&packed)
	_, err := z.Write(data)
	if err = errors.Join(err, z.Close()); err != nil {
		f.log.Error("an OpenAPI document was not compressed", "url", l.URL, "err", err)
		return true
	}
	size := int64(packed.Len())
	if !f.room(size) {
		return true
	}
	name := l.file()
	if err := replaceFile(filepath.Join(f.dir, name), packed.Bytes()); err != nil {
		f.log.Error("a last-good OpenAPI document was not written", "url", l.URL, "err", err)
		return false
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.total += size - f.sizes[name]
	f.sizes[name] = size
	return true
}

// room reports whether so many bytes more may be kept, and says that they may not
// once until something is removed: a smaller document may still fit.
func (f *Folder) room(size int64) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.total+size <= maxFolder {
		return true
	}
	if !f.full {
		f.log.Warn("the folder of last-good OpenAPI documents is full; others are not kept", "bytes", f.total, "limit", int64(maxFolder))
	}
	f.full = true
	return false
}

func (f *Folder) remove(name string) {
	if err := os.Remove(filepath.Join(f.dir, name)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		f.log.Error("a last-good OpenAPI document was not removed", "file", name, "err", err)
		return
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.total -= f.sizes[name]
	f.full = false
	delete(f.sizes, name)
}
