package sources

import (
	"context"
	"errors"
	"net/http"
	"time"

	"portico/discovery"
	"portico/discovery/openapi"
	"portico/discovery/rest"
)

const (
	// documentInterval is how often the document of a server without ETags is
	// read. In between it is asked whether the document was modified since, or, if
	// it does not say that either, only whether it is there and of what size.
	documentInterval = time.Minute
	// settling is how old a Last-Modified has to be to tell a document from the
	// next one: it is in whole seconds.
	settling = 2 * time.Second
)

// derived is what was made of a server's last document. Immutable.
type derived struct {
	// mark identifies the document, and sum its bytes. since is its Last-Modified,
	// to ask with; "": the server does not say. young: since does not tell the
	// document from the next one yet.
	mark, sum, since string
	young            bool
	// size is that of the document, in bytes; read is when it was.
	size int64
	read time.Time
	api  *rest.API // the last good one; nil: there is none
	// index is that of api's document; nil with api.
	index *OpenAPIIndex
	err   error // of a document that is not good
}

// Check asks the server whether its document is the one that is known, and
// derives the API anew if not; changed tells that GroupVersions, OpenAPI,
// PathPrefix or Broken may have new values. A server that knows neither ETags nor
// Last-Modified is asked for its document each documentInterval, or when that has
// another size. It is called from one goroutine at a time. An error says that the
// server cannot be asked or, while no good document of it is known, what is wrong
// with the one it has. A bad one that comes later is no reason to turn requests
// away: Broken tells of it.
func (s *RESTSource) Check(ctx context.Context) (changed bool, err error) {
	old := s.api.Load()
	refused := s.headless
	if old.lasts() {
		code, resized, err := s.look(ctx, old)
		if err != nil {
			return false, err
		}
		refused = refuses(code)
		s.headless = s.headless && refused
		if !resized && refused == s.headless {
			return false, old.unless()
		}
	}
	a, err := s.ask(ctx, question{
		method: http.MethodGet, path: s.rest.OpenAPIPath, accept: acceptLegacy, etag: old.mark, since: old.asksSince(), limit: rest.MaxDocument,
		check: true,
	})
	var large *tooLargeError
	switch {
	case errors.As(err, &large):
		a = &answer{url: large.url, code: http.StatusOK, etag: tooLarge}
	case err != nil:
		return false, err
	case a.code == http.StatusNotModified && old.mark != "":
		return false, old.unless()
	case a.code != http.StatusOK:
		return false, badStatus(a)
	}
	s.headless = refused
	return s.derive(old, a, large)
}

// tooLarge is the mark of a document that is.
const tooLarge = "too large"

// derive makes of an answer what is known. large is why there is no document in
// it; nil: there is.
func (s *RESTSource) derive(old *derived, a *answer, large *tooLargeError) (changed bool, err error) {
	next := &derived{mark: a.mark(), size: int64(len(a.body)), read: time.Now(), api: old.api, index: old.index}
	next.since, next.young = a.since()
	if large != nil {
		next.sum = tooLarge
	} else {
		next.sum = a.sum()
	}
	if next.sum == old.sum { // whatever its mark is
		next.err = old.err
		s.api.Store(next)
		return false, next.unless()
	}
	api, err := rest.Derive(rest.Config{Group: s.rest.Group, Version: s.rest.Version, PathPrefix: s.rest.PathPrefix}, a.body)
	if large != nil {
		err = large
	}
	if err != nil {
		next.err = err
		s.api.Store(next)
		return s.openAPIVerdict.took(brokenIf(err)), next.unless()
	}
	next.api, next.index = api, &OpenAPIIndex{}
	if api.Document != nil {
		key := openapi.Key(s.rest.Group, s.rest.Version)
		next.index.URLs = map[string]string{key: "/openapi/v3/" + key + "?hash=" + openapi.ContentHash(api.Document)}
	}
	s.api.Store(next)
	s.openAPIVerdict.took(nil)
	path := s.paths()[0]
	s.take(path, part{
		mark: next.mark, generation: s.part(path).generation, gvs: []discovery.GroupVersion{s.knownVersions().keep(api.Resources)},
	})
	return true, nil
}

// unless returns what is wrong with the document, unless there was a good one.
func (d *derived) unless() error {
	if d.api != nil {
		return nil
	}
	return d.err
}

// lasts reports whether the document is not to be read yet, as far as its age
// goes: there is no cheap way to ask whether it changed, and it can be used, or is
// too large to be read all the time.
func (d *derived) lasts() bool {
	if isETag(d.mark) || d.since != "" || d.old() {
		return false
	}
	return d.sum == tooLarge || d.sum != "" && d.err == nil
}

// asksSince is the Last-Modified to ask with. Once in a while it is none: a
// document that an older one took the place of counts as not modified.
func (d *derived) asksSince() string {
	if isETag(d.mark) || d.young || d.old() {
		return ""
	}
	return d.since
}

func (d *derived) old() bool { return time.Since(d.read) >= documentInterval }

// look asks the server whether its document is there; resized tells that it is
// another one.
func (s *RESTSource) look(ctx context.Context, known *derived) (code int, resized bool, err error) {
	a, err := s.ask(ctx, question{method: http.MethodHead, path: s.rest.OpenAPIPath, accept: acceptLegacy})
	switch {
	case err != nil:
		return 0, false, err
	case a.code == http.StatusOK && known.sum == tooLarge:
		return a.code, a.length >= 0 && a.length <= rest.MaxDocument, nil
	case a.code == http.StatusOK:
		return a.code, a.length >= 0 && a.length != known.size, nil
	case a.code >= http.StatusInternalServerError && a.code != http.StatusNotImplemented:
		return 0, false, badStatus(a)
	}
	return a.code, false, nil
}

// refuses reports whether an answer to HEAD says that there is no document for
// the gateway. A server need not know HEAD: that it says so is enough.
func refuses(code int) bool {
	return code != http.StatusOK && code != http.StatusMethodNotAllowed && code != http.StatusNotImplemented
}

// since is the answer's Last-Modified, "" if there is none; young says that it
// does not tell the document from the next one.
func (a *answer) since() (text string, young bool) {
	modified, err := http.ParseTime(a.modified)
	if err != nil {
		return "", false
	}
	date, err := http.ParseTime(a.date)
	return a.modified, err != nil || date.Sub(modified) < settling
}
