package admission

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"portico/resource"
	"portico/resource/client"
	"portico/resource/loop"
)

const (
	// namespaceTimeout bounds a live read of one namespace.
	namespaceTimeout = 5 * time.Second
	// maxAsked bounds the namespaces that are remembered from live reads.
	maxAsked = 10000
)

// namespaceBackoff is how often following is tried. It grows slowly, because the
// server of namespaces has most often been started together with this process.
var namespaceBackoff = loop.Backoff{Initial: 20 * time.Millisecond, Factor: 1.3, Max: time.Second}

// NamespaceStates are the states of namespaces that another server keeps, for
// NamespaceLifecycle. They are followed over HTTP; the last state stays while the
// server cannot be reached. Safe for concurrent use.
type NamespaceStates struct {
	store resource.Store // nil: there is no server to read from
	log   *slog.Logger
	// known says of each namespace whether it is being deleted; nil: they were
	// never read.
	known atomic.Pointer[map[string]bool]

	mu sync.Mutex
	// asked is the same of namespaces that were read live since known is the state.
	asked map[string]bool
}

// NamespacesOver returns the store of namespaces behind a client; nil for nil.
func NamespacesOver(c *client.Client) resource.Store {
	if c == nil {
		return nil
	}
	return c.Store(&resource.Info{Versions: []string{"v1"}, Resource: "namespaces", Kind: "Namespace"})
}

// NewNamespaceStates returns states that follow nothing before Run. Without a
// store (nil) every Lookup that must be live fails. nil as logger is
// slog.Default().
func NewNamespaceStates(store resource.Store, log *slog.Logger) *NamespaceStates {
	if log == nil {
		log = slog.Default()
	}
	return &NamespaceStates{store: store, log: log}
}

// Run follows the namespaces until ctx ends, and returns ctx's error.
func (n *NamespaceStates) Run(ctx context.Context) error {
	if n.store == nil {
		<-ctx.Done()
		return ctx.Err()
	}
	return loop.Follow(ctx, n.store, loop.FollowOptions{Logger: n.log, Backoff: namespaceBackoff}, func(s loop.Snapshot) {
		known := make(map[string]bool, len(s.Items))
		for _, o := range s.Items {
			known[o.Name] = o.Terminating()
		}
		n.known.Store(&known)
		n.mu.Lock()
		defer n.mu.Unlock()
		clear(n.asked)
	})
}

// Ready returns nil once the namespaces were read, or if there is no server to
// read them from.
func (n *NamespaceStates) Ready() error {
	if n.store != nil && n.known.Load() == nil {
		return errors.New("the namespaces have not been read yet")
	}
	return nil
}

// Lookup is LifecycleConfig.Lookup. An error means that the state is not known
// and the server cannot be asked.
func (n *NamespaceStates) Lookup(ctx context.Context, name string, live bool) (NamespaceState, error) {
	if !live {
		return n.remembered(name), nil
	}
	if n.store == nil {
		return NamespaceState{}, errors.New("no gateway is configured to ask for namespaces")
	}
	ctx, cancel := context.WithTimeout(ctx, namespaceTimeout)
	defer cancel()
	before := n.known.Load()
	o, err := n.store.Get(ctx, resource.Key{Name: name}, resource.At{})
	switch {
	case apierrors.IsNotFound(err) && resource.AsStatus(err).Details != nil:
		return NamespaceState{}, nil
	case err != nil:
		return NamespaceState{}, fmt.Errorf("ask the server of namespaces: %w", err)
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.asked == nil {
		n.asked = map[string]bool{}
	}
	// A state that was published meanwhile may be newer than the answer.
	if n.known.Load() == before && len(n.asked) < maxAsked {
		n.asked[name] = o.Terminating()
	}
	return NamespaceState{Exists: true, Terminating: o.Terminating()}, nil
}

// remembered returns the last known state of a namespace.
func (n *NamespaceStates) remembered(name string) NamespaceState {
	if known := n.known.Load(); known != nil {
		if terminating, ok := (*known)[name]; ok {
			return NamespaceState{Exists: true, Terminating: terminating}
		}
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	terminating, ok := n.asked[name]
	return NamespaceState{Exists: ok, Terminating: terminating}
}
