package sources

import (
	"context"
	"errors"
	"net/http"
	"strings"
	"sync/atomic"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"portico/discovery"
	"portico/discovery/openapi"
	"portico/discovery/rest"
)

// OpenAPIPathDefault is the default of RESTConfig.OpenAPIPath.
const OpenAPIPathDefault = "/openapi.json"

// documentInterval is how often the document of a server without ETags is read.
const documentInterval = time.Minute

// RESTConfig configures a RESTSource beside a Config, of which GroupVersions and the fields
// for streams are ignored.
type RESTConfig struct {
	// Group and Version that the server is registered under. Required.
	Group, Version string
	// OpenAPIPath is the path of its OpenAPI 3 document. Default OpenAPIPathDefault.
	OpenAPIPath string
	// PathPrefix replaces /apis/GROUP/VERSION; see rest.Config.
	PathPrefix string
}

// RESTSource is the Source of a server without discovery. Its API is derived from an OpenAPI 3
// document. The last good document remains while the server has none. It is safe for concurrent
// use.
type RESTSource struct {
	*Source
	rest RESTConfig
	api  atomic.Pointer[derived]
}

// derived is the last document of a server. Immutable.
type derived struct {
	etag     string // or the digest of the document
	sum      string // the digest
	modified string // Last-Modified; empty: unknown
	size     int64  // in bytes
	read     time.Time
	err      error         // of an invalid document
	api      *rest.API     // of the last good document; nil: none
	index    *OpenAPIIndex // of api; nil with api
}

// NewRESTSource returns a source. It sends no request before Check.
func NewRESTSource(cfg Config, rest RESTConfig) *RESTSource {
	if rest.OpenAPIPath == "" {
		rest.OpenAPIPath = OpenAPIPathDefault
	}
	cfg.GroupVersions = []schema.GroupVersion{{Group: rest.Group, Version: rest.Version}}
	s := &RESTSource{Source: NewSource(cfg), rest: rest}
	s.api.Store(&derived{})
	return s
}

// tooLarge is the etag of a document beyond rest.MaxDocument.
const tooLarge = "too large"

// Check requests the document and derives the API from it if it changed; then it calls
// Config.Changed. The document of a server without ETag and Last-Modified is requested once
// per documentInterval; in between it gets a HEAD. Check is called from one goroutine at a
// time. The error says that the server cannot be reached or that it never had a valid
// document. An invalid document after a valid one is no error: Broken returns it.
func (s *RESTSource) Check(ctx context.Context) error {
	old := s.api.Load()
	if !old.due() {
		same, err := s.head(ctx, old)
		if err != nil {
			return err
		}
		if same {
			return old.failure()
		}
	}
	q := request{path: s.rest.OpenAPIPath, accept: acceptLegacy, etag: old.etag, limit: rest.MaxDocument, probe: true}
	if !isETag(old.etag) && !old.old() {
		q.modifiedSince = old.modified
	}
	a, err := s.do(ctx, q)
	var large *tooLargeError
	switch {
	case errors.As(err, &large):
		a = &answer{url: large.url, code: http.StatusOK, etag: tooLarge}
	case err != nil:
		return err
	case a.code == http.StatusNotModified && old.etag != "":
		return old.failure()
	case a.code != http.StatusOK:
		return badStatus(a)
	}
	next := &derived{
		etag: a.tag(), sum: a.sum(), modified: a.modified, size: int64(len(a.body)), read: time.Now(),
		err: old.err, api: old.api, index: old.index,
	}
	if large != nil {
		next.sum = tooLarge
	}
	changed := next.sum != old.sum && s.derive(next, a.body, large)
	s.api.Store(next)
	if changed && s.cfg.Changed != nil {
		s.cfg.Changed()
	}
	return next.failure()
}

// derive derives the API from a new document; large is why there is none. It reports whether
// something that the source returns changed.
func (s *RESTSource) derive(next *derived, document []byte, large *tooLargeError) (changed bool) {
	var api *rest.API
	if next.err = nil; large != nil {
		next.err = large
	} else {
		api, next.err = rest.Derive(rest.Config{Group: s.rest.Group, Version: s.rest.Version, PathPrefix: s.rest.PathPrefix}, document)
	}
	if changed := s.openAPIErr.set(brokenIf(next.err)); next.err != nil {
		return changed
	}
	next.api, next.index = api, &OpenAPIIndex{}
	if api.Document != nil {
		key := openapi.Key(s.rest.Group, s.rest.Version)
		next.index.URLs = map[string]string{key: "/openapi/v3/" + key + "?hash=" + openapi.ContentHash(api.Document)}
	}
	// Stored first: readers of GroupVersions expect PathPrefix to match.
	s.api.Store(next)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.results[s.paths()[0]] = &result{groupVersions: []discovery.GroupVersion{s.knownVersions().reuse(api.Resources)}}
	s.store()
	return true
}

