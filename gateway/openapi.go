package gateway

import (
	"crypto/rand"
	"fmt"
	"maps"
	"net/http"
	"strings"
	"sync"

	"portico/apiservice"
	"portico/discovery"
	"portico/discovery/openapi"
	"portico/discovery/openapi/swagger"
	"portico/gateway/proxy"
	"portico/resource"
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
	// state is another text whenever urls or owned are others than before; those
	// who follow discovery are told.
	state string

	once   sync.Once
	merged *openapi.Index

	onceV2 sync.Once
	v2     serversV2
}

func newOpenAPIIndex() *openAPIIndex {
	return &openAPIIndex{urls: map[string]string{}, servers: map[string]*server{}, owned: map[string]bool{}}
}

// settle completes the index that is shown after old (nil: nothing is), and
// reports whether it says anything new.
func (x *openAPIIndex) settle(old *openAPIIndex) (changed bool) {
	if old != nil && maps.Equal(old.urls, x.urls) && maps.Equal(old.owned, x.owned) {
		x.state = old.state
		return false
	}
	x.state = rand.Text()
	return true
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

// assembleOpenAPI makes what serves the documents of the gateway's own kinds and
// of the servers behind it.
func (g *Gateway) assembleOpenAPI(kinds []*rest.Kind) {
	changed := func() {
		for _, n := range g.sync.changed {
			n.Poke()
		}
	}
	g.openapi = openapi.FromKinds(kinds)
	g.openAPIRemote = openapi.NewRemote(openapi.Config{Budget: openAPIKeptBytes, BrokenChanged: changed, Logger: g.log})
	g.openAPIV2 = swagger.New(swagger.Config{
		Servers: g.serversV2, BrokenChanged: changed, Registry: g.metrics.Registry(), Logger: g.log,
	})
	g.metrics.Registry().MustRegister(newBrokenMetric(g))
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
	rt := g.sync.table.Load().Lookup(group, version)
	if rt == nil || rt.Local || rt.Plain != nil {
		http.Error(w, "404 page not found", http.StatusNotFound)
		return
	}
	if err := rt.Unavailable(); err != nil {
		rest.WriteStatus(w, r, resource.Unavailable(
			fmt.Sprintf("the OpenAPI document %s was not kept, and its server cannot be asked for it: %s", key, err.ErrStatus.Message), proxy.RetryAfter))
		return
	}
	// Whether the answer may be kept is for the server to say.
	w.Header().Del("Cache-Control")
	rt.Upstream.Pass(w, r)
}
