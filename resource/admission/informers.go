package admission

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	corev1client "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/tools/cache"

	"portico/resource"
	"portico/resource/loop"
	"portico/resource/rest"
)

const (
	configurationGroup = admissionv1.GroupName
	// lookupTimeout bounds a read that a write waits for.
	lookupTimeout = 5 * time.Second
)

// followBackoff is the backoff of informers. It grows slowly and has a low maximum, because
// the server of the configurations usually starts together with this process, and writes
// wait for the first read.
var followBackoff = loop.Backoff{Initial: 20 * time.Millisecond, Factor: 1.3, Max: 2 * time.Second}

// informer follows all objects of one cluster-scoped kind in a store and presents them to
// upstream's engines, which read configurations from informers. It implements the methods
// that the engines call; the others are nil. Safe for concurrent use.
type informer struct {
	cache.SharedIndexInformer
	store   resource.Reader
	codec   rest.Codec
	logger  *slog.Logger
	indexer cache.Indexer
	used    func() // called when there are objects; may be called again
	synced  *gate  // open once there is a state, read or restored
	// read is the last state of the store; nil before the first.
	read atomic.Pointer[loop.Snapshot]
	some atomic.Bool // there are objects

	mu       sync.Mutex // guards handlers, and is held by replace
	handlers []cache.ResourceEventHandler
}

// newInformer returns an informer of a kind in the scheme of the engine.
func newInformer(e *Engine, info *resource.Info, used func()) *informer {
	return &informer{
		store: e.store(info), codec: rest.Typed(e.scheme, info.GVK(info.Versions[0])), logger: e.logger,
		indexer: cache.NewIndexer(cache.MetaNamespaceKeyFunc, cache.Indexers{}), used: used, synced: newGate(),
	}
}

// run follows the store until ctx ends.
func (i *informer) run(ctx context.Context) {
	// Follow returns only the error of ctx.
	_ = loop.Follow(ctx, i.store, loop.FollowOptions{Logger: i.logger, Backoff: followBackoff}, func(s loop.Snapshot) {
		i.mu.Lock()
		defer i.mu.Unlock()
		i.read.Store(&s)
		i.replace(s.Items)
	})
}

// restore sets the objects that an earlier process read, unless the store was read since.
func (i *informer) restore(objects []*resource.Object) {
	i.mu.Lock()
	defer i.mu.Unlock()
	if i.read.Load() == nil {
		i.replace(objects)
	}
}

// replace sets the objects and calls the handlers for the differences. An object that does
// not decode keeps its previous state, or is left out. The caller holds mu.
func (i *informer) replace(objects []*resource.Object) {
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
		obj, err := i.codec.DecodeStored(o)
		if err != nil {
			i.logger.Error("decoding a configuration failed, its previous state applies", "object", o.Key(), "error", err)
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
	if len(objects) > 0 {
		i.used()
	}
	i.synced.open()
}

// isRevision reports whether obj was decoded from o or from an equal revision.
func isRevision(obj rest.Object, o *resource.Object) bool {
	return string(obj.GetUID()) == o.UID && obj.GetResourceVersion() == fmt.Sprint(o.Revision)
}

// GetIndexer implements cache.SharedIndexInformer.
func (i *informer) GetIndexer() cache.Indexer { return i.indexer }

// HasSynced implements cache.SharedIndexInformer.
func (i *informer) HasSynced() bool { return i.synced.isOpen() }

// AddEventHandler implements cache.SharedIndexInformer. h is called for later changes only.
func (i *informer) AddEventHandler(h cache.ResourceEventHandler) (cache.ResourceEventHandlerRegistration, error) {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.handlers = append(i.handlers, h)
	return registration{}, nil
}

// RemoveEventHandler implements cache.SharedIndexInformer. Handlers end with the informer.
func (i *informer) RemoveEventHandler(cache.ResourceEventHandlerRegistration) error { return nil }

// registration of a handler has always synced: handlers are added to synced informers.
type registration struct {
	cache.ResourceEventHandlerRegistration
}

func (registration) HasSynced() bool { return true }

// gate is closed until something is known for the first time.
type gate struct {
	once   sync.Once
	opened chan struct{}
}

func newGate() *gate { return &gate{opened: make(chan struct{})} }

func (g *gate) open() { g.once.Do(func() { close(g.opened) }) }

func (g *gate) isOpen() bool {
	select {
	case <-g.opened:
		return true
	default:
		return false
	}
}

// waitAll waits until the gates are open, at most for limit, and reports whether they are.
func waitAll(ctx context.Context, limit time.Duration, gates ...*gate) bool {
	var cancel context.CancelFunc
	for _, g := range gates {
		if g.isOpen() {
			continue
		}
		if cancel == nil {
			ctx, cancel = context.WithTimeout(ctx, limit)
			defer cancel()
		}
		select {
		case <-g.opened:
		case <-ctx.Done():
			return false
		}
	}
	return true
}

// namespaces are the namespaces for upstream's engines, which use their labels in selectors
// and the objects in CEL expressions. They are followed once there is a configuration. The
// engines read a namespace that is not known through client.
type namespaces struct {
	*informer
	needed *gate // opened by the first configuration
}

func newNamespaces(e *Engine) *namespaces {
	return &namespaces{informer: newInformer(e, namespaceInfo(), func() {}), needed: newGate()}
}

// namespaceInfo describes the resource namespaces.
func namespaceInfo() *resource.Info {
	return &resource.Info{Versions: []string{"v1"}, Resource: "namespaces", Kind: "Namespace"}
}

// HasSynced implements cache.SharedIndexInformer. It returns true, so that the engines do not
// wait: they read unknown namespaces.
func (n *namespaces) HasSynced() bool { return true }

func (n *namespaces) run(ctx context.Context) {
	select {
	case <-n.needed.opened:
		n.informer.run(ctx)
	case <-ctx.Done():
	}
}

// client returns a clientset with the only method that the engines call: Get of a namespace.
// The others are nil.
func (n *namespaces) client() kubernetes.Interface { return clientset{namespaces: n} }

type clientset struct {
	kubernetes.Interface
	namespaces *namespaces
}

func (c clientset) CoreV1() corev1client.CoreV1Interface { return coreClient{namespaces: c.namespaces} }

type coreClient struct {
	corev1client.CoreV1Interface
	namespaces *namespaces
}

func (c coreClient) Namespaces() corev1client.NamespaceInterface {
	return namespaceClient{namespaces: c.namespaces}
}

type namespaceClient struct {
	corev1client.NamespaceInterface
	namespaces *namespaces
}

// Get reads a namespace from the store.
func (c namespaceClient) Get(ctx context.Context, name string, _ metav1.GetOptions) (*corev1.Namespace, error) {
	ctx, cancel := context.WithTimeout(ctx, lookupTimeout)
	defer cancel()
	o, err := c.namespaces.store.Get(ctx, resource.Key{Name: name}, resource.At{})
	if err != nil {
		return nil, err
	}
	obj, err := c.namespaces.codec.DecodeStored(o)
	if err != nil {
		return nil, apierrors.NewInternalError(fmt.Errorf("read namespace %q: %w", name, err))
	}
	return obj.(*corev1.Namespace), nil
}
