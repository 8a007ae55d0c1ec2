package lastgood

import (
	"context"
	"log/slog"
	"maps"
	"sync"
	"time"

	"portico/resource/etcd"
	"portico/resource/loop"
)

const (
	// keepInterval is how often what is known is compared with what is kept.
	// That costs next to nothing while nothing changes.
	keepInterval = 2 * time.Second
	// awayAfter is how long a gateway that starts waits for etcd before it goes by
	// the local copy alone.
	awayAfter = time.Second
	// readPause bounds the pause between attempts to read etcd.
	readPause = 250 * time.Millisecond
)

// Config of a Keeper. All functions are required.
type Config struct {
	// Etcd keeps the documents that all gateways share.
	Etcd *etcd.Documents
	// StateDir is the folder of the local copy; "": there is none.
	StateDir string
	// Now returns the documents of all that is known now.
	Now func(ctx context.Context) []Document
	// Restore takes a document over, as far as nobody has said anything since. An
	// error is that of the document, which is then not used.
	Restore func(name string, data []byte) error
	// Gone returns a function that tells documents of what does not exist any
	// more; they are dropped.
	Gone func() func(name string) bool
	// CopyOnly tells documents that do not belong into etcd.
	CopyOnly func(name string) bool
	// Away is called once if etcd is not there soon after the start, with the
	// documents of the local copy.
	Away func(copied map[string][]byte)
	// Logger, nil: slog.Default().
	Logger *slog.Logger
}

// Document is a document as of what is known now. Documents with equal states
// are equal.
type Document struct {
	Name  string
	State any
	Value func() any // what Pack takes
}

// Keeper keeps documents. Safe for concurrent use.
type Keeper struct {
	cfg  Config
	log  *slog.Logger
	copy *localCopy // nil: there is none
	// read is closed once etcd's documents are restored.
	read chan struct{}

	mu     sync.Mutex
	packed map[string]packed
}

// packed is a document as it is kept.
type packed struct {
	// state identifies what it was made of; nil is a document from before,
	// which stands until there is something to replace it.
	state any
	data  []byte
}

// New returns a Keeper, and makes its folder.
func New(cfg Config) (*Keeper, error) {
	if cfg.Logger == nil {
		cfg.Logger = slog.Default()
	}
	k := &Keeper{cfg: cfg, log: cfg.Logger, read: make(chan struct{}), packed: map[string]packed{}}
	var err error
	if cfg.StateDir != "" {
		k.copy, err = newLocalCopy(cfg.StateDir)
	}
	return k, err
}

// HasCopy reports whether there is a local copy.
func (k *Keeper) HasCopy() bool { return k.copy != nil }

// Run restores what was kept and keeps the local copy until ctx ends. Run it
// once.
func (k *Keeper) Run(ctx context.Context) error {
	var copied map[string][]byte
	if k.copy != nil {
		var err error
		if copied, err = k.copy.read(); err != nil {
			k.log.Warn("the local last-good copy is not used", "err", err)
		}
		k.Restore(copied)
	}
	return loop.Together(ctx, k.readEtcd,
		func(ctx context.Context) error { return k.goByCopy(ctx, copied) },
		k.keepCopy,
	)
}

// readEtcd restores what is kept in etcd, once etcd can be read.
func (k *Keeper) readEtcd(ctx context.Context) error {
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
		close(k.read)
		return nil
	})
	if err != nil {
		return err
	}
	<-ctx.Done()
	return ctx.Err()
}

// goByCopy has the gateway go by the local copy if etcd is not there soon, and
// ends with ctx.
func (k *Keeper) goByCopy(ctx context.Context, copied map[string][]byte) error {
	timer := time.NewTimer(awayAfter)
	defer timer.Stop()
	select {
	case <-k.read:
	case <-ctx.Done():
	case <-timer.C:
		if len(copied) > 0 {
			k.log.Warn("etcd is away; routes and access policy are those of the local copy until it answers")
			k.cfg.Away(copied)
		}
	}
	<-ctx.Done()
	return ctx.Err()
}

// Await waits until etcd's documents are restored; false if ctx ended.
func (k *Keeper) Await(ctx context.Context) bool {
	select {
	case <-k.read:
		return true
	case <-ctx.Done():
		return false
	}
}

// Restore takes documents over, each unless a newer one is known already: what is in
// etcd may be older than the local copy, because it was not written for a while or has
// become too large. One that is broken is left out.
func (k *Keeper) Restore(docs map[string][]byte) {
	for name, data := range docs {
		if k.hasNewer(name, data) {
			continue
		}
		if err := k.cfg.Restore(name, data); err != nil {
			k.log.Warn("a last-good document is not used", "document", name, "err", err)
			continue
		}
		k.mu.Lock()
		if k.packed[name].state == nil {
			k.packed[name] = packed{data: data}
		}
		k.mu.Unlock()
	}
}

func (k *Keeper) hasNewer(name string, data []byte) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	return madeAt(k.packed[name].data) > madeAt(data)
}

// Documents brings the documents up to date and returns them. What is not known
// now stays as it was kept.
func (k *Keeper) Documents(ctx context.Context) map[string][]byte {
	k.mu.Lock()
	defer k.mu.Unlock()
	for _, d := range k.cfg.Now(ctx) {
		if old, ok := k.packed[d.Name]; ok && old.state == d.State {
			continue
		}
		data, err := Pack(d.Value())
		if err != nil {
			k.log.Error("a last-good document cannot be made", "document", d.Name, "err", err)
			continue
		}
		if old := k.packed[d.Name].data; same(old, data) {
			data = old // whoever has it recognises it
		} else {
			setMade(data, madeAfter(old))
		}
		k.packed[d.Name] = packed{d.State, data}
	}
	gone := k.cfg.Gone()
	maps.DeleteFunc(k.packed, func(name string, _ packed) bool { return gone(name) })
	out := make(map[string][]byte, len(k.packed))
	for name, d := range k.packed {
		out[name] = d.data
	}
	return out
}

// Restored counts the documents from before that nobody has said anew.
func (k *Keeper) Restored() (n int) {
	k.mu.Lock()
	defer k.mu.Unlock()
	for _, d := range k.packed {
		if d.state == nil {
			n++
		}
	}
	return n
}
