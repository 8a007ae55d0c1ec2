package node

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"time"

	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"portico/resource"
	"portico/resource/loop"
)

// followed are the resources that the graph is made from.
var followed = []struct {
	kind kind
	info resource.Info
	make func() runtime.Object
}{
	{pods, named(corev1.SchemeGroupVersion, "pods", "Pod", true), func() runtime.Object { return new(corev1.Pod) }},
	{volumes, named(corev1.SchemeGroupVersion, "persistentvolumes", "PersistentVolume", false), func() runtime.Object { return new(corev1.PersistentVolume) }},
	{attachments, named(storagev1.SchemeGroupVersion, "volumeattachments", "VolumeAttachment", false), func() runtime.Object { return new(storagev1.VolumeAttachment) }},
	{resourceSlices, named(resourcev1.SchemeGroupVersion, "resourceslices", "ResourceSlice", false), func() runtime.Object { return new(resourcev1.ResourceSlice) }},
	{certificates, named(certificatesv1.SchemeGroupVersion, "podcertificaterequests", "PodCertificateRequest", true), func() runtime.Object {
		return new(certificatesv1.PodCertificateRequest)
	}},
}

func named(gv schema.GroupVersion, res, kind string, namespaced bool) resource.Info {
	return resource.Info{Group: gv.Group, Versions: []string{gv.Version}, Resource: res, Kind: kind, Namespaced: namespaced}
}

// maxPause bounds the wait between attempts to watch, and thus the delay after the core server returns.
const maxPause = 250 * time.Millisecond

// Run follows the resources until ctx ends.
func (a *Authorizer) Run(ctx context.Context) error {
	var all []func(context.Context) error
	for i := range followed {
		f := &follower{graph: a.graph, kind: followed[i].kind, store: a.cfg.Reader(&followed[i].info), make: followed[i].make, log: a.cfg.Logger}
		all = append(all, func(ctx context.Context) error {
			return loop.Retry(ctx, loop.Backoff{Max: maxPause}, func(ctx context.Context) error {
				err := f.watch(ctx, func() { a.unread.Add(-1) })
				a.cfg.Logger.DebugContext(ctx, "watch for node authorization ended", "resource", f.store.Info().Resource, "err", err)
				return err
			})
		})
	}
	return loop.Together(ctx, all...)
}

// follower passes the events of one resource to the graph. Unlike loop.Follow it keeps no objects.
type follower struct {
	graph *graph
	kind  kind
	store resource.Reader
	make  func() runtime.Object
	log   *slog.Logger
	// since is the revision to resume at; 0: the whole state is read. read is set once it was.
	since int64
	read  bool
}

// watch runs one watch until it fails. first is called when the state was read for the first time.
func (f *follower) watch(ctx context.Context, first func()) error {
	w, err := f.store.Watch(ctx, resource.WatchOptions{Since: f.since, InitialEvents: f.since == 0, Bookmarks: true})
	if err != nil {
		return f.failed(err)
	}
	defer w.Close()
	var left map[resource.Key]bool // known objects that the initial state did not have yet
	if f.since == 0 {
		left = f.graph.keys(f.kind)
	}
	for {
		events, err := w.Next(ctx)
		if err != nil {
			return f.failed(err)
		}
		for _, e := range events {
			if e.Object != nil {
				delete(left, e.Object.Key())
			}
			f.apply(e)
			switch {
			case e.Type == resource.Bookmark && left == nil:
				f.since = max(f.since, e.Revision)
			case left == nil:
				// A watch may end within a transaction, so the next one repeats its last revision.
				f.since = max(f.since, e.Revision-1)
			}
			if e.Type != resource.Synced {
				continue
			}
			for key := range left {
				f.graph.remove(f.kind, key)
			}
			f.since, left = e.Revision, nil
			if !f.read {
				f.read = true
				first()
			}
		}
	}
}

// failed has the whole state read again unless a watch only ended.
func (f *follower) failed(err error) error {
	if !errors.Is(err, io.EOF) && !apierrors.IsServiceUnavailable(err) {
		f.since = 0
	}
	return err
}

// apply applies one event. An object that cannot be decoded concerns no node.
func (f *follower) apply(e resource.Event) {
	switch e.Type {
	case resource.Added, resource.Modified:
		obj := f.make()
		if err := json.Unmarshal(e.Object.Data, obj); err != nil {
			f.log.Error("an object is unknown to node authorization", "resource", f.store.Info().Resource, "object", e.Object.Key().String(), "err", err)
			f.graph.remove(f.kind, e.Object.Key())
			return
		}
		f.graph.set(f.kind, e.Object.Key(), obj)
	case resource.Deleted:
		f.graph.remove(f.kind, e.Object.Key())
	}
}
