package gateway

import (
	"context"
	"errors"
	"net/http"

	"portico/discovery/openapi"
	"portico/gateway/lastgood"
)

// openAPIKeptBytes bounds the documents of other servers that are kept in memory.
const openAPIKeptBytes = 32 << 20

// serveKept answers with the document that the index names, fetched from its
// server, or made of what that has, if it is not kept yet. While the server is
// away it is the one that an earlier gateway had. It returns false if only the
// server can answer.
func (g *Gateway) serveKept(w http.ResponseWriter, r *http.Request, index *openAPIIndex, key string) bool {
	srv, link := index.servers[key], index.urls[key]
	if srv == nil || g.openAPIRemote == nil {
		return false
	}
	ctx := context.WithoutCancel(r.Context()) // others may wait for it too
	fetch := func() ([]byte, error) { return g.fetchOpenAPI(ctx, srv, key, link) }
	if srv.source.Made() {
		g.openAPIRemote.ServeMade(w, r, srv.openAPIOwner(), key, link, fetch)
		return true
	}
	return g.openAPIRemote.Serve(w, r, srv.openAPIOwner(), key, link, fetch)
}

// fetchOpenAPI has a document from its server or, while that is away, from the
// folder. What the server has is right: who restarts a gateway does not find the
// document of a server that gave two the same hash.
func (g *Gateway) fetchOpenAPI(ctx context.Context, srv *server, key, link string) ([]byte, error) {
	at := lastgood.Link{Owner: srv.openAPIOwner(), URL: link}
	if v := g.sync.verdict(srv); v.Known && !v.Healthy {
		if data, ok := g.keptOpenAPI(at); ok {
			return data, nil // nobody waits for a server that drops packets
		}
	}
	ctx, cancel := context.WithTimeout(ctx, openAPITimeout)
	defer cancel()
	a, err := srv.source.Document(ctx, link, "")
	switch {
	case err == nil && a.Code == http.StatusOK:
		if g.lastGood != nil && g.lastGood.openAPI != nil {
			g.lastGood.openAPI.Keep(at, a.Body)
		}
		return a.Body, nil
	case err == nil:
		err = openapi.BadStatus(link, a.Code)
	}
	var broken *openapi.BrokenError
	if !errors.As(err, &broken) {
		if data, ok := g.keptOpenAPI(at); ok {
			return data, nil
		}
	}
	return nil, err
}

// keptOpenAPI returns a document from the folder.
func (g *Gateway) keptOpenAPI(at lastgood.Link) ([]byte, bool) {
	if g.lastGood == nil || g.lastGood.openAPI == nil {
		return nil, false
	}
	return g.lastGood.openAPI.Read(at)
}

// keepDocuments makes the folder of documents.
func (g *Gateway) keepDocuments(l *lastGood) (err error) {
	l.openAPI, err = lastgood.NewFolder(lastgood.FolderConfig{StateDir: g.cfg.StateDir, Named: l.namedOpenAPI, Logger: g.log})
	return err
}

// namedOpenAPI returns the documents that the indexes of all servers name; false
// while servers that are known from before may still turn up.
func (l *lastGood) namedOpenAPI() (map[lastgood.Link]bool, bool) {
	index, live := l.sync.openAPI.Load(), l.sync.live.Load()
	if !l.sync.ready() || index == nil || live == nil {
		return nil, false
	}
	gone := l.gone()
	l.sync.mu.Lock()
	defer l.sync.mu.Unlock()
	for target := range l.sync.indexes {
		if (*live)[target] == nil && !gone(target) {
			return nil, false
		}
	}
	named := make(map[lastgood.Link]bool, len(index.urls))
	for key, srv := range index.servers {
		named[lastgood.Link{Owner: srv.openAPIOwner(), URL: index.urls[key]}] = true
	}
	return named, true
}
