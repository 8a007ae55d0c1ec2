package routing

import (
	"crypto/rand"
	"maps"
	"slices"
	"sync"

	"portico/apiservice"
	"portico/discovery"
	"portico/discovery/openapi"
)

// OpenAPI is the index of OpenAPI v3 documents: which server has the document of each
// group/version. Immutable once published.
type OpenAPI struct {
	urls    map[string]string  // by key ("apis/G/V"), with hash
	servers map[string]*Server // by key, of documents of servers
	owned   map[string]bool    // keys of documents of the gateway
	groups  map[string]bool    // groups of all group/versions; each has a document of its discovery
	// parts are the group/versions by priority, of which OpenAPI v2 is made.
	parts []Part
	// state is another text when urls, owned or groups change; followers of discovery are
	// notified by it.
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

// complete sets the state of an index that replaces old (nil: none), and reports whether it
// changed.
func (x *OpenAPI) complete(old *OpenAPI) (changed bool) {
	if old != nil && maps.Equal(old.urls, x.urls) && maps.Equal(old.owned, x.owned) && maps.Equal(old.groups, x.groups) {
		x.state = old.state
		return false
	}
	x.state = rand.Text()
	return true
}

// local adds a group/version of the gateway.
func (x *OpenAPI) local(gv *discovery.GroupVersion) {
	x.owned[x.add(gv, nil)] = true
}

// remote adds a group/version of a server. Its document is in the index if it is in that of
// the server.
func (x *OpenAPI) remote(gv *discovery.GroupVersion, srv *Server) {
	key := x.add(gv, srv)
	if url, ok := srv.Source.OpenAPI()[key]; ok {
		x.urls[key], x.servers[key] = url, srv
	}
}

func (x *OpenAPI) add(gv *discovery.GroupVersion, srv *Server) (key string) {
	key = openapi.Key(gv.Group, gv.Version)
	x.groups[gv.Group] = true
	x.parts = append(x.parts, Part{Key: key, APIService: apiservice.Name(gv.Group, gv.Version), Server: srv})
	return key
}

// Index returns the index for clients, made at the first call. own has the documents of the
// gateway's kinds, which never change, and of paths: the discovery of groups, and other keys.
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

// Groups returns the groups of all group/versions, sorted; the core group is "".
func (x *OpenAPI) Groups() []string { return slices.Sorted(maps.Keys(x.groups)) }

// Owns reports whether the gateway has the document of a key.
func (x *OpenAPI) Owns(key string) bool { return x.owned[key] }

// Server returns the server that has the document of a key, nil if none has, and the URL of the
// document with its hash.
func (x *OpenAPI) Server(key string) (srv *Server, link string) { return x.servers[key], x.urls[key] }

// Parts returns all group/versions by priority. It must not be changed.
func (x *OpenAPI) Parts() []Part { return x.parts }

// Servers returns the servers of all APIServices.
func (x *OpenAPI) Servers() (out []*Server) {
	seen := map[*Server]bool{nil: true}
	for _, p := range x.parts {
		if !seen[p.Server] {
			seen[p.Server] = true
			out = append(out, p.Server)
		}
	}
	return out
}
