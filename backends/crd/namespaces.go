package crd

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"portico/resource"
	"portico/resource/admission"
	"portico/resource/client"
	"portico/resource/loop"
)

const (
	// namespaceTimeout bounds asking the core server about one namespace.
	namespaceTimeout = 5 * time.Second
	// maxAsked bounds the namespaces that are remembered from asking.
	maxAsked = 10000
)

// namespaceBackoff is how often following is tried. It grows slowly, because
// the gateway and the core server have most often been started together with
// this one.
var namespaceBackoff = loop.Backoff{Initial: 20 * time.Millisecond, Factor: 1.3, Max: time.Second}

// namespaces are what is known of the namespaces, which the core server keeps.
// They are followed through the gateway; the last state stays while neither can
// be reached.
type namespaces struct {
	store resource.Store // nil: there is no gateway to ask
	// known says of each namespace whether it is being deleted; nil: they were
	// never read.
	known atomic.Pointer[map[string]bool]

	mu sync.Mutex
	// asked is the same of those that were asked for since known is the state.
	asked map[string]bool
}

// newNamespaces follows nothing yet. gateway may be nil.
func newNamespaces(gateway *client.Client) *namespaces {
	n := &namespaces{}
	if gateway != nil {
		n.store = gateway.Store(&resource.Info{Versions: []string{"v1"}, Resource: "namespaces", Kind: "Namespace"})
	}
	return n
}

// run follows until ctx ends.
func (n *namespaces) run(ctx context.Context, opts loop.FollowOptions) error {
	if n.store == nil {
		<-ctx.Done()
		return ctx.Err()
	}
	opts.Backoff = namespaceBackoff
	return loop.Follow(ctx, n.store, opts, func(s loop.Snapshot) {
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

// ready returns nil once the namespaces were read, or if there is no gateway to
// read them from.
func (n *namespaces) ready() error {
	if n.store != nil && n.known.Load() == nil {
		return errors.New("the namespaces have not been read yet")
	}
	return nil
}

// lookup is what admission knows of a namespace. An error means that it is not
// known and the core server cannot be asked.
func (n *namespaces) lookup(ctx context.Context, name string, live bool) (admission.NamespaceState, error) {
	if !live {
		return n.remembered(name), nil
	}
	if n.store == nil {
		return admission.NamespaceState{}, errors.New("no gateway is configured to ask for namespaces")
	}
	ctx, cancel := context.WithTimeout(ctx, namespaceTimeout)
	defer cancel()
	before := n.known.Load()
	o, err := n.store.Get(ctx, resource.Key{Name: name}, resource.At{})
	switch {
	case apierrors.IsNotFound(err) && resource.AsStatus(err).Details != nil:
		return admission.NamespaceState{}, nil
	case err != nil:
		return admission.NamespaceState{}, fmt.Errorf("ask the core server through the gateway: %w", err)
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.asked == nil {
		n.asked = map[string]bool{}
	}
	// A state that came meanwhile may be newer than the answer.
	if n.known.Load() == before && len(n.asked) < maxAsked {
		n.asked[name] = o.Terminating()
	}
	return admission.NamespaceState{Exists: true, Terminating: o.Terminating()}, nil
}

// remembered returns what is at hand of a namespace.
func (n *namespaces) remembered(name string) admission.NamespaceState {
	if known := n.known.Load(); known != nil {
		if terminating, ok := (*known)[name]; ok {
			return admission.NamespaceState{Exists: true, Terminating: terminating}
		}
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	terminating, ok := n.asked[name]
	return admission.NamespaceState{Exists: ok, Terminating: terminating}
}
