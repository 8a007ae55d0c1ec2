package controllers

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/scheme"
	corev1client "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/metadata"
	clientrest "k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/record"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/utils/clock"

	"portico/backends/process"
	"portico/resource/loop"
)

// Env is what a controller works with.
type Env struct {
	// Client is a client of the built-in kinds, in protobuf.
	Client kubernetes.Interface
	// Informers are shared by all controllers. Their objects are slim (slim.go): to write
	// one back, patch it or read it first. Informers that are used are passed to Handle or
	// Use; Work starts them.
	Informers informers.SharedInformerFactory
	// Metadata is a client of the metadata of all kinds, which Mapper finds.
	Metadata metadata.Interface
	Mapper   meta.RESTMapper
	// Serves reports whether a built-in resource is switched on.
	Serves func(schema.GroupVersionResource) bool
	// Gateway configures more clients.
	Gateway *clientrest.Config
	Options Options
	Clock   clock.WithTicker
	// Log names the controller.
	Log *slog.Logger

	indexing *sync.Mutex // of all copies
	start    func()      // starts the informers that do not run yet
	stop     func()      // ends what Run's informers and recorders started
	events   record.EventBroadcaster
	synced   []cache.InformerSynced
	remove   []func() // the handlers
}

// newEnv returns an Env that controllers are given copies of. Nothing is sent yet.
func newEnv(cfg Config) (*Env, error) {
	typed := clientrest.CopyConfig(cfg.Gateway)
	typed.WarningHandler = clientrest.NoWarnings{} // that Endpoints are deprecated
	typed.ContentType = runtime.ContentTypeProtobuf
	typed.AcceptContentTypes = runtime.ContentTypeProtobuf + "," + runtime.ContentTypeJSON
	client, err := kubernetes.NewForConfig(typed)
	if err != nil {
		return nil, fmt.Errorf("make client of built-in kinds: %w", err)
	}
	objects, err := metadata.NewForConfig(cfg.Gateway)
	if err != nil {
		return nil, fmt.Errorf("make client of metadata: %w", err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ctx = process.ClientLog(ctx, cfg.Log)
	e := &Env{
		Client: client, Metadata: objects, Mapper: cfg.Mapper, Serves: cfg.Serves,
		Informers: informers.NewSharedInformerFactoryWithOptions(client, 0, informers.WithTransform(slim)),
		Gateway:   cfg.Gateway, Options: cfg.Options, Clock: clock.RealClock{}, Log: cfg.Log,
		events: record.NewBroadcaster(record.WithContext(ctx)), indexing: new(sync.Mutex),
	}
	e.start = func() { e.Informers.StartWithContext(ctx) }
	e.events.StartRecordingToSink(&corev1client.EventSinkImpl{Interface: client.CoreV1().Events("")})
	e.stop = func() {
		cancel()
		e.events.Shutdown()
		e.Informers.Shutdown()
	}
	return e, nil
}

// waitReachable waits until the gateway serves the kinds of the core server.
func (e *Env) waitReachable(ctx context.Context) error {
	return loop.Retry(ctx, loop.Backoff{Initial: 50 * time.Millisecond, Max: time.Second}, func(ctx context.Context) error {
		_, err := e.Client.CoreV1().Namespaces().List(ctx, metav1.ListOptions{Limit: 1})
		return err
	})
}

// controller returns the Env of one run of a controller, and a function that ends its
// handlers.
func (e *Env) controller(name string) (own *Env, end func()) {
	c := *e
	c.Log = e.Log.With("controller", name)
	c.synced, c.remove = nil, nil
	return &c, func() {
		for _, remove := range c.remove {
			remove()
		}
	}
}

// Recorder records events of the controller, as those of source component.
func (e *Env) Recorder(component string) record.EventRecorder {
	return e.events.NewRecorder(scheme.Scheme, corev1.EventSource{Component: component})
}

// Handle calls handle for the changes of an informer's objects: old is nil when an object is
// new, cur when it is gone. handle is not called concurrently.
func Handle[T any, P interface {
	*T
	metav1.Object
}](e *Env, informer cache.SharedIndexInformer, handle func(old, cur P)) {
	registration, err := informer.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc:    func(obj any) { handle(nil, obj.(P)) },
		UpdateFunc: func(old, cur any) { handle(old.(P), cur.(P)) },
		DeleteFunc: func(obj any) {
			if unknown, ok := obj.(cache.DeletedFinalStateUnknown); ok {
				obj = unknown.Obj
			}
			if o, ok := obj.(P); ok {
				handle(o, nil)
			}
		},
	})
	if err != nil { // the informer has ended, and with it the context of Work
		return
	}
	e.synced = append(e.synced, registration.HasSynced)
	e.remove = append(e.remove, func() { _ = informer.RemoveEventHandler(registration) })
}

