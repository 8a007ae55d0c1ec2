package handlers

import (
	"net/http"

	"k8s.io/apimachinery/pkg/runtime"

	"portico/resource"
	"portico/resource/response"
	"portico/resource/rest"
)

// get implements GET on an object or its subresource sub.
func (a *API) get(w http.ResponseWriter, r *http.Request, act *resource.Action, res *rest.Resource, sub *rest.Subresource) error {
	at, err := readAt(r)
	if err != nil {
		return err
	}
	f, err := a.readFormat(r, act, res, sub)
	if err != nil {
		return err
	}
	o, err := res.Store.Get(r.Context(), keyOf(act, res), at)
	if err != nil {
		return err
	}
	if sub != nil && sub.Projection != nil {
		return a.writeResult(w, r, act, res, sub, http.StatusOK, o)
	}
	return a.sendObject(w, r, act, res, http.StatusOK, o, f, a.forms.Encode)
}

// readFormat negotiates the format of a read. A request for JSON needs no Offer.
func (a *API) readFormat(r *http.Request, act *resource.Action, res *rest.Resource, sub *rest.Subresource) (response.Format, error) {
	if accept := r.Header["Accept"]; len(accept) == 0 || len(accept) == 1 && accept[0] == runtime.ContentTypeJSON {
		return response.Negotiate(r, response.Offer{})
	}
	return response.Negotiate(r, a.offerOf(act, res, sub))
}

// readAt returns the point in history at which a query reads an object.
func readAt(r *http.Request) (resource.At, error) {
	at := resource.At{}
	switch r.URL.RawQuery {
	case "":
		return at, nil
	case "resourceVersion=0": // the query of informers
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
	case q.Get("resourceVersion") != "":
		at.Freshness = resource.Any
	}
	return at, nil
}
