package garbage

import (
	"context"
	"log/slog"
	"strings"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/metadata/metadatainformer"
	"k8s.io/client-go/tools/cache"

	"portico/resource"
	gateway "portico/resource/client"
	"portico/resource/loop"
	"portico/resource/metastream"
	"portico/resource/watchcache"
)

const (
	// lookInterval is the time between two readings of what servers there are.
	lookInterval = 10 * time.Second
	// startWait is how long Filled waits for servers that do not respond.
	startWait = 30 * time.Second
)

// Server is a server of API groups.
type Server struct {
	// Name identifies the server, and GroupVersion is one that it serves.
	Name         string
	GroupVersion schema.GroupVersion
	// Resources are the resources of the server, which are watched one by one if it does not
	// serve a stream of metadata.
	Resources []Resource
}

// Resource is a resource with the kind of its objects. The kind is not taken from their metadata:
// a server could name the kind of another server there, and have objects of that one deleted.
type Resource struct {
	schema.GroupVersionResource
	Kind string
}

// Sources fill a graph from all servers: from one stream of each Portico process, and by a
// watch for each resource of the others.
type Sources struct {
	Graph *Graph
	// Servers returns the servers that there are now.
	Servers func(ctx context.Context) ([]Server, error)
	// Gateway reads streams, and Metadata watches resources.
	Gateway  *gateway.Client
	Metadata metadata.Interface
	Metrics  *Metrics
	Log      *slog.Logger

	mu      sync.Mutex
	running map[string]context.CancelFunc
	// waiting are the sources that are not in the graph as a whole yet.
	waiting map[string]bool
	known   bool // running has what Servers returned first
	filled  loop.Signal
}

// Run follows servers as they come and go, until ctx ends.
func (s *Sources) Run(ctx context.Context) error {
	s.running, s.waiting = map[string]context.CancelFunc{}, map[string]bool{}
	var wg sync.WaitGroup
	defer wg.Wait()
	for {
		begun, warned := time.Now(), false
		err := loop.Retry(ctx, loop.Backoff{Max: lookInterval}, func(ctx context.Context) error {
			servers, err := s.Servers(ctx)
			if err != nil {
				s.Metrics.syncErrors.Inc()
			}
			if err != nil && !warned && time.Since(begun) > startWait {
				warned = true
				s.Log.Warn("the garbage collector cannot find out which servers there are; retrying", "err", err)
			}
			if err == nil {
				s.follow(ctx, &wg, servers)
			}
			return err
		})
		if err != nil {
			return err
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(lookInterval):
		}
	}
}

// Filled waits until the graph has the objects of all servers that respond, or ctx ends. A
// server that does not respond is waited for startWait at most.
func (s *Sources) Filled(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, startWait)
	defer cancel()
	for {
		s.mu.Lock()
		done := s.known && len(s.waiting) == 0
		s.mu.Unlock()
		if done {
			return
		}
		select {
		case <-ctx.Done():
			return
		case <-s.filled.C():
		}
	}
}

// follow starts to follow new servers, and ends with those that are gone.
func (s *Sources) follow(ctx context.Context, wg *sync.WaitGroup, servers []Server) {
	s.mu.Lock()
	defer s.mu.Unlock()
	there := map[string]bool{}
	for _, server := range servers {
		there[server.Name] = true
		s.start(ctx, wg, server.Name, func(ctx context.Context, f *feed) { s.followServer(ctx, wg, server, f) })
	}
	for name, cancel := range s.running {
		if of, _, _ := strings.Cut(name, " "); !there[of] {
			cancel()
			delete(s.running, name)
			delete(s.waiting, name)
		}
	}
	s.known = true
	s.filled.Set()
}

// start starts to follow one source, unless it is followed. mu is held.
func (s *Sources) start(ctx context.Context, wg *sync.WaitGroup, name string, follow func(ctx context.Context, f *feed)) {
	if s.running[name] != nil {
		return
	}
	ctx, cancel := context.WithCancel(ctx)
	s.running[name], s.waiting[name] = cancel, true
	f := &feed{graph: s.Graph, synced: func() { s.synced(name) }}
	f.begin()
	wg.Go(func() {
		defer cancel()
		follow(ctx, f)
		f.forget()
	})
}

