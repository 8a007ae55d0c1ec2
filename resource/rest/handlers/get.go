package handlers

import (
	"net/http"

	"portico/resource"
	"portico/resource/rest"

	"k8s.io/apimachinery/pkg/runtime"
)

// get answers with one object.
func (a *API) get(w http.ResponseWriter, r *http.Request, act *resource.Action, res *rest.Resource) error {
	at, err := readAt(r)
	if err != nil {
		return err
	}
	f, err := a.readFormat(r, act, res)
	if err != nil {
		return err
	}
	o, err := res.Store.Get(r.Context(), keyOf(act, res), at)
	if err != nil {
		return err
	}
	b, err := a.objectBody(r, act, res, o, f, a.render)
	if err != nil {
		return err
	}
	a.respond(w, r, http.StatusOK, f.media.contentType(), b)
	return nil
}

// readFormat negotiates the format of a read. A request for JSON alone needs no list of the
// other formats.
func (a *API) readFormat(r *http.Request, act *resource.Action, res *rest.Resource) (format, error) {
	if accept := r.Header["Accept"]; len(accept) == 0 || len(accept) == 1 && accept[0] == runtime.ContentTypeJSON {
		return format{pretty: prettyWanted(r)}, nil
	}
	return negotiate(r, a.offerOf(act, res, nil))
}

// readAt reads from the query which state of an object is asked for.
func readAt(r *http.Request) (resource.At, error) {
	at := resource.At{}
	switch r.URL.RawQuery {
	case "":
		return at, nil
	case "resourceVersion=0": // what informers and caches send, and nothing else
		at.Freshness = resource.Any
		return at, nil
	}
	q := r.URL.Query()
	if err := refuseExport(q); err != nil {
		return at, err
	}
	rev, err := parseRevision(q.Get("resourceVersion"))
	if err != nil {
		return at, err
	}
	switch {
	case rev > 0:
		at = resource.At{Freshness: resource.NotOlderThan, Revision: rev}
	case isZero(q.Get("resourceVersion")):
		at.Freshness = resource.Any
	}
	return at, nil
}
