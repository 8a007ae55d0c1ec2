package controllers

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/quota/v1/generic"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/metadata/metadatainformer"
	"k8s.io/client-go/tools/cache"
)

// quotaMonitors watch the resources that quotas name. Safe for concurrent use.
type quotaMonitors struct {
	ctx context.Context
	env *Env
	c   *quotaController
	wg  sync.WaitGroup

	mu sync.Mutex
	by map[schema.GroupResource]*quotaMonitor
}

// quotaMonitor is the informer of one resource.
type quotaMonitor struct {
	informers.GenericInformer
	typed  bool // it is an informer of Env with whole objects, which others may use
	end    func()
	synced cache.InformerSynced
}

func newQuotaMonitors(ctx context.Context, env *Env, c *quotaController) *quotaMonitors {
	return &quotaMonitors{ctx: ctx, env: env, c: c, by: map[schema.GroupResource]*quotaMonitor{}}
}

// typedResources are those of which more than metadata is needed.
var typedResources = []schema.GroupVersionResource{
	corev1.SchemeGroupVersion.WithResource("pods"), corev1.SchemeGroupVersion.WithResource("services"),
	corev1.SchemeGroupVersion.WithResource("persistentvolumeclaims"),
	resourcev1.SchemeGroupVersion.WithResource("resourceclaims"), resourcev1.SchemeGroupVersion.WithResource("deviceclasses"),
}

// end ends all monitors.
func (m *quotaMonitors) end() {
	m.keep(nil)
	m.wg.Wait()
}

// keep ends the monitors of other resources.
func (m *quotaMonitors) keep(used map[schema.GroupResource]bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for gr, monitor := range m.by {
		if !used[gr] {
			m.remove(gr, monitor)
		}
	}
}

// remove ends a monitor. The caller holds mu.
func (m *quotaMonitors) remove(gr schema.GroupResource, monitor *quotaMonitor) {
	delete(m.by, gr)
	if gr.Group != "" && !monitor.typed {
		m.c.registry.Remove(m.c.registry.Get(gr))
	}
	monitor.end()
}

// need makes the monitor of a resource if it is missing. found reports whether a server has the
// resource, full whether its objects are known.
func (m *quotaMonitors) need(gr schema.GroupResource) (found, full bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if monitor := m.by[gr]; monitor != nil {
		return true, monitor.synced()
	}
	monitor := m.open(gr)
	if monitor == nil {
		return false, false
	}
	m.by[gr] = monitor
	return true, false
}

// lister returns the objects of a monitored resource, whatever its version. It is a
// quota.ListerForResourceFunc.
func (m *quotaMonitors) lister(gvr schema.GroupVersionResource) (cache.GenericLister, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	monitor := m.by[gvr.GroupResource()]
	if monitor == nil || !monitor.synced() {
		return nil, fmt.Errorf("the objects of %s are not known yet", gvr.GroupResource())
	}
	return monitor.Lister(), nil
}

// open starts the monitor of a resource; nil if no server has it.
func (m *quotaMonitors) open(gr schema.GroupResource) *quotaMonitor {
	gvr, ok := m.find(gr)
	if !ok {
		return nil
	}
	ctx, cancel := context.WithCancel(m.ctx)
	out := &quotaMonitor{end: cancel, typed: slices.Contains(typedResources, gvr)}
	if out.typed {
		out.GenericInformer, _ = m.env.Informers.ForResource(gvr) // it has all of them
	} else {
		out.GenericInformer = metadatainformer.NewFilteredMetadataInformer(m.env.Metadata, gvr, metav1.NamespaceAll, 0,
			cache.Indexers{cache.NamespaceIndex: cache.MetaNamespaceIndexFunc}, nil)
		m.prepare(gr, out)
	}
	handler := cache.ResourceEventHandlerDetailedFuncs{
		AddFunc: func(obj any, initial bool) {
			if !initial { // resourceChanged follows the initial list
				m.c.objectAdded(gr, obj.(runtime.Object))
			}
		},
		DeleteFunc: func(obj any) {
			if unknown, ok := obj.(cache.DeletedFinalStateUnknown); ok {
				obj = unknown.Obj
			}
			if o, ok := obj.(runtime.Object); ok {
				m.c.objectChanged(gr, o, nil)
			}
		},
	}
	if out.typed {
		handler.UpdateFunc = func(old, cur any) { m.c.objectChanged(gr, old.(runtime.Object), cur.(runtime.Object)) }
	}
	informer := out.Informer()
	registration, err := informer.AddEventHandler(handler)
	if err != nil { // the informer has ended, and with it the controller
		cancel()
		return nil
	}
	out.synced = registration.HasSynced
	out.end = func() {
		_ = informer.RemoveEventHandler(registration)
		cancel()
	}
	if out.typed {
		m.env.start()
	} else {
		m.wg.Go(func() { informer.RunWithContext(ctx) })
	}
	m.wg.Go(func() {
		if cache.WaitForCacheSync(ctx.Done(), registration.HasSynced) {
			m.c.resourceChanged(gr, 0)
		}
	})
	return out
}