// synced notes that the graph has the whole state of a source, or need not wait for it.
func (s *Sources) synced(name string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.waiting, name)
	s.filled.Set()
}

// followServer reads the stream of a server. The resources of one that has none are watched.
func (s *Sources) followServer(ctx context.Context, wg *sync.WaitGroup, server Server, f *feed) {
	path := metastream.Path + "/" + server.GroupVersion.String()
	_ = loop.Retry(ctx, loop.Backoff{Max: 5 * time.Second}, func(ctx context.Context) error {
		f.begin()
		err := metastream.Read(ctx, s.Gateway, path, f.receive)
		if !refused(err) {
			return err
		}
		s.mu.Lock()
		for _, r := range server.Resources {
			s.start(ctx, wg, server.Name+" "+r.String(), func(ctx context.Context, f *feed) { s.followResource(ctx, r, f) })
		}
		s.mu.Unlock()
		f.synced()
		<-ctx.Done()
		return nil
	})
}

// refused reports whether a server has responded that it has no stream.
func refused(err error) bool {
	return apierrors.IsNotFound(err) || apierrors.IsForbidden(err) || apierrors.IsUnauthorized(err) || apierrors.IsMethodNotSupported(err) || apierrors.IsNotAcceptable(err)
}

// followResource watches the metadata of one resource.
func (s *Sources) followResource(ctx context.Context, r Resource, f *feed) {
	informer := metadatainformer.NewFilteredMetadataInformer(s.Metadata, r.GroupVersionResource, metav1.NamespaceAll, 0, cache.Indexers{}, nil).Informer()
	set := func(obj any) {
		if m, ok := obj.(*metav1.PartialObjectMetadata); ok {
			if h, err := metastream.Header(m); err == nil {
				h.APIVersion, h.Kind = r.GroupVersion().String(), r.Kind
				f.receive(watchcache.HeaderEvent{Type: resource.Modified, Header: h})
			}
		}
	}
	_, err := informer.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc:    set,
		UpdateFunc: func(_, obj any) { set(obj) },
		DeleteFunc: func(obj any) {
			if gone, ok := obj.(cache.DeletedFinalStateUnknown); ok {
				obj = gone.Obj
			}
			if m, ok := obj.(*metav1.PartialObjectMetadata); ok {
				f.receive(watchcache.HeaderEvent{Type: resource.Deleted, Header: &resource.Header{APIVersion: r.GroupVersion().String(), Kind: r.Kind, UID: string(m.UID)}})
			}
		},
	})
	if err != nil {
		s.Log.Error("a resource cannot be watched", "resource", r.String(), "err", err)
		return
	}
	var wg sync.WaitGroup
	wg.Go(func() {
		if cache.WaitForCacheSync(ctx.Done(), informer.HasSynced) {
			f.synced()
		}
	})
	informer.RunWithContext(ctx)
	wg.Wait()
}

// feed fills a graph from one source.
type feed struct {
	graph  *Graph
	synced func()
	// state is the present state, and complete is set once it was received whole.
	state    *state
	complete bool
}

// begin begins a new whole state.
func (f *feed) begin() {
	f.state = &state{f}
	f.complete = false
}

// receive applies an event. Objects that are not in a new whole state are deleted.
func (f *feed) receive(e watchcache.HeaderEvent) {
	switch e.Type {
	case resource.Added:
		if f.complete {
			f.begin()
		}
		fallthrough
	case resource.Modified:
		f.graph.set(e.Header, f.state)
	case resource.Deleted:
		f.graph.Remove(idOf(e.Header))
	case resource.Synced:
		for _, id := range f.graph.of(f, f.state) {
			f.graph.Remove(id)
		}
		f.complete = true
		f.synced()
	}
}

// forget removes the objects of a source that is followed no more. They may still exist.
func (f *feed) forget() { f.graph.Forget(f.graph.of(f, nil)) }
