package handlers

import (
	"context"
	"io"
	"math/rand/v2"
	"net/http"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"portico/resource"
	"portico/resource/response"
	"portico/resource/rest"
	"portico/resource/rest/watchstream"
)

// watch responds with a stream of events until the watch times out, the client is gone or
// the store ends the watch.
func (a *API) watch(w http.ResponseWriter, r *http.Request, act *resource.Action, res *rest.Resource) error {
	began := time.Now()
	f, err := response.Negotiate(r, a.offerOf(act, res, nil))
	if err != nil {
		return err
	}
	q, err := parseListQuery(r.URL.Query(), true)
	if err != nil {
		return err
	}
	opts, err := q.watchOptions(act, res)
	if err != nil {
		return err
	}
	stream := watchstream.Options{Kind: res.Kind, Version: act.Version, Format: f, Bookmarks: opts.Bookmarks, Initial: opts.InitialEvents}
	if stream.Tables, err = a.tables(r, act, res, f); err != nil {
		return err
	}
	if q.watchList() {
		stream.Packed = response.AcceptsGzip(r)
		stream.Listed = func() { a.watches.Metrics.Listed(res.GVR(act.Version), watchScope(act), time.Since(began)) }
	}
	timeout := q.timeout()
	if timeout < 0 {
		return a.watches.Serve(r.Context(), w, r, stream, watchstream.Ended{Err: io.EOF})
	}
	if timeout == 0 {
		timeout = a.cfg.MinWatch + rand.N(a.cfg.MinWatch)
	}
	ctx, cancel := context.WithTimeout(r.Context(), timeout)
	defer cancel()
	watcher, err := res.Store.Watch(ctx, opts)
	switch {
	case err == nil:
		defer watcher.Close()
	case apierrors.IsResourceExpired(err):
		// An expired revision is an ERROR event, not an error response (docs/wire.md 5.5).
		watcher = watchstream.Ended{Err: err}
	default:
		return err
	}
	return a.watches.Serve(ctx, w, r, stream, watcher)
}

// watchScope returns the scope of a watch in metrics.
func watchScope(act *resource.Action) string {
	switch {
	case act.Name != "":
		return "resource"
	case act.Namespace != "":
		return "namespace"
	}
	return "cluster"
}
