package crd

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"portico/resource"
	"portico/resource/admission"
	"portico/resource/client"
	"portico/resource/loop"
)

// namespaceTimeout bounds asking the core server about one namespace.
const namespaceTimeout = 5 * time.Second

// namespaces are what is known of the namespaces, which the core server keeps.
// They are followed through the gateway; the last state stays while neither can
// be reached.
type namespaces struct {
	store resource.Store // nil: there is no gateway to ask
	known atomic.Pointer[map[string]bool]
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
	return loop.Follow(ctx, n.store, opts, func(s loop.Snapshot) {
		known := make(map[string]bool, len(s.Items))
		for _, o := range s.Items {
			known[o.Name] = o.Terminating()
		}
		n.known.Store(&known)
	})
}

// lookup is what admission knows of a namespace. An error means that it is not
// known and the core server cannot be asked.
func (n *namespaces) lookup(ctx context.Context, name string, live bool) (admission.NamespaceState, error) {
	if !live {
		if known := n.known.Load(); known != nil {
			terminating, ok := (*known)[name]
			return admission.NamespaceState{Exists: ok, Terminating: terminating}, nil
		}
		return admission.NamespaceState{}, nil
	}
	if n.store == nil {
		return admission.NamespaceState{}, errors.New("no gateway is configured to ask for namespaces")
	}
	ctx, cancel := context.WithTimeout(ctx, namespaceTimeout)
	defer cancel()
	o, err := n.store.Get(ctx, resource.Key{Name: name}, resource.At{})
	switch {
	case apierrors.IsNotFound(err) && resource.AsStatus(err).Details != nil:
		return admission.NamespaceState{}, nil
	case err != nil:
		return admission.NamespaceState{}, fmt.Errorf("ask the core server through the gateway: %w", err)
	}
	return admission.NamespaceState{Exists: true, Terminating: o.Terminating()}, nil
}
