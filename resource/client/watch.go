package client

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"portico/resource"
)

// ahead is the number of events that a watch reads in advance.
const ahead = 64

// Watch starts a watch. Initial events are requested with sendInitialEvents, which older
// servers reject.
func (s *reader) Watch(ctx context.Context, opts resource.WatchOptions) (resource.Watcher, error) {
	ctx, cancel := context.WithCancel(ctx)
	res, err := s.client.Do(ctx, http.MethodGet, Path(s.info, opts.Namespace, ""), watchQuery(opts), nil)
	if err != nil {
		cancel()
		return nil, err
	}
	w := &watcher{
		reader:    s,
		bookmarks: opts.Bookmarks,
		cancel:    cancel,
		ended:     ctx.Done(),
		events:    make(chan resource.Event, ahead),
	}
	go w.read(ctx, res.Body)
	return w, nil
}

func watchQuery(opts resource.WatchOptions) url.Values {
	query := selectorQuery(opts.Selector)
	query.Set("watch", "1")
	if opts.Bookmarks || opts.InitialEvents && opts.Since == 0 {
		query.Set("allowWatchBookmarks", "true")
	}
	if opts.Since > 0 {
		query.Set("resourceVersion", strconv.FormatInt(opts.Since, 10))
		return query
	}
	query.Set("sendInitialEvents", strconv.FormatBool(opts.InitialEvents))
	query.Set("resourceVersionMatch", string(metav1.ResourceVersionMatchNotOlderThan))
	switch opts.At.Freshness {
	case resource.Any:
		query.Set("resourceVersion", "0")
	case resource.NotOlderThan, resource.Exact:
		query.Set("resourceVersion", strconv.FormatInt(opts.At.Revision, 10))
	}
	return query
}

// watcher is a running watch. A goroutine reads the stream, so that the end of Next's context
// does not lose a part of a frame.
type watcher struct {
	reader    *reader
	bookmarks bool
	cancel    context.CancelFunc
	ended     <-chan struct{}     // the watch's context has ended
	events    chan resource.Event // closed when the stream has ended
	broken    error               // its error; set before events is closed

	// Of Next only.
	err   error
	batch []resource.Event
}

// read reads the stream until it ends.
func (w *watcher) read(ctx context.Context, body io.ReadCloser) {
	defer close(w.events)
	defer body.Close()
	bounded := &boundedReader{from: body}
	dec := json.NewDecoder(bounded)
	for {
		bounded.renew()
		e, ok, err := w.readFrame(dec)
		if err != nil {
			w.broken = err
			return
		}
		if !ok {
			continue
		}
		select {
		case w.events <- e:
		case <-ctx.Done():
			w.broken = io.EOF
			return
		}
	}
}

// readFrame reads one event; ok is false for a bookmark that was not requested.
func (w *watcher) readFrame(dec *json.Decoder) (e resource.Event, ok bool, err error) {
	var frame struct {
		Type   string          `json:"type"`
		Object json.RawMessage `json:"object"`
	}
	switch err := dec.Decode(&frame); {
	case errors.Is(err, io.EOF):
		return e, false, io.EOF
	case errors.Is(err, errTooLarge):
		return e, false, unreadable("watch", err)
	case err != nil:
		return e, false, &failure{resource.Unavailable(fmt.Sprintf("watch of %s broke off: %v", w.reader.info.Resource, err), 1), err}
	}
	switch frame.Type {
	case "ADDED":
		e.Type = resource.Added
	case "MODIFIED":
		e.Type = resource.Modified
	case "DELETED":
		e.Type = resource.Deleted
	case "BOOKMARK":
		e.Type = bookmarkType(frame.Object)
	case "ERROR":
		return e, false, frameError(frame.Object)
	default:
		return e, false, nil // of a later version
	}
	o, err := w.reader.parse(frame.Object)
	if err != nil {
		return e, false, unreadable("watch", err)
	}
	e.Revision = o.Revision
	if e.Type == resource.Bookmark {
		return e, w.bookmarks, nil
	}
	if e.Type != resource.Synced {
		e.Object = o
	}
	return e, true, nil
}

// frameError returns the error of the frame that ends a stream with a Status.
func frameError(object []byte) error {
	status := metav1.Status{}
	if err := json.Unmarshal(object, &status); err != nil {
		return unreadable("watch", err)
	}
	return &apierrors.StatusError{ErrStatus: status}
}

// bookmarkType returns Synced for the bookmark that ends the initial events.
func bookmarkType(object []byte) resource.EventType {
	var o struct {
		Metadata struct {
			Annotations map[string]string `json:"annotations"`
		} `json:"metadata"`
	}
	if json.Unmarshal(object, &o) == nil && o.Metadata.Annotations[metav1.InitialEventsAnnotationKey] == "true" {
		return resource.Synced
	}
	return resource.Bookmark
}

// Next returns the events that were read, at least one.
func (w *watcher) Next(ctx context.Context) ([]resource.Event, error) {
	clear(w.batch)
	w.batch = w.batch[:0]
	if w.err != nil {
		return nil, w.err
	}
	select {
	case <-w.ended:
		w.err = io.EOF
		return nil, w.err
	default:
	}
	select {
	case e, ok := <-w.events:
		if !ok {
			w.end()
			return nil, w.err
		}
		w.batch = append(w.batch, e)
	case <-w.ended:
		w.err = io.EOF
		return nil, w.err
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	for len(w.batch) < ahead {
		select {
		case e, ok := <-w.events:
			if !ok {
				return w.batch, nil // the next call returns the error
			}
			w.batch = append(w.batch, e)
		default:
			return w.batch, nil
		}
	}
	return w.batch, nil
}

// end sets the error of a stream that has ended.
func (w *watcher) end() {
	w.err = w.broken
	select {
	case <-w.ended: // by Close or the context
		w.err = io.EOF
	default:
		w.Close()
	}
}

// Close ends the watch and frees its connection. It may be called twice.
func (w *watcher) Close() { w.cancel() }
