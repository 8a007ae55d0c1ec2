package client

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"sync"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"portico/resource"
)

// frame is one event of a watch stream.
type frame struct {
	Type   string          `json:"type"`
	Object json.RawMessage `json:"object"`
}

// Watch starts a watch. Initial events are asked for as a watch-list.
func (s *store) Watch(ctx context.Context, opts resource.WatchOptions) (resource.Watcher, error) {
	query := selectorQuery(opts.Selector)
	query.Set("watch", "1")
	switch {
	case opts.Since > 0:
		query.Set("resourceVersion", strconv.FormatInt(opts.Since, 10))
	case opts.InitialEvents:
		query.Set("sendInitialEvents", "true")
		query.Set("resourceVersionMatch", string(metav1.ResourceVersionMatchNotOlderThan))
		if opts.At.Freshness == resource.Any {
			query.Set("resourceVersion", "0")
		} else if opts.At.Freshness == resource.NotOlderThan {
			query.Set("resourceVersion", strconv.FormatInt(opts.At.Revision, 10))
		}
	default:
		query.Set("sendInitialEvents", "false")
		query.Set("resourceVersionMatch", string(metav1.ResourceVersionMatchNotOlderThan))
	}
	if opts.Bookmarks || opts.InitialEvents {
		query.Set("allowWatchBookmarks", "true")
	}
	ctx, cancel := context.WithCancel(ctx)
	res, err := s.client.Do(ctx, http.MethodGet, s.path(opts.Namespace, ""), query, nil)
	if err != nil {
		cancel()
		return nil, err
	}
	w := &watcher{opts: opts, cancel: cancel, body: res.Body, frames: make(chan read)}
	go w.run(ctx)
	return w, nil
}

// read is a frame, or why there are no more.
type read struct {
	event resource.Event
	skip  bool
	err   error
}

// watcher is a running watch. A goroutine reads the stream, so that Next can
// be left by its own context without losing a part of a frame.
type watcher struct {
	opts   resource.WatchOptions
	cancel context.CancelFunc
	body   io.Closer
	frames chan read
	err    error // of Next only
	once   sync.Once
}

func (w *watcher) run(ctx context.Context) {
	decoder := json.NewDecoder(w.body.(io.Reader))
	for {
		r := w.readFrame(ctx, decoder)
		if r.skip {
			continue
		}
		select {
		case w.frames <- r:
		case <-ctx.Done():
			return
		}
		if r.err != nil {
			return
		}
	}
}

func (w *watcher) readFrame(ctx context.Context, decoder *json.Decoder) read {
	var f frame
	if err := decoder.Decode(&f); err != nil {
		if ctx.Err() != nil || errors.Is(err, io.EOF) {
			return read{err: io.EOF}
		}
		return read{err: resource.Unavailable(fmt.Sprintf("watch broke: %v", err), 1)}
	}
	if len(f.Object) > maxObject {
		return read{err: apierrors.NewInternalError(fmt.Errorf("watch frame is larger than %d bytes", maxObject))}
	}
	if f.Type == "ERROR" {
		status := metav1.Status{}
		if err := json.Unmarshal(f.Object, &status); err != nil {
			return read{err: apierrors.NewInternalError(fmt.Errorf("read watch error: %w", err))}
		}
		return read{err: &apierrors.StatusError{ErrStatus: status}}
	}
	o, err := resource.Parse(f.Object)
	if err != nil {
		return read{err: apierrors.NewInternalError(fmt.Errorf("read watch frame: %w", err))}
	}
	return w.event(f, o)
}

// event makes the event of a frame.
func (w *watcher) event(f frame, o *resource.Object) read {
	switch f.Type {
	case "ADDED":
		return read{event: resource.Event{Type: resource.Added, Object: o, Revision: o.Revision}}
	case "MODIFIED":
		return read{event: resource.Event{Type: resource.Modified, Object: o, Revision: o.Revision}}
	case "DELETED":
		return read{event: resource.Event{Type: resource.Deleted, Object: o, Revision: o.Revision}}
	case "BOOKMARK":
		var meta struct {
			Metadata struct {
				Annotations map[string]string `json:"annotations"`
			} `json:"metadata"`
		}
		if json.Unmarshal(f.Object, &meta) == nil && meta.Metadata.Annotations[metav1.InitialEventsAnnotationKey] == "true" {
			return read{event: resource.Event{Type: resource.Synced, Revision: o.Revision}}
		}
		if w.opts.Bookmarks {
			return read{event: resource.Event{Type: resource.Bookmark, Revision: o.Revision}}
		}
	}
	return read{skip: true} // a type of a later version
}

// Next returns the next event.
func (w *watcher) Next(ctx context.Context) ([]resource.Event, error) {
	if w.err != nil {
		return nil, w.err
	}
	select {
	case r := <-w.frames:
		if r.err != nil {
			w.err = r.err
			return nil, r.err
		}
		return []resource.Event{r.event}, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// Close ends the watch. It may be called twice.
func (w *watcher) Close() {
	w.once.Do(func() {
		w.cancel()
		w.body.Close()
	})
}
