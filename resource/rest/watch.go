package rest

import (
	"context"
	"errors"
	"io"
	"math/rand/v2"
	"net/http"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"portico/resource"
)

// lastBookmark is how long before the end of a watch a last bookmark is sent,
// so that the client goes on from there instead of listing (contract 5.6).
const lastBookmark = 2 * time.Second

// watch answers with a stream of events until its time is over, the client goes
// away or the store ends it.
func (a *API) watch(w http.ResponseWriter, r *http.Request, act *resource.Action, res *Resource) error {
	f, err := negotiate(r, a.offerOf(act, res, nil))
	if err != nil {
		return err
	}
	q, err := parseQuery(r.URL.Query())
	if err != nil {
		return err
	}
	opts, err := q.watchOptions(act, res)
	if err != nil {
		return err
	}
	s := &stream{
		api: a, kind: res.Kind, version: act.Version, format: f, shape: formOf(f, act.Version), bookmarks: q.bookmarks,
		endOfInitial: q.bookmarks && q.initialEvents != nil && *q.initialEvents,
	}
	if f.transform == asTable {
		if s.tables, err = a.newTables(r, act, res, f); err != nil {
			return err
		}
	}
	life := q.timeout
	if life == 0 {
		life = a.minWatch + rand.N(a.minWatch)
	}
	ctx, cancel := context.WithTimeout(r.Context(), life)
	defer cancel()
	watcher, err := res.Store.Watch(ctx, opts)
	// What is no longer kept is an event of a watch that began, not an answer
	// to the request (contract 5.5).
	if err != nil && !apierrors.IsResourceExpired(err) {
		return err
	}
	if watcher != nil {
		defer watcher.Close()
	}
	run := func(ctx context.Context) {
		if err != nil {
			s.fail(err)
			return
		}
		s.run(ctx, watcher)
	}
	if isWebSocket(r) {
		return s.overWebSocket(ctx, w, r, run)
	}
	s.overHTTP(w)
	run(ctx)
	return nil
}

// overHTTP sends the headers at once, even if no event comes for long.
func (s *stream) overHTTP(w http.ResponseWriter) {
	contentType := s.format.media.contentType()
	if s.format.media == mediaProtobuf {
		contentType += ";stream=watch"
	}
	w.Header().Set("Content-Type", contentType)
	w.WriteHeader(http.StatusOK)
	control := http.NewResponseController(w)
	s.framed = true
	s.send = func(p []byte, _ []int) error {
		if _, err := w.Write(p); err != nil {
			return err
		}
		return control.Flush()
	}
	// A client that cannot be flushed to gets its events when the buffer is full.
	_ = control.Flush()
}

// stream writes one watch. It belongs to one goroutine.
type stream struct {
	api     *API
	kind    *Kind
	version string
	format  format
	shape   form
	tables  *tables // nil unless Table
	// bookmarks: the client understands them. endOfInitial: it waits for the
	// one that ends the initial events.
	bookmarks, endOfInitial bool
	framed                  bool

	// send writes frames; ends are where each of them ends.
	send   func(frames []byte, ends []int) error
	buffer []byte
	ends   []int
	rows   bool  // a Table was sent, with its columns
	last   int64 // revision that everything was sent up to
}

// run copies events until there are no more.
func (s *stream) run(ctx context.Context, watcher resource.Watcher) {
	early, cancel := ctx, context.CancelFunc(func() {})
	if deadline, ok := ctx.Deadline(); ok && s.bookmarks && time.Until(deadline) > lastBookmark {
		early, cancel = context.WithDeadline(ctx, deadline.Add(-lastBookmark))
	}
	defer func() { cancel() }()
	for {
		events, err := watcher.Next(early)
		switch {
		case err == nil:
			if err = s.write(events); err != nil {
				s.fail(err)
				return
			}
		case early != ctx && early.Err() != nil && ctx.Err() == nil:
			early = ctx
			if s.last > 0 && s.write([]resource.Event{{Type: resource.Bookmark, Revision: s.last}}) != nil {
				return
			}
		case ctx.Err() != nil || errors.Is(err, io.EOF):
			return // the clean end of a watch is the end of the stream
		default:
			s.fail(err)
			return
		}
	}
}

// errGone says that the client cannot be written to.
var errGone = errors.New("the client is gone")

// write sends events as one piece.
func (s *stream) write(events []resource.Event) error {
	s.buffer, s.ends = s.buffer[:0], s.ends[:0]
	for _, e := range events {
		s.last = max(s.last, e.Revision)
		if err := s.append(e); err != nil {
			return err
		}
	}
	return s.flush()
}

func (s *stream) flush() error {
	if len(s.buffer) == 0 {
		return nil
	}
	if s.send(s.buffer, s.ends) != nil {
		return errGone
	}
	return nil
}

// append adds the frame of one event to the buffer.
func (s *stream) append(e resource.Event) error {
	var object []byte
	var err error
	name := ""
	switch e.Type {
	case resource.Added:
		name = "ADDED"
	case resource.Modified:
		name = "MODIFIED"
	case resource.Deleted:
		name = "DELETED"
	case resource.Bookmark, resource.Synced:
		if !s.bookmarks || e.Type == resource.Synced && !s.endOfInitial {
			return nil
		}
		name = "BOOKMARK"
	}
	switch {
	case name == "BOOKMARK":
		object, err = s.bookmark(e.Revision, e.Type == resource.Synced)
	case s.tables != nil:
		object, err = s.table(e.Object)
	default:
		object, err = s.api.render(s.kind, e.Object, s.shape)
	}
	if err != nil {
		return err
	}
	s.buffer = appendFrame(s.buffer, s.format.media, name, object, s.framed)
	s.ends = append(s.ends, len(s.buffer))
	return nil
}

// fail ends the stream with an ERROR event.
func (s *stream) fail(err error) {
	if errors.Is(err, errGone) {
		return
	}
	status := resource.AsStatus(err)
	data, encodeErr := encodeStatus(status, s.format.media)
	if encodeErr != nil {
		s.api.logger.Error("encoding the end of a watch failed", "error", encodeErr)
		return
	}
	s.buffer = appendFrame(s.buffer[:0], s.format.media, "ERROR", data, s.framed)
	s.ends = append(s.ends[:0], len(s.buffer))
	_ = s.flush() // it was the last thing to say
}

// isWebSocket reports whether the client wants to speak WebSocket.
func isWebSocket(r *http.Request) bool {
	return strings.EqualFold(r.Header.Get("Upgrade"), "websocket") &&
		strings.Contains(strings.ToLower(r.Header.Get("Connection")), "upgrade")
}