// Use makes Work wait for informers that are only read.
func (e *Env) Use(list ...cache.SharedIndexInformer) {
	for _, i := range list {
		e.synced = append(e.synced, i.HasSynced)
	}
}

// Index adds an index to an informer, unless it has one of that name, and returns all of them.
func (e *Env) Index(informer cache.SharedIndexInformer, name string, keys cache.IndexFunc) cache.Indexer {
	e.indexing.Lock()
	defer e.indexing.Unlock()
	if index := informer.GetIndexer(); index.GetIndexers()[name] == nil {
		// Fails for names that exist and for informers that have ended only.
		_ = informer.AddIndexers(cache.Indexers{name: keys})
	}
	return informer.GetIndexer()
}

// Queue is a queue of the keys of objects.
type Queue = workqueue.TypedRateLimitingInterface[string]

// NewQueue returns a queue, which Work shuts down. limiters is one or none: how failed keys
// are repeated.
func (e *Env) NewQueue(name string, limiters ...workqueue.TypedRateLimiter[string]) Queue {
	limiter := workqueue.DefaultTypedControllerRateLimiter[string]()
	if len(limiters) > 0 {
		limiter = limiters[0]
	}
	return workqueue.NewTypedRateLimitingQueueWithConfig(limiter, workqueue.TypedRateLimitingQueueConfig[string]{Name: name, Clock: e.Clock})
}

// Key returns the key of an object in a queue.
func Key(o metav1.Object) string { return cache.MetaObjectToName(o).String() }

// Loop is a queue and what is done with its keys.
type Loop struct {
	Queue   Queue
	Workers int
	// Sync handles one key; no two workers handle the same key at a time. After an error it
	// is called again later.
	Sync func(ctx context.Context, namespace, name string) error
}

// Work starts the informers, waits until all that the controller uses are filled, and runs
// its loops until ctx ends.
func (e *Env) Work(ctx context.Context, loops ...Loop) error {
	var wg sync.WaitGroup
	defer wg.Wait()
	defer func() {
		for _, l := range loops {
			l.Queue.ShutDown()
		}
	}()
	if err := e.Fill(ctx); err != nil {
		return err
	}
	for _, l := range loops {
		for range l.Workers {
			wg.Go(func() {
				for e.next(ctx, l) {
				}
			})
		}
	}
	<-ctx.Done()
	return ctx.Err()
}

// Fill starts the informers and waits until all that the controller uses are filled.
func (e *Env) Fill(ctx context.Context) error {
	e.start()
	if !cache.WaitForCacheSync(ctx.Done(), e.synced...) {
		return ctx.Err()
	}
	return nil
}

// next handles the next key of a loop. It returns false when the queue has been shut down.
func (e *Env) next(ctx context.Context, l Loop) bool {
	key, quit := l.Queue.Get()
	if quit {
		return false
	}
	defer l.Queue.Done(key)
	name, err := cache.ParseObjectName(key)
	if err == nil {
		err = l.Sync(ctx, name.Namespace, name.Name)
	}
	switch {
	case err == nil:
		l.Queue.Forget(key)
		return true
	case ctx.Err() != nil:
		return true
	case apierrors.IsConflict(err) || errors.Is(err, errStale) || errors.Is(err, errNotYet):
		e.Log.Debug("repeating", "key", key, "err", err)
	default:
		e.Log.Warn("a controller failed and repeats", "key", key, "err", err)
	}
	l.Queue.AddRateLimited(key)
	return true
}

// errNotYet means that what a controller waits for may happen without an event.
var errNotYet = errors.New("it is tried again later")

// errStale means that an informer has not seen the last write of the controller yet.
var errStale = errors.New("the informer is behind the controller's own writes")

// ignoreNotFound returns nil for the error of an object that does not exist.
func ignoreNotFound(err error) error {
	if apierrors.IsNotFound(err) {
		return nil
	}
	return err
}
