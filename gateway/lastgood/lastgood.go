// Package lastgood saves what a gateway knows of other servers, for a gateway that starts
// while they are down: the discovery and the OpenAPI index of each server, the addresses of
// registered servers, and the identities that token checks need.
//
// A document is saved per server. The elected gateway writes the documents to etcd, and every
// gateway with a state directory writes them to a local file, for a start without etcd. A
// document records when it was saved; of two with one name the later one is restored.
//
// The answer of a server replaces its restored document, and nothing is deleted because a
// restored document lacks it. OpenAPI documents are not saved, only their index. Documents
// contain no secret. Package gateway decides what is saved (gateway/lastgood.go).
//
// Runs in: gateway.
package lastgood

import (
	"context"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"sync"
	"time"

	"portico/resource/etcd"
	"portico/resource/loop"
)

const (
	// etcdTimeout is how long a gateway that starts waits for etcd before it uses the
	// registrations of the local file.
	etcdTimeout = time.Second
	// readPause bounds the pause between attempts to read etcd.
	readPause = 250 * time.Millisecond
)

// Config of a Keeper. All functions are required.
type Config struct {
	// Etcd stores the documents that all gateways share.
	Etcd *etcd.Documents
	// StateDir is the folder of the local file; "": there is none.
	StateDir string
	// Current returns the documents of the current state.
	Current func(ctx context.Context) []Document
	// Restore uses the content of a document until there is newer state. A document that
	// it returns an error for is not used.
	Restore func(name string, data []byte) error
	// Gone returns a function that reports whether the subject of a document was deleted,
	// and with it the document.
	Gone func() func(name string) bool
	// LocalOnly reports whether a document is not written to etcd.
	LocalOnly func(name string) bool
	// WithoutEtcd is called with the documents of the local file if etcd does not answer
	// within a second of the start.
	WithoutEtcd func(local map[string][]byte)
	// Logger, nil: slog.Default().
	Logger *slog.Logger
}

// Document is a document of the current state.
type Document struct {
	Name string
	// State is comparable: documents with equal states have equal values.
	State any
	// Value returns the content, which Pack encodes.
	Value func() any
}

// Keeper saves and restores documents. Safe for concurrent use.
type Keeper struct {
	cfg  Config
	log  *slog.Logger
	file string // "": there is no local file
	// read is closed once the documents in etcd are restored.
	read chan struct{}

	mu    sync.Mutex
	saved map[string]saved
}

// saved is a document in its saved form.
type saved struct {
	state any // of Document; nil: the document is restored
	data  []byte
}

// New returns a Keeper, and makes its folder.
func New(cfg Config) (*Keeper, error) {
	if cfg.Logger == nil {
		cfg.Logger = slog.Default()
	}
	k := &Keeper{cfg: cfg, log: cfg.Logger, read: make(chan struct{}), saved: map[string]saved{}}
	if cfg.StateDir == "" {
		return k, nil
	}
	k.file = filepath.Join(cfg.StateDir, "last-good")
	return k, os.MkdirAll(cfg.StateDir, 0o700)
}

// HasFile reports whether there is a local file.
func (k *Keeper) HasFile() bool { return k.file != "" }

// Run restores the saved documents and updates the local file until ctx ends. Run it once.
func (k *Keeper) Run(ctx context.Context) error {
	local := k.readFile()
	k.Restore(local)
	return loop.Together(ctx, func(ctx context.Context) error { return k.readEtcd(ctx, local) }, k.keepFile)
}

// readEtcd restores the documents in etcd as soon as etcd answers.
func (k *Keeper) readEtcd(ctx context.Context, local map[string][]byte) error {
	timer := time.AfterFunc(etcdTimeout, func() {
		if len(local) > 0 {
			k.log.Warn("etcd does not answer; routes and access policy are those of the local last-good file until it does")
			k.cfg.WithoutEtcd(local)
		}
	})
	defer timer.Stop()
	err := loop.Retry(ctx, loop.Backoff{Max: readPause}, func(ctx context.Context) error {
		docs, err := k.cfg.Etcd.Read(ctx)
		if err != nil {
			return err
		}
		data := make(map[string][]byte, len(docs))
		for name, d := range docs {
			data[name] = d.Data
		}
		k.Restore(data)
		return nil
	})
	if err != nil {
		return err
	}
	timer.Stop()
	close(k.read)
	<-ctx.Done()
	return ctx.Err()
}

// Await waits until the documents in etcd are restored. It returns false if ctx ended.
func (k *Keeper) Await(ctx context.Context) bool {
	select {
	case <-k.read:
		return true
	case <-ctx.Done():
		return false
	}
}

// Restore restores documents, except those of which a later one is known and those that
// are invalid.
func (k *Keeper) Restore(docs map[string][]byte) {
	for name, data := range docs {
		k.mu.Lock()
		later := savedAt(k.saved[name].data).After(savedAt(data))
		k.mu.Unlock()
		if later {
			continue
		}
		if err := k.cfg.Restore(name, data); err != nil {
			k.log.Warn("a last-good document is not used", "document", name, "err", err)
			continue
		}
		k.mu.Lock()
		if k.saved[name].state == nil {
			k.saved[name] = saved{data: data}
		}
		k.mu.Unlock()
	}
}

// Documents encodes the documents with a changed state and returns all, restored ones
// included.
func (k *Keeper) Documents(ctx context.Context) map[string][]byte {
	k.update(ctx)
	k.mu.Lock()
	defer k.mu.Unlock()
	out := make(map[string][]byte, len(k.saved))
	for name, d := range k.saved {
		out[name] = d.data
	}
	return out
}

// update brings saved in line with the current state.
func (k *Keeper) update(ctx context.Context) {
	k.mu.Lock()
	defer k.mu.Unlock()
	for _, d := range k.cfg.Current(ctx) {
		old := k.saved[d.Name]
		if old.state != nil && old.state == d.State {
			continue
		}
		data, err := packAfter(d.Value(), old.data)
		if err != nil {
			k.log.Error("encoding a last-good document failed", "document", d.Name, "err", err)
			continue
		}
		if same(old.data, data) {
			data = old.data
		} else if len(data) > maxEtcdDocument && len(old.data) <= maxEtcdDocument && !k.cfg.LocalOnly(d.Name) {
			k.log.Warn("a last-good document is too large for etcd and is saved in local files only", "document", d.Name, "bytes", len(data), "limit", maxEtcdDocument)
		}
		k.saved[d.Name] = saved{d.State, data}
	}
	gone := k.cfg.Gone()
	maps.DeleteFunc(k.saved, func(name string, _ saved) bool { return gone(name) })
}

// Restored returns the number of restored documents that no current state has replaced.
func (k *Keeper) Restored() (n int) {
	k.mu.Lock()
	defer k.mu.Unlock()
	for _, d := range k.saved {
		if d.state == nil {
			n++
		}
	}
	return n
}
