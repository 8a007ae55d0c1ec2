// Package informer presents the objects of a store to upstream's engines, which read their
// configuration from informers of client-go.
//
// Runs in: gateway, core, crd.
package informer

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"k8s.io/client-go/tools/cache"

	"portico/resource"
	"portico/resource/loop"
	"portico/resource/rest"
)

// backoff grows slowly and has a low maximum, because the server of the objects usually starts
// together with this process, and requests may wait for the first read.
var backoff = loop.Backoff{Initial: 20 * time.Millisecond, Factor: 1.3, Max: 2 * time.Second}

// Config of an Informer. Store, Codec and Logger are required.
type Config struct {
	Store  resource.Reader
	Codec  rest.Codec
	Logger *slog.Logger
	// Used is called when there are objects, and may be called again; nil: it is not.
	Used func()
}

// Informer follows all objects of one cluster-scoped kind in a store and presents them to
// upstream's engines, which read configurations from informers. It implements the methods
// that the engines call; the others are nil. Safe for concurrent use.
type Informer struct {
	cache.SharedIndexInformer
	cfg     Config
	indexer cache.Indexer
	synced  *Gate
	// read is the last state of the store; nil before the first.
	read atomic.Pointer[loop.Snapshot]
	some atomic.Bool // there are objects

	mu       sync.Mutex // guards handlers, and is held by replace
	handlers []cache.ResourceEventHandler
}

// New returns an Informer without objects.
func New(cfg Config) *Informer {
	return &Informer{cfg: cfg, indexer: cache.NewIndexer(cache.MetaNamespaceKeyFunc, cache.Indexers{}), synced: NewGate()}
}

// Follow follows the store until ctx ends.
func (i *Informer) Follow(ctx context.Context) {
	// Follow returns only the error of ctx.
	_ = loop.Follow(ctx, i.cfg.Store, loop.FollowOptions{Logger: i.cfg.Logger, Backoff: backoff}, func(s loop.Snapshot) {
		i.mu.Lock()
		defer i.mu.Unlock()
		i.read.Store(&s)
		i.replace(s.Items)
	})
}

// Restore sets the objects that an earlier process read, unless the store was read since.
func (i *Informer) Restore(objects []*resource.Object) {
	i.mu.Lock()
	defer i.mu.Unlock()
	if i.read.Load() == nil {
		i.replace(objects)
	}
}

// replace sets the objects and calls the handlers for the differences. An object that does
// not decode keeps its previous state, or is left out. The caller holds mu.
func (i *Informer) replace(objects []*resource.Object) {
	gone := map[string]bool{}
	for _, name := range i.indexer.ListKeys() {
		gone[name] = true
	}
	for _, o := range objects {
		delete(gone, o.Name)
		old, known, _ := i.indexer.GetByKey(o.Name) // an Indexer returns no error
		if known && isRevision(old.(rest.Object), o) {
			continue
		}
		obj, err := i.cfg.Codec.DecodeStored(o)
		if err != nil {
			i.cfg.Logger.Error("decoding a configuration failed, its previous state applies", "object", o.Key(), "error", err)
			continue
		}
		_ = i.indexer.Add(obj)
		for _, h := range i.handlers {
			if known {
				h.OnUpdate(old, obj)
			} else {
				h.OnAdd(obj, false)
			}
		}
	}
	for _, name := range slices.Sorted(maps.Keys(gone)) {
		old, _, _ := i.indexer.GetByKey(name)
		_ = i.indexer.Delete(old)
		for _, h := range i.handlers {
			h.OnDelete(old)
		}
	}
	i.some.Store(len(objects) > 0)
	if len(objects) > 0 && i.cfg.Used != nil {
		i.cfg.Used()
	}
	i.synced.Open()
}

// isRevision reports whether obj was decoded from o or from an equal revision.
func isRevision(obj rest.Object, o *resource.Object) bool {
	return string(obj.GetUID()) == o.UID && obj.GetResourceVersion() == fmt.Sprint(o.Revision)
}

// GetIndexer implements cache.SharedIndexInformer.
func (i *Informer) GetIndexer() cache.Indexer { return i.indexer }

// HasSynced implements cache.SharedIndexInformer.
func (i *Informer) HasSynced() bool { return i.synced.IsOpen() }

// AddEventHandler implements cache.SharedIndexInformer. h is called for later changes only.
func (i *Informer) AddEventHandler(h cache.ResourceEventHandler) (cache.ResourceEventHandlerRegistration, error) {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.handlers = append(i.handlers, h)
	return registration{}, nil
}

// RemoveEventHandler implements cache.SharedIndexInformer. Handlers end with the informer.
func (i *Informer) RemoveEventHandler(cache.ResourceEventHandlerRegistration) error { return nil }

// registration of a handler has always synced: handlers are added to synced informers.
type registration struct {
	cache.ResourceEventHandlerRegistration
}

func (registration) HasSynced() bool { return true }

// Synced returns the gate that is open once there is a state, read or restored.
func (i *Informer) Synced() *Gate { return i.synced }

// Read returns the last state of the store; nil before the first.
func (i *Informer) Read() *loop.Snapshot { return i.read.Load() }

// Some reports whether there are objects.
func (i *Informer) Some() bool { return i.some.Load() }

// Gate is closed until something is known for the first time.
type Gate struct {
	once   sync.Once
	opened chan struct{}
}

// NewGate returns a closed Gate.
func NewGate() *Gate { return &Gate{opened: make(chan struct{})} }

// Open opens the gate. It may be called again.
func (g *Gate) Open() { g.once.Do(func() { close(g.opened) }) }

// Opened returns a channel that is closed once the gate is open.
func (g *Gate) Opened() <-chan struct{} { return g.opened }

// IsOpen reports whether the gate is open.
func (g *Gate) IsOpen() bool {
	select {
	case <-g.opened:
		return true
	default:
		return false
	}
}
