package admission

import (
	"context"
	"fmt"
	"sync/atomic"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes"
	corev1client "k8s.io/client-go/kubernetes/typed/core/v1"
	corev1listers "k8s.io/client-go/listers/core/v1"

	"portico/resource"
)

// namespaces is what the engines know of namespaces: their labels, for
// selectors, and the namespaceObject of CEL expressions. They are followed from
// the first configuration on; until they were read, and where one is missing,
// the engines read it themselves.
type namespaces struct {
	corev1listers.NamespaceListerExpansion
	needed *gate
	source *source[*corev1.Namespace]
	known  atomic.Pointer[map[string]*corev1.Namespace]
}

var _ corev1listers.NamespaceLister = (*namespaces)(nil)

func newNamespaces(e *Engine) *namespaces {
	n := &namespaces{needed: newGate()}
	info := &resource.Info{Versions: []string{"v1"}, Resource: "namespaces", Kind: "Namespace"}
	n.source = newSource(e, info, n.publish)
	return n
}

func (n *namespaces) run(ctx context.Context) {
	select {
	case <-n.needed.opened:
		n.source.run(ctx)
	case <-ctx.Done():
	}
}

func (n *namespaces) publish(list []*corev1.Namespace) {
	known := make(map[string]*corev1.Namespace, len(list))
	for _, ns := range list {
		known[ns.Name] = ns
	}
	n.known.Store(&known)
}

// List implements NamespaceLister.
func (n *namespaces) List(selector labels.Selector) (out []*corev1.Namespace, err error) {
	if known := n.known.Load(); known != nil {
		for _, ns := range *known {
			if selector.Matches(labels.Set(ns.Labels)) {
				out = append(out, ns)
			}
		}
	}
	return out, nil
}

// Get implements NamespaceLister. NotFound has the engines read for themselves.
func (n *namespaces) Get(name string) (*corev1.Namespace, error) {
	if known := n.known.Load(); known != nil && (*known)[name] != nil {
		return (*known)[name], nil
	}
	return nil, apierrors.NewNotFound(schema.GroupResource{Resource: "namespaces"}, name)
}

// read returns a namespace as it is now.
func (n *namespaces) read(ctx context.Context, name string) (*corev1.Namespace, error) {
	ctx, cancel := context.WithTimeout(ctx, lookupTimeout)
	defer cancel()
	o, err := n.source.store.Get(ctx, resource.Key{Name: name}, resource.At{})
	if err != nil {
		return nil, err
	}
	ns, err := n.source.decodeOne(o)
	if err != nil {
		return nil, apierrors.NewInternalError(fmt.Errorf("read namespace %q: %w", name, err))
	}
	return ns, nil
}

// client returns a clientset that can do what the engines ask of one: get a
// namespace. Anything else is a nil pointer.
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

func (c namespaceClient) Get(ctx context.Context, name string, _ metav1.GetOptions) (*corev1.Namespace, error) {
	return c.namespaces.read(ctx, name)
}
