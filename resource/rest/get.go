package rest

import (
	"net/http"

	"portico/resource"
)

// get answers with one object.
func (a *API) get(w http.ResponseWriter, r *http.Request, act *resource.Action, res *Resource) error {
	at := resource.At{}
	if r.URL.RawQuery != "" {
		q := r.URL.Query()
		if err := refuseExport(q); err != nil {
			return err
		}
		rev, err := parseRevision(q.Get("resourceVersion"))
		if err != nil {
			return err
		}
		switch {
		case rev > 0:
			at = resource.At{Freshness: resource.NotOlderThan, Revision: rev}
		case q.Get("resourceVersion") == "0":
			at.Freshness = resource.Any
		}
	}
	f, err := negotiate(r, a.offerOf(act, res, nil))
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
