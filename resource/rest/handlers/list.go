package handlers

import (
	"net/http"

	"portico/resource"
	"portico/resource/response"
	"portico/resource/rest"
	"portico/resource/rest/liststream"
)

// list implements GET on a collection.
func (a *API) list(w http.ResponseWriter, r *http.Request, act *resource.Action, res *rest.Resource) error {
	if err := refuseExport(r.URL.Query()); err != nil {
		return err
	}
	f, err := a.readFormat(r, act, res, nil)
	if err != nil {
		return err
	}
	opts, err := listOptions(r, act, res)
	if err != nil {
		return err
	}
	opts.Parts = true
	l, err := res.Store.List(r.Context(), opts)
	if err != nil {
		return err
	}
	c := liststream.Contents{List: l, Limit: opts.Limit}
	if l.Page != nil {
		opts.Limit = 0
		c.Rest = func(token string) (*resource.List, error) {
			opts.Continue = token
			return res.Store.List(r.Context(), opts)
		}
	}
	return a.writeList(w, r, act, res, c, f)
}

// writeList responds with a list in a format.
func (a *API) writeList(w http.ResponseWriter, r *http.Request, act *resource.Action, res *rest.Resource, c liststream.Contents, f response.Format) error {
	t, err := a.tables(r, act, res, f)
	if err != nil {
		return err
	}
	return liststream.Write(w, r, liststream.Options{
		Kind: res.Kind, Version: act.Version, Format: f, Tables: t, Forms: a.forms, Logger: a.cfg.Logger,
	}, c)
}
