package apidocs

import (
	"context"
	"errors"
	"net/http"
	"time"

	"portico/discovery/openapi"
	"portico/gateway/lastgood"
	"portico/gateway/routing"
)

// openAPIKeptBytes bounds the documents of other servers that are kept in memory.
const openAPIKeptBytes = 32 << 20

// fetchTimeout bounds reading a document of a server.
const fetchTimeout = 5 * time.Second

// errAway says why a document is not to be had.
var errAway = errors.New("its server is away, and the document was not kept")

// serveKept answers with the document that the index names, fetched from its
// server, or made of what that has, if it is not kept yet. While the server is
// away it is the one that an earlier gateway had. It returns false if only the
// server can answer.
func (d *Documents) serveKept(w http.ResponseWriter, r *http.Request, index *routing.OpenAPI, key string) bool {
	srv, link := index.Who(key)
	if srv == nil {
		return false
	}
	ctx := context.WithoutCancel(r.Context()) // others may wait for it too
	fetch := func() ([]byte, error) { return d.fetch(ctx, srv, key, link) }
	if srv.Source.Made() {
		d.remote.ServeMade(w, r, srv.OpenAPIOwner(), key, link, fetch)
		return true
	}
	return d.remote.Serve(w, r, srv.OpenAPIOwner(), key, link, fetch)
}

// fetch has a document from its server or, while that is away, from the
// folder. What the server has is right: who restarts a gateway does not find the
// document of a server that gave two the same hash.
func (d *Documents) fetch(ctx context.Context, srv *routing.Server, key, link string) ([]byte, error) {
	at := lastgood.Link{Owner: srv.OpenAPIOwner(), URL: link}
	if v := d.cfg.Verdict(srv); v.Known && !v.Healthy {
		if data, ok := d.kept(at); ok {
			return data, nil
		}
		return nil, errAway // nobody waits for a server that drops packets
	}
	ctx, cancel := context.WithTimeout(ctx, fetchTimeout)
	defer cancel()
	a, err := srv.Source.Document(ctx, link, "")
	switch {
	case err == nil && a.Code == http.StatusOK:
		if d.cfg.Folder != nil {
			d.cfg.Folder.Keep(at, a.Body)
		}
		return a.Body, nil
	case err == nil:
		err = openapi.BadStatus(link, a.Code)
	}
	var broken *openapi.BrokenError
	if !errors.As(err, &broken) {
		if data, ok := d.kept(at); ok {
			return data, nil
		}
	}
	return nil, err
}

// kept returns a document from the folder.
func (d *Documents) kept(at lastgood.Link) ([]byte, bool) {
	if d.cfg.Folder == nil {
		return nil, false
	}
	return d.cfg.Folder.Read(at)
}