// prepare makes an informer of metadata keep little, and end when its resource is no longer
// served, and adds the evaluator of the resource. Errors are of the informer's state, which is
// new.
func (m *quotaMonitors) prepare(gr schema.GroupResource, monitor *quotaMonitor) {
	if m.c.registry.Get(gr) == nil {
		m.c.registry.Add(generic.NewObjectCountEvaluator(gr, generic.ListResourceUsingListerFunc(m.lister, gr.WithVersion("")), ""))
	}
	_ = monitor.Informer().SetTransform(func(obj any) (any, error) {
		if o, ok := obj.(*metav1.PartialObjectMetadata); ok {
			o.ObjectMeta = metav1.ObjectMeta{Namespace: o.Namespace, Name: o.Name, UID: o.UID, ResourceVersion: o.ResourceVersion}
		}
		return obj, nil
	})
	_ = monitor.Informer().SetWatchErrorHandlerWithContext(func(ctx context.Context, r *cache.Reflector, err error) {
		if !apierrors.IsNotFound(err) {
			m.env.Log.Debug("a resource with a quota cannot be watched", "resource", gr.String(), "err", err)
			return
		}
		m.mu.Lock()
		if m.by[gr] == monitor {
			m.remove(gr, monitor)
		}
		m.mu.Unlock()
		m.c.resourceChanged(gr, time.Second)
	})
}

// find returns the version of a typed resource, or the preferred version of another namespaced
// resource that can be created, deleted, listed and watched.
func (m *quotaMonitors) find(gr schema.GroupResource) (schema.GroupVersionResource, bool) {
	v1 := gr.WithVersion("v1")
	if slices.Contains(typedResources, v1) || gr.Group == "" && m.c.registry.Get(gr) != nil { // ConfigMaps and others that are counted by an old name
		return v1, m.env.Serves(v1)
	}
	for _, gv := range m.versions(gr.Group) {
		list, err := m.env.Client.Discovery().ServerResourcesForGroupVersion(gv.String())
		if err == nil && slices.ContainsFunc(list.APIResources, func(r metav1.APIResource) bool { return countable(r, gr.Resource) }) {
			return gv.WithResource(gr.Resource), true
		}
	}
	return v1, false
}

// versions returns the versions of a group, preferred first. They are read now: a definition may be seconds old.
func (m *quotaMonitors) versions(group string) (all []schema.GroupVersion) {
	if group == "" {
		return []schema.GroupVersion{corev1.SchemeGroupVersion}
	}
	found := &metav1.APIGroup{}
	if err := m.env.Client.Discovery().RESTClient().Get().AbsPath("/apis", group).Do(m.ctx).Into(found); err != nil {
		return nil
	}
	for _, v := range found.Versions {
		all = append(all, schema.GroupVersion{Group: group, Version: v.Version})
	}
	return all
}

// countable reports whether a resource of discovery has a name, and its objects can be counted.
func countable(r metav1.APIResource, name string) bool {
	for _, verb := range []string{"create", "delete", "list", "watch"} {
		if !slices.Contains(r.Verbs, verb) {
			return false
		}
	}
	return r.Name == name && r.Namespaced
}
