package handlers

import (
	"context"
	"io"
	"math/rand/v2"
	"net/http"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"portico/resource"
	"portico/resource/rest"
)

// writeGrace is how long after the end of a watch a write to a client that does
// not read may still block.
const writeGrace = 30 * time.Second

// watch answers with a stream of events until its time is over, the client goes
// away or the store ends it.
func (a *API) watch(w http.ResponseWriter, r *http.Request, act *resource.Action, res *rest.Resource) error {
	began := time.Now()
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
	s := newStream(a, act, res, f, opts)
	if q.watchList() {
		s.listed = func() { a.watches.listed(s.series.gvr, scopeOf(act), time.Since(began)) }
	}
	if f.transform == asTable {
		if s.tables, err = a.newTables(r, act, res, f); err != nil {
			return err
		}
	}
	if q.timeout < 0 {
		return s.serve(r.Context(), w, r, expired{io.EOF})
	}
	life := q.timeout
	if life == 0 {
		life = a.minWatch + rand.N(a.minWatch)
	}
	ctx, cancel := context.WithTimeout(r.Context(), life)
	defer cancel()
	watcher, err := res.Store.Watch(ctx, opts)
	switch {
	case err == nil:
		defer watcher.Close()
	case apierrors.IsResourceExpired(err):
		// What is no longer kept is an event of a watch that began, not an
		// answer to the request (docs/wire.md 5.5).
		watcher = expired{err}
	default:
		return err
	}
	s.packed = q.watchList() && AcceptsGzip(r)
	return s.serve(ctx, w, r, watcher)
}

// serve runs the stream the way the client asks for.
func (s *stream) serve(ctx context.Context, w http.ResponseWriter, r *http.Request, watcher resource.Watcher) error {
	if isWebSocket(r) {
		s.packed = false
		return s.overWebSocket(ctx, w, r, watcher)
	}
	s.overHTTP(ctx, w, watcher)
	return nil
}

// expired is a watch that ends before its first event.
type expired struct{ err error }

func (e expired) Next(context.Context) ([]resource.Event, error) { return nil, e.err }
func (e expired) Close()                                         {}

// overHTTP runs the stream as a response body. The headers go out at once, even
// if no event comes for long.
func (s *stream) overHTTP(ctx context.Context, w http.ResponseWriter, watcher resource.Watcher) {
	contentType := s.format.media.contentType()
	if s.format.media == mediaProtobuf {
		contentType += ";stream=watch"
	}
	w.Header().Set("Content-Type", contentType)
	if s.packed {
		w.Header().Set("Content-Encoding", "gzip")
		w.Header().Add("Vary", "Accept-Encoding")
	}
	w.WriteHeader(http.StatusOK)
	control := http.NewResponseController(w)
	// A writer that cannot be flushed sends when its buffer is full, and one
	// without deadlines blocks for as long as the client does: both still work.
	_ = control.Flush()
	if deadline, ok := ctx.Deadline(); ok && control.SetWriteDeadline(deadline.Add(writeGrace)) == nil {
		// The connection goes on to serve other requests.
		defer func() { _ = control.SetWriteDeadline(time.Time{}) }()
	}
	s.framed = true
	s.send = func(frames []byte, _ []int) error {
		if _, err := w.Write(frames); err != nil {
			return err
		}
		_ = control.Flush()
		return nil
	}
	s.run(ctx, watcher)
}
