// Package metastream serves and reads the stream of the metadata of all objects of a process,
// of whatever resource: one stream in place of a watch for each resource. The garbage
// collector follows it (docs/wire.md 2.7).
//
// The response to GET [Path] has one JSON object per line, a watch event with a
// PartialObjectMetadata: first all objects as ADDED, then a BOOKMARK with the annotation
// k8s.io/initial-events-end, then changes as MODIFIED and DELETED, and a BOOKMARK in every
// [heartbeat] without one. apiVersion and kind are those in which the object is stored. Labels, annotations and
// managedFields are left out. A stream does not resume: each begins with the whole state. A
// second whole state means that changes in between were left out.
//
// Runs in: gateway, core, crd.
package metastream

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"sync"
	"time"
	"unique"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"

	"portico/resource"
	"portico/resource/client"
	"portico/resource/watchcache"
)

// Path is the path of the stream on every server.
const Path = "/internal/metadata"

// heartbeat is the longest time without an event. A reader gives up after three of them.
const heartbeat = 20 * time.Second

// maxLine bounds one event, in bytes. An object with the most owner references that are
// permitted has about 1.5 MB.
const maxLine = 8 << 20

// event is one line.
type event struct {
	Type   watch.EventType              `json:"type"`
	Object metav1.PartialObjectMetadata `json:"object"`
}

// Handler serves the stream of a cache.
func Handler(cache *watchcache.Cache) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		s := &sender{w: w, out: http.NewResponseController(w)}
		s.enc = json.NewEncoder(w)
		w.Header().Set("Content-Type", "application/json")
		ctx, cancel := context.WithCancel(r.Context())
		var wg sync.WaitGroup
		wg.Go(func() { s.beat(ctx) })
		// An error is that of a client that has gone, or of a server that ends.
		_ = cache.Headers(ctx, s.send)
		cancel()
		wg.Wait()
	})
}

// sender writes events to one response.
type sender struct {
	w   http.ResponseWriter
	out *http.ResponseController
	enc *json.Encoder

	mu   sync.Mutex // of the response
	last time.Time
}

func (s *sender) send(events []watchcache.HeaderEvent) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, e := range events {
		if err := s.enc.Encode(line(e)); err != nil {
			return err
		}
	}
	s.last = time.Now()
	return s.out.Flush()
}

// beat sends a bookmark in every heartbeat without an event.
func (s *sender) beat(ctx context.Context) {
	tick := time.NewTicker(heartbeat / 2)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		s.mu.Lock()
		if time.Since(s.last) >= heartbeat/2 {
			_ = s.enc.Encode(event{Type: watch.Bookmark})
			_ = s.out.Flush() // cache.Headers finds the error
		}
		s.mu.Unlock()
	}
}

// line returns the line of an event.
func line(e watchcache.HeaderEvent) event {
	switch e.Type {
	case resource.Synced:
		return event{watch.Bookmark, metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{metav1.InitialEventsAnnotationKey: "true"}}}}
	case resource.Deleted:
		return event{watch.Deleted, partial(e.Header)}
	case resource.Added:
		return event{watch.Added, partial(e.Header)}
	}
	return event{watch.Modified, partial(e.Header)}
}

func partial(h *resource.Header) metav1.PartialObjectMetadata {
	out := metav1.PartialObjectMetadata{
		TypeMeta: metav1.TypeMeta{APIVersion: h.APIVersion, Kind: h.Kind},
		ObjectMeta: metav1.ObjectMeta{
			Namespace: h.Namespace, Name: h.Name, UID: types.UID(h.UID), ResourceVersion: strconv.FormatInt(h.Revision, 10), Finalizers: h.Finalizers,
		},
	}
	if h.Terminating() {
		out.DeletionTimestamp = &metav1.Time{Time: h.DeletionTime()}
	}
	for _, o := range h.Owners {
		ref := metav1.OwnerReference{APIVersion: o.APIVersion, Kind: o.Kind, Name: o.Name, UID: types.UID(o.UID)}
		if o.Controller {
			ref.Controller = new(true)
		}
		if o.BlockDeletion {
			ref.BlockOwnerDeletion = new(true)
		}
		out.OwnerReferences = append(out.OwnerReferences, ref)
	}
	return out
}

// common returns a string that many headers have, which share its memory.
func common(text string) string { return unique.Make(text).Value() }

// Header returns the header of an object's metadata.
func Header(obj *metav1.PartialObjectMetadata) (*resource.Header, error) {
	revision, err := strconv.ParseInt(obj.ResourceVersion, 10, 64)
	if err != nil {
		return nil, fmt.Errorf("read resourceVersion %q: %w", obj.ResourceVersion, err)
	}
	h := &resource.Header{
		APIVersion: common(obj.APIVersion), Kind: common(obj.Kind), Namespace: common(obj.Namespace), Name: obj.Name, UID: string(obj.UID),
		Revision: revision, Generation: obj.Generation, Finalizers: obj.Finalizers,
	}
	if obj.DeletionTimestamp != nil {
		h.SetDeletionTime(obj.DeletionTimestamp.Time)
	}
	for _, o := range obj.OwnerReferences {
		h.Owners = append(h.Owners, resource.Owner{
			APIVersion: o.APIVersion, Kind: o.Kind, Name: o.Name, UID: string(o.UID),
			Controller: o.Controller != nil && *o.Controller, BlockDeletion: o.BlockOwnerDeletion != nil && *o.BlockOwnerDeletion,
		})
	}
	return h, nil
}

// ErrSilent is the error of a stream without an event for three heartbeats.
var ErrSilent = errors.New("the stream of metadata is silent")

// Read requests the stream at a path and calls receive with each of its events until the
// stream or ctx ends. It never returns nil. A path without a stream is a NotFound.
func Read(ctx context.Context, c *client.Client, path string, receive func(watchcache.HeaderEvent)) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	res, err := c.Do(ctx, http.MethodGet, path, nil, nil)
	if err != nil {
		return err
	}
	defer res.Body.Close()
	silence := time.AfterFunc(3*heartbeat, func() { cancel(ErrSilent) })
	defer silence.Stop()
	bounded := &io.LimitedReader{R: res.Body}
	dec := json.NewDecoder(bounded)
	for {
		bounded.N = maxLine
		var e event
		if err := dec.Decode(&e); err != nil {
			if cause := context.Cause(ctx); cause != nil {
				return cause
			}
			return fmt.Errorf("read the stream of metadata: %w", err)
		}
		silence.Reset(3 * heartbeat)
		out, ok, err := e.read()
		if err != nil {
			return err
		}
		if ok {
			receive(out)
		}
	}
}

// read returns the event of a line; ok is false for a heartbeat.
func (e *event) read() (out watchcache.HeaderEvent, ok bool, err error) {
	switch e.Type {
	case watch.Bookmark:
		return watchcache.HeaderEvent{Type: resource.Synced}, e.Object.Annotations[metav1.InitialEventsAnnotationKey] == "true", nil
	case watch.Added:
		out.Type = resource.Added
	case watch.Modified:
		out.Type = resource.Modified
	case watch.Deleted:
		out.Type = resource.Deleted
	default:
		return out, false, fmt.Errorf("the stream of metadata has an event of type %q", e.Type)
	}
	out.Header, err = Header(&e.Object)
	return out, true, err
}
