package admission

import (
	"maps"
	"slices"
	"sync"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/informers/admissionregistration"
	admissionv1informers "k8s.io/client-go/informers/admissionregistration/v1"
	"k8s.io/client-go/informers/core"
	corev1informers "k8s.io/client-go/informers/core/v1"
	admissionv1listers "k8s.io/client-go/listers/admissionregistration/v1"
	corev1listers "k8s.io/client-go/listers/core/v1"
	"k8s.io/client-go/tools/cache"
)

// informer presents a followed kind to a webhook engine, which reads configurations
// from informers only. It implements the methods that the engine calls; the others are
// nil. The engine is made when the configurations are known, so it has always synced.
type informer struct {
	cache.SharedIndexInformer
	indexer cache.Indexer

	mu       sync.Mutex
	handlers []cache.ResourceEventHandler
	current  map[string]metav1.Object
}

func newInformer() *informer {
	return &informer{indexer: cache.NewIndexer(cache.MetaNamespaceKeyFunc, cache.Indexers{})}
}

// HasSynced implements SharedIndexInformer.
func (i *informer) HasSynced() bool { return true }

// AddEventHandler registers h for later changes.
func (i *informer) AddEventHandler(h cache.ResourceEventHandler) (cache.ResourceEventHandlerRegistration, error) {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.handlers = append(i.handlers, h)
	return registration{}, nil
}

type registration struct {
	cache.ResourceEventHandlerRegistration
}

func (registration) HasSynced() bool { return true }

// replace sets the objects and calls the handlers for the differences. An object with
// the same pointer as before is unchanged.
func (i *informer) replace(objects []metav1.Object) error {
	next := make(map[string]metav1.Object, len(objects))
	list := make([]any, len(objects))
	for n, obj := range objects {
		next[obj.GetName()], list[n] = obj, obj
	}
	if err := i.indexer.Replace(list, ""); err != nil {
		return err
	}
	i.mu.Lock()
	defer i.mu.Unlock()
	for _, h := range i.handlers {
		i.tell(h, next)
	}
	i.current = next
	return nil
}

func (i *informer) tell(h cache.ResourceEventHandler, next map[string]metav1.Object) {
	for _, name := range slices.Sorted(maps.Keys(next)) {
		switch old, known := i.current[name]; {
		case !known:
			h.OnAdd(next[name], false)
		case old != next[name]:
			h.OnUpdate(old, next[name])
		}
	}
	for name, old := range i.current {
		if next[name] == nil {
			h.OnDelete(old)
		}
	}
}

// factory is the informer factory of a webhook engine.
type factory struct {
	informers.SharedInformerFactory
	configurations *informer
	namespaces     *namespaces
}

func (f factory) Core() core.Interface { return coreGroup{namespaces: f.namespaces} }

func (f factory) Admissionregistration() admissionregistration.Interface {
	return admissionGroup{configurations: f.configurations}
}

type coreGroup struct {
	core.Interface
	namespaces *namespaces
}

func (g coreGroup) V1() corev1informers.Interface { return coreVersion{namespaces: g.namespaces} }

type coreVersion struct {
	corev1informers.Interface
	namespaces *namespaces
}

func (v coreVersion) Namespaces() corev1informers.TypedNamespaceInformer {
	return namespaceInformer{namespaces: v.namespaces}
}

// namespaceInformer has always synced: while namespaces are not known, the
// engine finds none and reads them.
type namespaceInformer struct {
	corev1informers.TypedNamespaceInformer
	namespaces *namespaces
}

func (n namespaceInformer) Informer() cache.SharedIndexInformer   { return &informer{} }
func (n namespaceInformer) Lister() corev1listers.NamespaceLister { return n.namespaces }

type admissionGroup struct {
	admissionregistration.Interface
	configurations *informer
}

func (g admissionGroup) V1() admissionv1informers.Interface {
	return admissionVersion{configurations: g.configurations}
}

type admissionVersion struct {
	admissionv1informers.Interface
	configurations *informer
}

func (v admissionVersion) MutatingWebhookConfigurations() admissionv1informers.TypedMutatingWebhookConfigurationInformer {
	return mutatingInformer{informer: v.configurations}
}

func (v admissionVersion) ValidatingWebhookConfigurations() admissionv1informers.TypedValidatingWebhookConfigurationInformer {
	return validatingInformer{informer: v.configurations}
}

type mutatingInformer struct {
	admissionv1informers.TypedMutatingWebhookConfigurationInformer
	informer *informer
}

func (m mutatingInformer) Informer() cache.SharedIndexInformer { return m.informer }
func (m mutatingInformer) Lister() admissionv1listers.MutatingWebhookConfigurationLister {
	return admissionv1listers.NewMutatingWebhookConfigurationLister(m.informer.indexer)
}

type validatingInformer struct {
	admissionv1informers.TypedValidatingWebhookConfigurationInformer
	informer *informer
}

func (v validatingInformer) Informer() cache.SharedIndexInformer { return v.informer }
func (v validatingInformer) Lister() admissionv1listers.ValidatingWebhookConfigurationLister {
	return admissionv1listers.NewValidatingWebhookConfigurationLister(v.informer.indexer)
}
