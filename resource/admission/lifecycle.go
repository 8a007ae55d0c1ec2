package admission

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"portico/resource"
	"portico/resource/client"
	"portico/resource/loop"
	"portico/resource/rest"
)

const (
	// missingWait is the wait for a namespace that is not in the cache: it may just have been
	// created.
	missingWait = 50 * time.Millisecond
	// deletedMemory is how long the deletion of a namespace is kept in memory, and maxDeleted
	// the largest number of them.
	deletedMemory = 30 * time.Second
	maxDeleted    = 1000
)

// NamespaceState is the state of a namespace.
type NamespaceState struct{ Exists, Terminating bool }

// LookupNamespace returns the state of a namespace; with live, the latest one. An error means
// that it is unknown.
type LookupNamespace func(ctx context.Context, name string, live bool) (NamespaceState, error)

// NamespaceLifecycle rejects creations in namespaces that are missing or being deleted, and
// the deletion of namespaces that a cluster needs (docs/wire.md 10.4). It permits all updates
// and deletions in a namespace.
func NamespaceLifecycle(lookup LookupNamespace) rest.Admission {
	return &lifecycle{lookup: lookup, deleted: map[string]time.Time{}}
}

type lifecycle struct {
	lookup LookupNamespace

	mu      sync.Mutex
	deleted map[string]time.Time
}

// Mutate implements rest.Admission. It changes nothing.
func (l *lifecycle) Mutate(ctx context.Context, a *rest.Attributes) error {
	begun := time.Now()
	err := l.decide(ctx, a)
	Observe(ctx, begun, PluginLifecycle, PhaseAdmit, a.Operation, err)
	return err
}

func (l *lifecycle) decide(ctx context.Context, a *rest.Attributes) error {
	switch {
	case a.Kind.Review != nil:
		return nil
	case a.Kind.Group == "" && a.Kind.Resource == "namespaces":
		if a.Operation == rest.Delete {
			return l.deleteNamespace(a)
		}
		return nil
	case a.Operation != rest.Create || a.Key.Namespace == "":
		return nil
	}
	state, err := l.find(ctx, a.Key.Namespace)
	switch {
	case err != nil:
		return resource.Unavailable(fmt.Sprintf("namespace %q cannot be looked up: %v", a.Key.Namespace, err), 1)
	case !state.Exists:
		return apierrors.NewNotFound(schema.GroupResource{Resource: "namespaces"}, a.Key.Namespace)
	case state.Terminating:
		return terminating(a)
	}
	return nil
}

// Validate implements rest.Admission. It permits everything.
func (l *lifecycle) Validate(context.Context, *rest.Attributes) error { return nil }

func (l *lifecycle) deleteNamespace(a *rest.Attributes) error {
	switch a.Key.Name {
	case metav1.NamespaceDefault, metav1.NamespaceSystem, metav1.NamespacePublic:
		return apierrors.NewForbidden(a.Kind.GroupResource(), a.Key.Name, fmt.Errorf("this namespace may not be deleted"))
	}
	if a.DryRun {
		return nil
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	now := time.Now()
	for name, when := range l.deleted {
		if now.Sub(when) > deletedMemory {
			delete(l.deleted, name)
		}
	}
	if len(l.deleted) < maxDeleted {
		l.deleted[a.Key.Name] = now
	}
	return nil
}

// find looks up a namespace: in the cache, after missingWait again in the cache, and then
// live. A namespace that was deleted recently is looked up live at once.
func (l *lifecycle) find(ctx context.Context, name string) (NamespaceState, error) {
	l.mu.Lock()
	when, recent := l.deleted[name]
	recent = recent && time.Since(when) <= deletedMemory
	l.mu.Unlock()
	if recent {
		return l.lookup(ctx, name, true)
	}
	state, err := l.lookup(ctx, name, false)
	if err == nil && state.Exists {
		return state, nil
	}
	timer := time.NewTimer(missingWait)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
		return NamespaceState{}, ctx.Err()
	}
	if state, err = l.lookup(ctx, name, false); err == nil && state.Exists {
		return state, nil
	}
	return l.lookup(ctx, name, true)
}

func terminating(a *rest.Attributes) error {
	ns := a.Key.Namespace
	err := apierrors.NewForbidden(a.Kind.GroupResource(), a.Key.Name,
		fmt.Errorf("unable to create new content in namespace %s because it is being terminated", ns))
	err.ErrStatus.Details.Causes = append(err.ErrStatus.Details.Causes, metav1.StatusCause{
		Type: corev1.NamespaceTerminatingCause, Message: fmt.Sprintf("namespace %s is being terminated", ns), Field: "metadata.namespace",
	})
	return err
}

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
