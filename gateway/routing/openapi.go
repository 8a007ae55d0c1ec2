package routing

import (
	"crypto/rand"
	"maps"
	"sync"

	"portico/apiservice"
	"portico/discovery"
	"portico/discovery/openapi"
)

// OpenAPI says who has the OpenAPI v3 document of each group/version. It
// is part of what sync publishes, so that the index is always answered from
// memory. Immutable once published.
type OpenAPI struct {
	urls map[string]string // key ("apis/G/V") to URL with hash
	// servers have the other documents, by key.
	servers map[string]*Server
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

func newOpenAPI() *OpenAPI {
	return &OpenAPI{urls: map[string]string{}, servers: map[string]*Server{}, owned: map[string]bool{}}
}

// settle completes the index that is shown after old (nil: nothing is), and
// reports whether it says anything new.
func (x *OpenAPI) settle(old *OpenAPI) (changed bool) {
	if old != nil && maps.Equal(old.urls, x.urls) && maps.Equal(old.owned, x.owned) {
		x.state = old.state
		return false
	}
	x.state = rand.Text()
	return true
}

// local adds a group/version of the gateway's own.
func (x *OpenAPI) local(gv *discovery.GroupVersion) {
	key := openapi.Key(gv.Group, gv.Version)
	x.owned[key] = true
	x.parts = append(x.parts, openAPIPart{key: key, name: apiservice.Name(gv.Group, gv.Version)})
}

// remote adds a group/version of a server. In the index it is if that of the
// server has it.
func (x *OpenAPI) remote(gv *discovery.GroupVersion, srv *Server, available bool) {
	key := openapi.Key(gv.Group, gv.Version)
	if url, ok := srv.Source.OpenAPI()[key]; ok {
		x.urls[key], x.servers[key] = url, srv
	}
	x.parts = append(x.parts, openAPIPart{key: key, name: apiservice.Name(gv.Group, gv.Version), server: srv, available: available})
}

// Index returns what clients see, made at the first request. The gateway's own
// kinds, and so its own documents, never change.
func (x *OpenAPI) Index(own *openapi.Documents) *openapi.Index {
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

// Owns reports whether the document of that key is the gateway's own.
func (x *OpenAPI) Owns(key string) bool { return x.owned[key] }

// Who returns who has the document of that key, nil if no server does, and its URL
// with hash.
func (x *OpenAPI) Who(key string) (srv *Server, link string) { return x.servers[key], x.urls[key] }

// All returns the servers that somebody's APIService leads to.
func (x *OpenAPI) All() (out []*Server) {
	seen := map[*Server]bool{nil: true}
	for _, p := range x.parts {
		if !seen[p.server] {
			seen[p.server] = true
			out = append(out, p.server)
		}
	}
	return out
}
