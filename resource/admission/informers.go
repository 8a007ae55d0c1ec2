package admission

import (
	"context"
	"fmt"
	"time"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	corev1client "k8s.io/client-go/kubernetes/typed/core/v1"

	"portico/resource"
	"portico/resource/rest"
	"portico/resource/rest/informer"
)

const (
	configurationGroup = admissionv1.GroupName
	// lookupTimeout bounds a read that a write waits for.
	lookupTimeout = 5 * time.Second
)

// newInformer returns an informer of a kind in the scheme of the engine. used is called when
// there are objects, and may be called again.
func newInformer(e *Engine, info *resource.Info, used func()) *informer.Informer {
	store, codec := e.open(info)
	return informer.New(informer.Config{Store: store, Codec: codec, Used: used, Logger: e.logger})
}

// waitAll waits until the gates are open, at most for limit, and reports whether they are.
func waitAll(ctx context.Context, limit time.Duration, gates ...*informer.Gate) bool {
	var cancel context.CancelFunc
	for _, g := range gates {
		if g.IsOpen() {
			continue
		}
		if cancel == nil {
			ctx, cancel = context.WithTimeout(ctx, limit)
			defer cancel()
		}
		select {
		case <-g.Opened():
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
	*informer.Informer
	store  resource.Reader
	codec  rest.Codec
	needed *informer.Gate // opened by the first configuration
}

func newNamespaces(e *Engine) *namespaces {
	info := namespaceInfo()
	store, codec := e.open(info)
	return &namespaces{Informer: newInformer(e, info, nil), store: store, codec: codec, needed: informer.NewGate()}
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
	case <-n.needed.Opened():
		n.Follow(ctx)
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
