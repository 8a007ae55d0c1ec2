package gateway

import (
	"context"
	"fmt"
	"maps"
	"net/http"
	"strings"
	"sync"

	"portico/apiservice"
	"portico/discovery"
	"portico/discovery/openapi"
	"portico/discovery/openapi/swagger"
	"portico/resource/rest"
)

// openAPIIndex says who has the OpenAPI v3 document of each group/version. It
// is part of what sync publishes, so that the index is always answered from
// memory. Immutable once published.
type openAPIIndex struct {
	urls map[string]string // key ("apis/G/V") to URL with hash
	// servers have the other documents, by key.
	servers map[string]*server
	// owned are the keys whose documents the gateway has itself.
	owned map[string]bool
	// parts are the group/versions in the order of their priority, with who has
	// them: OpenAPI v2 is made of these (openapi_v2.go).
	parts []openAPIPart

	once   sync.Once
	merged *openapi.Index

	onceV2 sync.Once
	v2     serversV2
}

func newOpenAPIIndex() *openAPIIndex {
	return &openAPIIndex{urls: map[string]string{}, servers: map[string]*server{}, owned: map[string]bool{}}
}

// local adds a group/version of the gateway's own.
func (x *openAPIIndex) local(gv *discovery.GroupVersion) {
	key := openapi.Key(gv.Group, gv.Version)
	x.owned[key] = true
	x.parts = append(x.parts, openAPIPart{key: key, name: apiservice.Name(gv.Group, gv.Version)})
}

// remote adds a group/version of a server. In the index it is if that of the
// server has it.
func (x *openAPIIndex) remote(gv *discovery.GroupVersion, srv *server, available bool) {
	key := openapi.Key(gv.Group, gv.Version)
	if url, ok := srv.source.OpenAPI()[key]; ok {
		x.urls[key], x.servers[key] = url, srv
	}
	x.parts = append(x.parts, openAPIPart{key: key, name: apiservice.Name(gv.Group, gv.Version), server: srv, available: available})
}

// index returns what clients see, made at the first request. The gateway's own
// kinds, and so its own documents, never change.
func (x *openAPIIndex) index(own *openapi.Documents) *openapi.Index {
	x.once.Do(func() {
		urls := maps.Clone(x.urls)
		for key := range x.owned {
			if url := own.URL(key); url != "" {
				urls[key] = url
			}
		}
		x.merged = openapi.NewIndex(urls)
	})
	return x.merged
}

// serveOpenAPI answers /openapi/v3 from memory and sends requests for one
// document to whoever has it. /openapi/v2 is made when it is asked for.
func (g *Gateway) serveOpenAPI(w http.ResponseWriter, r *http.Request) {
	index := g.sync.openAPI.Load()
	key := strings.Trim(strings.TrimPrefix(r.URL.Path, "/openapi/v3"), "/")
	switch {
	case r.URL.Path == "/openapi/v2" && g.openAPIV2 != nil:
		g.openAPIV2.ServeHTTP(w, r)
	case index == nil || !strings.HasPrefix(r.URL.Path, "/openapi/v3"):
		http.Error(w, "404 page not found", http.StatusNotFound)
	case key == "":
		index.index(g.openapi).ServeHTTP(w, r)
	case index.owned[key]:
		g.openapi.Handler().ServeHTTP(w, r)
	case g.serveKept(w, r, index, key):
	default:
		g.proxyOpenAPI(w, r, key)
	}
}

// openAPIKeptBytes bounds the documents of other servers that are kept.
const openAPIKeptBytes = 32 << 20

// serveKept answers with the document that the index names, fetched from its
// server if it is not kept yet. It returns false if only the server can answer.
func (g *Gateway) serveKept(w http.ResponseWriter, r *http.Request, index *openAPIIndex, key string) bool {
	srv, link := index.servers[key], index.urls[key]
	if srv == nil || g.openAPIRemote == nil {
		return false
	}
	ctx := context.WithoutCancel(r.Context()) // others may wait for it too
	return g.openAPIRemote.Serve(w, r, srv.openAPIOwner(), key, link, func() ([]byte, error) {
		ctx, cancel := context.WithTimeout(ctx, openAPITimeout)
		defer cancel()
		a, err := srv.fetchOpenAPI(ctx, link, "")
		if err != nil {
			return nil, err
		}
		if a.Code != http.StatusOK {
			return nil, fmt.Errorf("bad status of %s: %d", link, a.Code)
		}
		return a.Body, nil
	})
}

// fetchOpenAPI asks the server for one of its documents, for the gateway's own
// use.
func (srv *server) fetchOpenAPI(ctx context.Context, path, etag string) (*swagger.Answer, error) {
	return swagger.Fetch(ctx, srv.up.Short(), srv.up.Base().String(), identifyAggregator, path, etag)
}

// proxyOpenAPI sends a request for the document of a group/version to its
// server.
func (g *Gateway) proxyOpenAPI(w http.ResponseWriter, r *http.Request, key string) {
	var group, version string
	switch parts := strings.Split(key, "/"); {
	case len(parts) == 3 && parts[0] == "apis":
		group, version = parts[1], parts[2]
	case len(parts) == 2 && parts[0] == "api":
		version = parts[1]
	}
	rt := g.sync.table.Load().lookup(group, version)
	if rt == nil || rt.local {
		http.Error(w, "404 page not found", http.StatusNotFound)
		return
	}
	if err := rt.unavailable(); err != nil {
		rest.WriteStatus(w, r, err)
		return
	}
	// Whether the answer may be kept is for the server to say.
	w.Header().Del("Cache-Control")
	rt.upstream.short.ServeHTTP(w, r)
}
