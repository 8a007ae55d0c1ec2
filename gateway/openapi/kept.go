package openapi

import (
	"context"
	"errors"
	"net/http"
	"time"

	"portico/discovery/openapi"
	"portico/gateway/routing"
)

// openAPIKeptBytes bounds the documents of other servers that are kept in memory.
const openAPIKeptBytes = 32 << 20

// fetchTimeout bounds reading a document of a server.
const fetchTimeout = 5 * time.Second

// errAway says why a document is not to be had.
var errAway = errors.New("its server is away")

// serveKept answers with the document that the index names, fetched from its server, or
// made of what that has, unless it is in memory. It returns false if only the server can
// answer.
func (d *Documents) serveKept(w http.ResponseWriter, r *http.Request, index *routing.OpenAPI, key string) bool {
	srv, link := index.Who(key)
	if srv == nil {
		return false
	}
	ctx := context.WithoutCancel(r.Context()) // others may wait for it too
	fetch := func() ([]byte, error) { return d.fetch(ctx, srv, link) }
	if srv.Source.ConvertsOpenAPI() {
		d.remote.ServeConverted(w, r, srv.OpenAPIOwner(), key, link, fetch)
		return true
	}
	return d.remote.Serve(w, r, srv.OpenAPIOwner(), key, link, fetch)
}

// fetch returns a document of a server. A server that is away is not asked: it may drop
// packets.
func (d *Documents) fetch(ctx context.Context, srv *routing.Server, link string) ([]byte, error) {
	if v := d.cfg.Verdict(srv); v.Known && !v.Healthy {
		return nil, errAway
	}
	ctx, cancel := context.WithTimeout(ctx, fetchTimeout)
	defer cancel()
	a, err := srv.Source.Document(ctx, link, "")
	switch {
	case err != nil:
		return nil, err
	case a.Code != http.StatusOK:
		return nil, openapi.BadStatus(link, a.Code)
	}
	return a.Body, nil
}
