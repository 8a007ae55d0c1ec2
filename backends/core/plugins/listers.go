package plugins

import (
	"context"
	"errors"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	nodev1 "k8s.io/api/node/v1"
	schedulingv1 "k8s.io/api/scheduling/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/informers"
	clientset "k8s.io/client-go/kubernetes"
	corev1client "k8s.io/client-go/kubernetes/typed/core/v1"
	nodev1client "k8s.io/client-go/kubernetes/typed/node/v1"
	"k8s.io/client-go/tools/cache"

	"portico/resource"
	"portico/resource/rest"
)

// readTimeout bounds a read of a plugin, which has no context.
const readTimeout = 5 * time.Second

// read are the resources that plugins read, with the type of their objects.
var read = []struct {
	group, resource string
	obj             runtime.Object
}{
	{"", "namespaces", &corev1.Namespace{}},
	{"", "nodes", &corev1.Node{}},
	{"", "pods", &corev1.Pod{}},
	{"", "limitranges", &corev1.LimitRange{}},
	{"", "serviceaccounts", &corev1.ServiceAccount{}},
	{"", "persistentvolumes", &corev1.PersistentVolume{}},
	{"", "persistentvolumeclaims", &corev1.PersistentVolumeClaim{}},
	{networkingv1.GroupName, "ingressclasses", &networkingv1.IngressClass{}},
	{nodev1.GroupName, "runtimeclasses", &nodev1.RuntimeClass{}},
	{schedulingv1.GroupName, "priorityclasses", &schedulingv1.PriorityClass{}},
	{storagev1.GroupName, "csidrivers", &storagev1.CSIDriver{}},
	{storagev1.GroupName, "storageclasses", &storagev1.StorageClass{}},
}

// newInformers returns a factory of informers that do not watch. Their listers read the watch cache, so
// that no object is in memory twice.
func newInformers(cfg *Config) informers.SharedInformerFactory {
	factory := informers.NewSharedInformerFactory(nil, 0)
	for _, r := range read {
		in := &cached{resource: cfg.Resource(r.group, r.resource)}
		factory.InformerFor(r.obj, func(clientset.Interface, time.Duration) cache.SharedIndexInformer { return in })
	}
	return factory
}

// cached is the informer and the indexer of a resource. Methods that listers do not call panic.
type cached struct {
	cache.SharedIndexInformer
	cache.Indexer
	resource *rest.Resource
}

// HasSynced implements cache.SharedIndexInformer. The watch cache waits by itself.
func (c *cached) HasSynced() bool { return true }

// GetIndexer implements cache.SharedIndexInformer.
func (c *cached) GetIndexer() cache.Indexer { return c }

// AddIndexers implements cache.SharedIndexInformer.
func (c *cached) AddIndexers(cache.Indexers) error {
	return errors.New("objects of the watch cache have no index but the namespace")
}

// readError is the panic of a method that returns no error. kubernetesWrite.call returns it as the error
// of the plugin.
type readError struct{ error }

// List implements cache.Indexer. If the objects cannot be read it panics with a readError.
func (c *cached) List() []any { return c.mustList("") }

func (c *cached) mustList(namespace string) []any {
	all, err := c.list(namespace)
	if err != nil {
		panic(readError{fmt.Errorf("list %s: %w", c.resource.Resource, err)})
	}
	return all
}

// Index implements cache.Indexer for cache.NamespaceIndex. Callers ignore its error and call List, so it
// panics as List does.
func (c *cached) Index(_ string, obj any) ([]any, error) {
	return c.mustList(obj.(metav1.Object).GetNamespace()), nil
}

func (c *cached) list(namespace string) ([]any, error) {
	ctx, cancel := context.WithTimeout(context.Background(), readTimeout)
	defer cancel()
	all, err := rest.ListObjects[rest.Object](ctx, c.resource, resource.ListOptions{Namespace: namespace, At: resource.At{Freshness: resource.Any}})
	out := make([]any, len(all))
	for i := range all {
		out[i] = all[i]
	}
	return out, err
}

// GetByKey implements cache.Indexer.
func (c *cached) GetByKey(key string) (item any, exists bool, err error) {
	namespace, name, err := cache.SplitMetaNamespaceKey(key)
	if err != nil {
		return nil, false, err
	}
	obj, err := get[rest.Object](c.resource, namespace, name, resource.At{Freshness: resource.Any})
	if apierrors.IsNotFound(err) {
		return nil, false, nil
	}
	return obj, err == nil, err
}