// failure returns what is wrong with the document unless there was a good one.
func (d *derived) failure() error {
	if d.api != nil {
		return nil
	}
	return d.err
}

// due reports whether the document is to be requested: there is a cheap way to ask whether it
// changed, it is old, or it is invalid for another reason than its size.
func (d *derived) due() bool {
	return isETag(d.etag) || d.modified != "" || d.old() || d.sum != tooLarge && d.err != nil
}

func (d *derived) old() bool { return time.Since(d.read) >= documentInterval }

// head asks whether the document is available; same reports that it is, with the known size.
// A server need not support HEAD: that it says so is enough.
func (s *RESTSource) head(ctx context.Context, known *derived) (same bool, err error) {
	a, err := s.do(ctx, request{method: http.MethodHead, path: s.rest.OpenAPIPath, accept: acceptLegacy})
	switch {
	case err != nil:
		return false, err
	case a.code == http.StatusMethodNotAllowed, a.code == http.StatusNotImplemented:
		return true, nil
	case a.code >= http.StatusInternalServerError:
		return false, badStatus(a)
	case a.code != http.StatusOK:
		return false, nil
	case a.length < 0:
		return true, nil
	case known.sum == tooLarge:
		return a.length > rest.MaxDocument, nil
	}
	return a.length == known.size, nil
}

// GroupVersion returns what the server is registered under.
func (s *RESTSource) GroupVersion() schema.GroupVersion {
	return schema.GroupVersion{Group: s.rest.Group, Version: s.rest.Version}
}

// PathPrefix returns what replaces /apis/GROUP/VERSION in requests to the server; ok is false
// before the first document, which decides it.
func (s *RESTSource) PathPrefix() (prefix string, ok bool) {
	if api := s.api.Load().api; api != nil {
		return api.PathPrefix, true
	}
	if s.rest.PathPrefix == "" {
		return "", false
	}
	return rest.CleanPathPrefix(s.rest.PathPrefix), true
}

// LeftOut returns the paths of the server that are in no resource; see rest.API.
func (s *RESTSource) LeftOut() (summary string, paths []rest.LeftOut) {
	if api := s.api.Load().api; api != nil {
		return api.Summary(), api.LeftOut
	}
	return "", nil
}

// RefreshOpenAPI does nothing: Check reads the document.
func (s *RESTSource) RefreshOpenAPI(context.Context) (changed bool, err error) { return false, nil }

// OpenAPI implements the method of Source.
func (s *RESTSource) OpenAPI() map[string]string {
	if d := s.api.Load(); d.api != nil {
		return d.index.URLs
	}
	return s.Source.OpenAPI() // restored
}

// FetchedOpenAPI implements the method of Source.
func (s *RESTSource) FetchedOpenAPI() *OpenAPIIndex { return s.api.Load().index }

// ConvertsOpenAPI is always true: clients read a document derived from that of the server.
func (s *RESTSource) ConvertsOpenAPI() bool { return true }

var errNotRead = errors.New("the OpenAPI document of the server has not been read yet")

// Document returns the derived document from memory.
func (s *RESTSource) Document(_ context.Context, path string) ([]byte, error) {
	d := s.api.Load()
	file, _, _ := strings.Cut(path, "?")
	switch {
	case d.api == nil:
		return nil, errNotRead
	case file != "/openapi/v3/"+openapi.Key(s.rest.Group, s.rest.Version), d.api.Document == nil:
		return nil, openapi.BadStatus(path, http.StatusNotFound)
	}
	return d.api.Document, nil
}

// Follow always fails: REST servers have no stream.
func (s *RESTSource) Follow(context.Context, func()) error { return errNoStream }

// Announced returns nothing: a REST server announces no states.
func (s *RESTSource) Announced() discovery.State { return discovery.State{} }

// Acknowledge does nothing.
func (s *RESTSource) Acknowledge(discovery.State) {}
