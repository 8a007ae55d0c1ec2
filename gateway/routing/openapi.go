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
	// groups are those of all group/versions. Each has a document of its discovery.
	groups map[string]bool
	// parts are the group/versions in the order of their priority. OpenAPI v2 is made of
	// these.
	parts []Part
	// state is another text whenever urls or owned are others than before; those
	// who follow discovery are told.
	state string

	once   sync.Once
	merged *openapi.Index
}

// Part is one group/version and the server that has its OpenAPI; nil: the gateway.
type Part struct {
	Key, APIService string // "apis/G/V", and its APIService
	Server          *Server
}

func newOpenAPI() *OpenAPI {
	return &OpenAPI{urls: map[string]string{}, servers: map[string]*Server{}, owned: map[string]bool{}, groups: map[string]bool{}}
}

// settle completes the index that is shown after old (nil: nothing is), and
// reports whether it says anything new.
func (x *OpenAPI) settle(old *OpenAPI) (changed bool) {
	if old != nil && maps.Equal(old.urls, x.urls) && maps.Equal(old.owned, x.owned) && maps.Equal(old.groups, x.groups) {
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
	x.groups[gv.Group] = true
	x.parts = append(x.parts, Part{Key: key, APIService: apiservice.Name(gv.Group, gv.Version)})
}

// remote adds a group/version of a server. In the index it is if that of the
// server has it.
func (x *OpenAPI) remote(gv *discovery.GroupVersion, srv *Server) {
	key := openapi.Key(gv.Group, gv.Version)
	if url, ok := srv.Source.OpenAPI()[key]; ok {
		x.urls[key], x.servers[key] = url, srv
	}
	x.groups[gv.Group] = true
	x.parts = append(x.parts, Part{Key: key, APIService: apiservice.Name(gv.Group, gv.Version), Server: srv})
}

// Index returns what clients see, made at the first request. own has the documents of
// the gateway's own kinds, which never change, and of paths: those of the discovery of
// groups, and of other keys.
func (x *OpenAPI) Index(own *openapi.Documents, other ...string) *openapi.Index {
	x.once.Do(func() {
		urls := maps.Clone(x.urls)
		for key := range x.owned {
			if url := own.URL(key); url != "" {
				urls[key] = url
			}
		}
		for group := range x.groups {
			if group != "" {
				urls[openapi.GroupKey(group)] = own.PathURL(openapi.GroupKey(group))
			}
		}
		for _, key := range other {
			urls[key] = own.PathURL(key)
		}
		x.merged = openapi.NewIndex(urls)
	})
	return x.merged
}

// HasGroup reports whether a group has a version in the index.
func (x *OpenAPI) HasGroup(group string) bool { return x.groups[group] }

// Owns reports whether the document of that key is the gateway's own.
func (x *OpenAPI) Owns(key string) bool { return x.owned[key] }

// Who returns who has the document of that key, nil if no server does, and its URL
// with hash.
func (x *OpenAPI) Who(key string) (srv *Server, link string) { return x.servers[key], x.urls[key] }

// Parts returns all group/versions in the order of their priority. It must not be changed.
func (x *OpenAPI) Parts() []Part { return x.parts }

// All returns the servers that somebody's APIService leads to.
func (x *OpenAPI) All() (out []*Server) {
	seen := map[*Server]bool{nil: true}
	for _, p := range x.parts {
		if !seen[p.Server] {
			seen[p.Server] = true
			out = append(out, p.Server)
		}
	}
	return out
}
