package sources

import (
	"context"
	"errors"
	"net/http"
	"strings"
	"sync/atomic"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"portico/discovery/openapi"
	"portico/discovery/rest"
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
	// PathPrefix takes the place of /apis/GROUP/VERSION; see rest.Config.
	PathPrefix string
}

// RESTSource is a Source of a server that has no discovery but an OpenAPI 3
// document: what that offers as an API, last good answer kept (rest_check.go). It
// is safe for concurrent use.
type RESTSource struct {
	*Source
	rest RESTConfig
	api  atomic.Pointer[derived]
	// headless: to HEAD the server says that its document is not to be had, and to
	// GET it gives it. It is Check's.
	headless bool
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
	return rest.CleanPathPrefix(s.rest.PathPrefix), true
}

// LeftOut says which of the server's paths are in no resource; see rest.API.
func (s *RESTSource) LeftOut() (summary string, paths []rest.LeftOut) {
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
func (s *RESTSource) Document(_ context.Context, path, _ string) (*openapi.Answer, error) {
	d := s.api.Load()
	file, _, _ := strings.Cut(path, "?")
	switch {
	case file != "/openapi/v3/"+openapi.Key(s.rest.Group, s.rest.Version):
		return &openapi.Answer{Code: http.StatusNotFound}, nil
	case d.api == nil:
		return nil, errNotYet
	case d.api.Document == nil:
		return &openapi.Answer{Code: http.StatusNotFound}, nil
	}
	return &openapi.Answer{Code: http.StatusOK, Body: d.api.Document}, nil
}

// Follow always fails: REST servers tell of no changes.
func (s *RESTSource) Follow(context.Context, func()) error { return errNoStream }