func get[T rest.Object](r *rest.Resource, namespace, name string, at resource.At) (T, error) {
	ctx, cancel := context.WithTimeout(context.Background(), readTimeout)
	defer cancel()
	return rest.GetObject[T](ctx, r, resource.Key{Namespace: namespace, Name: name}, at)
}

// client is a clientset with the methods that plugins call, which read and write storage.
type client struct {
	clientset.Interface
	cfg *Config
}

func newClient(cfg *Config) clientset.Interface { return client{cfg: cfg} }

// CoreV1 implements kubernetes.Interface.
func (c client) CoreV1() corev1client.CoreV1Interface { return coreClient{cfg: c.cfg} }

// NodeV1 implements kubernetes.Interface.
func (c client) NodeV1() nodev1client.NodeV1Interface { return nodeClient{cfg: c.cfg} }

type coreClient struct {
	corev1client.CoreV1Interface
	cfg *Config
}

// Namespaces implements corev1client.CoreV1Interface.
func (c coreClient) Namespaces() corev1client.NamespaceInterface {
	return namespaces{resource: c.cfg.Resource("", "namespaces")}
}

// ServiceAccounts implements corev1client.CoreV1Interface.
func (c coreClient) ServiceAccounts(namespace string) corev1client.ServiceAccountInterface {
	return serviceAccounts{resource: c.cfg.Resource("", "serviceaccounts"), namespace: namespace}
}

// LimitRanges implements corev1client.CoreV1Interface.
func (c coreClient) LimitRanges(namespace string) corev1client.LimitRangeInterface {
	return limitRanges{resource: c.cfg.Resource("", "limitranges"), namespace: namespace}
}

type namespaces struct {
	corev1client.NamespaceInterface
	resource *rest.Resource
}

// Get implements corev1client.NamespaceInterface.
func (n namespaces) Get(_ context.Context, name string, _ metav1.GetOptions) (*corev1.Namespace, error) {
	return get[*corev1.Namespace](n.resource, "", name, resource.At{})
}

// Create implements corev1client.NamespaceInterface.
func (n namespaces) Create(_ context.Context, obj *corev1.Namespace, _ metav1.CreateOptions) (*corev1.Namespace, error) {
	ctx, cancel := context.WithTimeout(context.Background(), readTimeout)
	defer cancel()
	obj = &corev1.Namespace{
		ObjectMeta: metav1.ObjectMeta{Name: obj.Name, Labels: map[string]string{corev1.LabelMetadataName: obj.Name}},
		Spec:       corev1.NamespaceSpec{Finalizers: []corev1.FinalizerName{corev1.FinalizerKubernetes}},
		Status:     corev1.NamespaceStatus{Phase: corev1.NamespaceActive},
	}
	_, err := rest.CreateObject(ctx, n.resource, obj)
	return obj, err
}

type serviceAccounts struct {
	corev1client.ServiceAccountInterface
	resource  *rest.Resource
	namespace string
}

// Get implements corev1client.ServiceAccountInterface.
func (s serviceAccounts) Get(_ context.Context, name string, _ metav1.GetOptions) (*corev1.ServiceAccount, error) {
	return get[*corev1.ServiceAccount](s.resource, s.namespace, name, resource.At{})
}

type limitRanges struct {
	corev1client.LimitRangeInterface
	resource  *rest.Resource
	namespace string
}

// List implements corev1client.LimitRangeInterface.
func (l limitRanges) List(context.Context, metav1.ListOptions) (*corev1.LimitRangeList, error) {
	ctx, cancel := context.WithTimeout(context.Background(), readTimeout)
	defer cancel()
	all, err := rest.ListObjects[*corev1.LimitRange](ctx, l.resource, resource.ListOptions{Namespace: l.namespace})
	out := &corev1.LimitRangeList{}
	for _, r := range all {
		out.Items = append(out.Items, *r)
	}
	return out, err
}

type nodeClient struct {
	nodev1client.NodeV1Interface
	cfg *Config
}

// RuntimeClasses implements nodev1client.NodeV1Interface.
func (c nodeClient) RuntimeClasses() nodev1client.RuntimeClassInterface {
	return runtimeClasses{resource: c.cfg.Resource(nodev1.GroupName, "runtimeclasses")}
}

type runtimeClasses struct {
	nodev1client.RuntimeClassInterface
	resource *rest.Resource
}

// Get implements nodev1client.RuntimeClassInterface.
func (r runtimeClasses) Get(_ context.Context, name string, _ metav1.GetOptions) (*nodev1.RuntimeClass, error) {
	return get[*nodev1.RuntimeClass](r.resource, "", name, resource.At{})
}
