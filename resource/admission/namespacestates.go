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
	// maxAsked bounds the cached results of live reads.
	maxAsked = 10000
)

// namespaceBackoff grows slowly, because the server of namespaces usually starts together with
// this process.
var namespaceBackoff = loop.Backoff{Initial: 20 * time.Millisecond, Factor: 1.3, Max: time.Second}

// NamespaceStates are the states of the namespaces of another server, for NamespaceLifecycle.
// They are followed over HTTP; while the server cannot be reached the last state applies. Safe
// for concurrent use.
type NamespaceStates struct {
	store resource.Reader // nil: there is no server
	log   *slog.Logger
	// known has each namespace, and whether it is being deleted; nil before the first read.
	known atomic.Pointer[map[string]bool]

	mu sync.Mutex
	// asked has the results of live reads since known was set.
	asked map[string]bool
}

// NamespacesOver returns a reader of namespaces over a client; nil for nil.
func NamespacesOver(c *client.Client) resource.Reader {
	if c == nil {
		return nil
	}
	return c.Reader(namespaceInfo())
}

// NewNamespaceStates returns the states of the namespaces in a store, which Run follows.
// Without a store (nil) live lookups fail. A nil logger is slog.Default().
func NewNamespaceStates(store resource.Reader, log *slog.Logger) *NamespaceStates {
	if log == nil {
		log = slog.Default()
	}
	return &NamespaceStates{store: store, log: log}
}

// Run follows the namespaces until ctx ends, and returns its error.
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

// Ready returns nil once the namespaces were read, or without a store.
func (n *NamespaceStates) Ready() error {
	if n.store != nil && n.known.Load() == nil {
		return errors.New("the namespaces have not been read yet")
	}
	return nil
}

// Lookup is a LookupNamespace.
func (n *NamespaceStates) Lookup(ctx context.Context, name string, live bool) (NamespaceState, error) {
	if !live {
		return n.cached(name), nil
	}
	if n.store == nil {
		return NamespaceState{}, errors.New("no gateway is configured to read namespaces from")
	}
	ctx, cancel := context.WithTimeout(ctx, namespaceTimeout)
	defer cancel()
	before := n.known.Load()
	o, err := n.store.Get(ctx, resource.Key{Name: name}, resource.At{})
	switch {
	case apierrors.IsNotFound(err) && resource.AsStatus(err).Details != nil:
		return NamespaceState{}, nil
	case err != nil:
		return NamespaceState{}, fmt.Errorf("read namespace: %w", err)
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.asked == nil {
		n.asked = map[string]bool{}
	}
	// A state that was set meanwhile may be newer than the response.
	if n.known.Load() == before && len(n.asked) < maxAsked {
		n.asked[name] = o.Terminating()
	}
	return NamespaceState{Exists: true, Terminating: o.Terminating()}, nil
}

// cached returns the last known state of a namespace.
func (n *NamespaceStates) cached(name string) NamespaceState {
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
