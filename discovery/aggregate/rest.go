package aggregate

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync/atomic"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"portico/discovery"
	"portico/discovery/openapi"
	"portico/discovery/openapi/swagger"
	"portico/discovery/plain"
)

// OpenAPIPathDefault is where most REST servers have their OpenAPI document.
const OpenAPIPathDefault = "/openapi.json"

// RESTConfig is what a RESTSource needs beside a Config, of which GroupVersions
// and the stream are of no meaning.
type RESTConfig struct {
	// Group and Version that the server is registered under. Required.
	Group, Version string
	// OpenAPIPath is where its OpenAPI 3 document is. Default
	// OpenAPIPathDefault.
	OpenAPIPath string
	// PathPrefix takes the place of /apis/GROUP/VERSION; see plain.Config.
	PathPrefix string
}

// RESTSource is a Source of a server that has no discovery but an OpenAPI 3
// document: what that offers as an API, last good answer kept. It is safe for
// concurrent use.
type RESTSource struct {
	*Source
	rest RESTConfig
	api  atomic.Pointer[derived]
}

// derived is what was made of a server's last document. Immutable.
type derived struct {
	// mark identifies the document.
	mark string
	api  *plain.API // the last good one; nil: there is none
	// index is that of api's document; nil with api.
	index *OpenAPIIndex
	err   error // of a document that is not good
}

// NewRESTSource returns a source; it asks nothing until Check.
func NewRESTSource(cfg Config, rest RESTConfig) *RESTSource {
	if rest.OpenAPIPath == "" {
		rest.OpenAPIPath = OpenAPIPathDefault
	}
	cfg.GroupVersions = []schema.GroupVersion{{Group: rest.Group, Version: rest.Version}}
	s := &RESTSource{Source: NewSource(cfg), rest: rest}
	s.api.Store(&derived{})
	return s
}

// Check asks the server whether its document is the one that is known, and
// derives the API anew if not; changed tells that GroupVersions, OpenAPI,
// PathPrefix or Broken may have new values. It is called from one goroutine at a time. An
// error says that the server cannot be asked or, while no good document of it is
// known, what is wrong with the one it has. A bad one that comes later is no
// reason to turn requests away: Broken tells of it.
func (s *RESTSource) Check(ctx context.Context) (changed bool, err error) {
	old := s.api.Load()
	a, err := s.getWithin(ctx, plain.MaxDocument, s.rest.OpenAPIPath, acceptLegacy, old.mark)
	var large *tooLargeError
	switch {
	case errors.As(err, &large):
		a = &answer{url: large.url, code: http.StatusOK, etag: "too large"}
	case err != nil:
		return false, err
	case a.code == http.StatusNotModified && old.mark != "":
		return false, old.unless()
	case a.code != http.StatusOK:
		return false, fmt.Errorf("bad status from %s: %d", a.url, a.code)
	}
	next := &derived{mark: a.mark(), api: old.api, index: old.index}
	if next.mark == old.mark {
		return false, old.unless()
	}
	api, err := plain.Derive(plain.Config{Group: s.rest.Group, Version: s.rest.Version, PathPrefix: s.rest.PathPrefix}, a.body)
	if large != nil {
		err = large
	}
	if err != nil {
		next.err = err
		s.api.Store(next)
		return s.index.took(brokenIf(err)), next.unless()
	}
	next.api, next.index = api, &OpenAPIIndex{}
	if api.Document != nil {
		key := openapi.Key(s.rest.Group, s.rest.Version)
		next.index.URLs = map[string]string{key: "/openapi/v3/" + key + "?hash=" + openapi.ContentHash(api.Document)}
	}
	s.api.Store(next)
	s.index.took(nil)
	path := s.paths()[0]
	s.take(map[string]part{path: {
		mark: next.mark, turn: s.part(path).turn, gvs: []discovery.GroupVersion{s.knownVersions().keep(api.Resources)},
	}})
	return true, nil
}

// unless returns what is wrong with the document, unless there was a good one.
func (d *derived) unless() error {
	if d.api != nil {
		return nil
	}
	return d.err
}

// GroupVersion is what the server is registered under.
func (s *RESTSource) GroupVersion() schema.GroupVersion {
	return schema.GroupVersion{Group: s.rest.Group, Version: s.rest.Version}
}

// PathPrefix is what takes the place of /apis/GROUP/VERSION in requests to the
// server; ok is false while that is for its document to say and there was none.
func (s *RESTSource) PathPrefix() (prefix string, ok bool) {
	if api := s.api.Load().api; api != nil {
		return api.PathPrefix, true
	}
	if s.rest.PathPrefix == "" {
		return "", false
	}
	return plain.CleanPathPrefix(s.rest.PathPrefix), true
}

// LeftOut says which of the server's paths are in no resource; see plain.API.
func (s *RESTSource) LeftOut() (summary string, paths []plain.LeftOut) {
	if api := s.api.Load().api; api != nil {
		return api.Summary(), api.LeftOut
	}
	return "", nil
}

// RefreshOpenAPI does nothing: Check has read the document.
func (s *RESTSource) RefreshOpenAPI(context.Context) (changed bool, err error) { return false, nil }

// OpenAPI is that of Source.
func (s *RESTSource) OpenAPI() map[string]string {
	if d := s.api.Load(); d.api != nil {
		return d.index.URLs
	}
	return s.Source.OpenAPI() // restored
}

// HeardOpenAPI is that of Source.
func (s *RESTSource) HeardOpenAPI() *OpenAPIIndex { return s.api.Load().index }

// Made is that of Source: what the server has is not what clients read.
func (s *RESTSource) Made() bool { return true }

// errNotYet says that the server has not been asked yet.
var errNotYet = errors.New("the server's OpenAPI document has not been read yet")

// Document is that of Source; it comes from memory.
func (s *RESTSource) Document(_ context.Context, path, _ string) (*swagger.Answer, error) {
	d := s.api.Load()
	file, _, _ := strings.Cut(path, "?")
	switch {
	case file != "/openapi/v3/"+openapi.Key(s.rest.Group, s.rest.Version):
		return &swagger.Answer{Code: http.StatusNotFound}, nil
	case d.api == nil:
		return nil, errNotYet
	case d.api.Document == nil:
		return &swagger.Answer{Code: http.StatusNotFound}, nil
	}
	return &swagger.Answer{Code: http.StatusOK, Body: d.api.Document}, nil
}

// Follow always fails: REST servers tell of no changes.
func (s *RESTSource) Follow(context.Context, func()) error { return errNoStream }
