package admission

import (
	"context"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"k8s.io/apimachinery/pkg/runtime"

	"portico/resource"
	"portico/resource/loop"
	"portico/resource/rest"
)

// followBackoff is how often a source tries to connect. It is short at the long
// end, because writes may be waiting for the first read, and grows slowly,
// because what it connects to has most often been started together with it.
var followBackoff = loop.Backoff{Initial: 20 * time.Millisecond, Factor: 1.3, Max: 2 * time.Second}

// source follows all objects of one kind and hands them over decoded.
type source[T runtime.Object] struct {
	store  resource.Store
	codec  rest.Codec
	logger *slog.Logger
	// publish receives every state of the kind, in key order, from one goroutine.
	// Unchanged objects have the same pointers as before. Objects are read-only.
	publish func(objects []T)

	mu      sync.Mutex // held while publish runs; guards decoded
	decoded map[resource.Key]decoded[T]
	// read is the last state that the store gave; nil before the first.
	read atomic.Pointer[loop.Snapshot]
}

// configurationSource is a source of one kind of configuration.
type configurationSource interface {
	last() *loop.Snapshot
	restore(objects []*resource.Object)
}

type decoded[T any] struct {
	from *resource.Object
	obj  T
}

// newSource returns a source of the kind; the scheme knows its Go type.
func newSource[T runtime.Object](e *Engine, info *resource.Info, publish func([]T)) *source[T] {
	s := &source[T]{
		store: e.store(info), codec: rest.Typed(e.scheme, info.GVK(info.Versions[0])), logger: e.logger, publish: publish,
	}
	if info.Group == configurationGroup {
		e.configurations[info.Resource] = s
	}
	return s
}

// run follows until ctx ends.
func (s *source[T]) run(ctx context.Context) {
	opts := loop.FollowOptions{Logger: s.logger, Backoff: followBackoff}
	// It returns ctx's error only.
	_ = loop.Follow(ctx, s.store, opts, func(snapshot loop.Snapshot) {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.read.Store(&snapshot)
		s.publish(s.decode(snapshot))
	})
}

func (s *source[T]) last() *loop.Snapshot { return s.read.Load() }

// restore publishes objects that an earlier process read, unless the store has
// given a state since.
func (s *source[T]) restore(objects []*resource.Object) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.read.Load() == nil {
		s.publish(s.decode(loop.Snapshot{Items: objects}))
	}
}

// decode returns the objects of a snapshot, those of the one before where they
// are the same. In place of an object that cannot be decoded its last good
// state stays.
func (s *source[T]) decode(snapshot loop.Snapshot) []T {
	next := make(map[resource.Key]decoded[T], len(snapshot.Items))
	objects := make([]T, 0, len(snapshot.Items))
	for _, o := range snapshot.Items {
		d, known := s.decoded[o.Key()]
		if !known || d.from.Revision != o.Revision || d.from.UID != o.UID {
			obj, err := s.decodeOne(o)
			switch {
			case err == nil:
				d = decoded[T]{o, obj}
			case known:
				s.logger.Error("decode object failed, its last state stays", "object", o.Key(), "error", err)
			default:
				s.logger.Error("decode object failed", "object", o.Key(), "error", err)
				continue
			}
		}
		next[o.Key()] = d
		objects = append(objects, d.obj)
	}
	s.decoded = next
	return objects
}

func (s *source[T]) decodeOne(o *resource.Object) (T, error) { return decodeAs[T](s.codec, o) }

func decodeAs[T runtime.Object](codec rest.Codec, o *resource.Object) (T, error) {
	var none T
	obj, err := codec.DecodeStored(o)
	if err != nil {
		return none, err
	}
	return obj.(T), nil // a Typed codec makes nothing else
}
