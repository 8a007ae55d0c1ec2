package sources

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"strings"
	"sync/atomic"
	"time"

	"portico/discovery"
	"portico/discovery/openapi"
)

const (
	// maxHash bounds the hash in the URL of an OpenAPI document, in bytes.
	maxHash = 1024
	// openAPIInterval is how often the index of a server without ETags is read while its
	// discovery does not change.
	openAPIInterval = time.Minute
	// maxOpenAPIIndex bounds an OpenAPI v3 index, and maxOpenAPIDocument a document of v3 or
	// v2, in bytes; decoded, a document takes about ten times that.
	maxOpenAPIIndex    = 32 << 20
	maxOpenAPIDocument = 4 << 20
)

// OpenAPIIndex says which OpenAPI documents a server has. It is stored for a gateway that
// starts while the server is unavailable. Immutable.
type OpenAPIIndex struct {
	// URLs name the present document of each group/version; see Source.OpenAPI.
	URLs map[string]string `json:"urls"`
	// V2 identifies the v2 document from which the documents are converted. Empty: the server
	// has v3 documents.
	V2 string `json:"v2,omitempty"`
}

// openAPIAnswer is the last good index of a server. Immutable.
type openAPIAnswer struct {
	OpenAPIIndex
	etag string // of the index or, with V2, of the v2 document
	// known are the group/versions when it was read: it is read again when they change.
	known    []discovery.GroupVersion
	read     time.Time
	restored bool // by RestoreOpenAPI
}

// RefreshOpenAPI requests the OpenAPI index of the server and reports whether OpenAPI or
// Broken changed. A server without OpenAPI v3 is asked for its v2 document. It is called after
// each Check, from one goroutine at a time: a server with ETags answers with 304, and one
// without is asked once per openAPIInterval or when its discovery changed. After an error the
// last index remains.
func (s *Source) RefreshOpenAPI(ctx context.Context) (changed bool, err error) {
	gvs, _ := s.GroupVersions()
	old, next := s.openAPI.Load(), &openAPIAnswer{known: gvs, read: time.Now()}
	unchanged := false
	if old != nil && sameSlice(old.known, next.known) {
		soon := next.read.Sub(old.read) < openAPIInterval
		if soon && old.etag == "" {
			return false, nil
		}
		if soon && old.V2 != "" {
			next.read = old.read // the server may have v3 by now
			unchanged, err = s.readV2(ctx, next, old)
		} else {
			unchanged, err = s.readV3(ctx, next, old)
		}
	} else {
		_, err = s.readV3(ctx, next, nil)
	}
	changed = s.openAPIErr.set(err)
	if err != nil || unchanged {
		return changed, err
	}
	s.openAPI.Store(next)
	return changed || old == nil || !maps.Equal(old.URLs, next.URLs), nil
}

// readV3 reads the index into next unless it is the same as old.
func (s *Source) readV3(ctx context.Context, next, old *openAPIAnswer) (unchanged bool, err error) {
	etag := ""
	if old != nil && old.V2 == "" {
		etag = old.etag
	}
	a, err := s.do(ctx, request{path: "/openapi/v3", accept: acceptLegacy, etag: etag, limit: maxOpenAPIIndex})
	if err != nil {
		return false, err
	}
	next.etag = a.validETag()
	switch a.code {
	case http.StatusNotModified:
		return true, nil
	case http.StatusNotFound:
		return s.readV2(ctx, next, old)
	case http.StatusOK:
		next.URLs, err = decodeOpenAPIIndex(a, next.known)
		return false, brokenIf(err)
	}
	return false, openapi.BadStatus(a.url, a.code)
}

// readV2 makes the index of a server with OpenAPI v2 only.
func (s *Source) readV2(ctx context.Context, next, old *openAPIAnswer) (unchanged bool, err error) {
	etag := ""
	if old != nil && old.V2 != "" {
		etag = old.etag
	}
	a, err := s.do(ctx, request{path: "/openapi/v2", accept: acceptLegacy, etag: etag, limit: maxOpenAPIDocument})
	if err != nil {
		return false, err
	}
	next.etag = a.validETag()
	switch a.code {
	case http.StatusNotModified:
		next.etag, next.V2, next.URLs = old.etag, old.V2, old.URLs
		return false, nil
	case http.StatusNotFound: // a server without OpenAPI
		return false, nil
	case http.StatusOK:
	default:
		return false, openapi.BadStatus(a.url, a.code)
	}
	var wanted []string
	for i := range next.known {
		wanted = append(wanted, openapi.Key(next.known[i].Group, next.known[i].Version))
	}
	keys, err := openapi.KeysOfV2(a.body, wanted)
	if err != nil {
		return false, brokenIf(err)
	}
	next.V2, next.URLs = a.tag(), map[string]string{}
	for _, key := range keys {
		next.URLs[key] = "/openapi/v3/" + key + "?hash=" + openapi.ConvertedHash(next.V2, key)
	}
	return false, nil
}

// validETag returns the ETag for the next request; empty if there is none.
func (a *answer) validETag() string {
	if isETag(a.etag) {
		return a.etag
	}
	return ""
}

// decodeOpenAPIIndex decodes an index (docs/wire.md 1.7), limited to the known
// group/versions.
func decodeOpenAPIIndex(a *answer, known []discovery.GroupVersion) (map[string]string, error) {
	var index struct {
		Paths map[string]struct {
			ServerRelativeURL string `json:"serverRelativeURL"`
		} `json:"paths"`
	}
	if err := a.decode(&index); err != nil {
		return nil, err
	}
	out := map[string]string{}
	for i := range known {
		key := openapi.Key(known[i].Group, known[i].Version)
		if link, ok := documentURL(key, index.Paths[key].ServerRelativeURL); ok {
			out[key] = link
		}
	}
	return out, nil
}

// documentURL validates the URL of a document. Clients send it to the gateway with their
// credentials, so only the path of the document and its hash are kept.
func documentURL(key, text string) (string, bool) {
	path := "/openapi/v3/" + key
	rest, ok := strings.CutPrefix(text, path)
	if !ok || rest != "" && rest[0] != '?' {
		return "", false
	}
	values, err := url.ParseQuery(strings.TrimPrefix(rest, "?"))
	hash := values.Get("hash")
	if err != nil || len(hash) > maxHash {
		return "", false
	}
	if hash == "" {
		return path, true
	}
	return path + "?hash=" + url.QueryEscape(hash), true
}

// OpenAPI returns the last good index: the URL of the present document of a group/version,
// with its hash, by the key of the document ("apis/G/V"). The caller must not modify it.
func (s *Source) OpenAPI() map[string]string {
	if a := s.openAPI.Load(); a != nil {
		return a.URLs
	}
	return nil
}

// RestoreOpenAPI sets the index unless it was read from the server. It reports whether it did.
// Documents are not restored.
func (s *Source) RestoreOpenAPI(index *OpenAPIIndex) bool {
	old := s.openAPI.Load()
	return (old == nil || old.restored) && s.openAPI.CompareAndSwap(old, &openAPIAnswer{OpenAPIIndex: *index, restored: true})
}

// FetchedOpenAPI returns the index as it was read from the server, for RestoreOpenAPI; nil
// before the first one. It is the same pointer until the index is read again. The caller must
// not modify it.
func (s *Source) FetchedOpenAPI() *OpenAPIIndex {
	if a := s.openAPI.Load(); a != nil && !a.restored {
		return &a.OpenAPIIndex
	}
	return nil
}

// ConvertsOpenAPI reports whether the v3 documents are converted from the v2 document of the
// server, which does not have them itself.
func (s *Source) ConvertsOpenAPI() bool {
	a := s.openAPI.Load()
	return a != nil && a.V2 != ""
}

// Broken returns why the OpenAPI index of the server cannot be used; nil: it can. Single
// documents are not considered.
func (s *Source) Broken() []openapi.Broken {
	if b := s.openAPIErr.broken.Load(); b != nil {
		return []openapi.Broken{*b}
	}
	return nil
}

// verdict is whether the OpenAPI of a server can be used.
type verdict struct {
	broken atomic.Pointer[openapi.Broken]
}

// set notes the result of reading and reports whether the verdict changed. An unavailable
// server does not change it.
func (v *verdict) set(err error) (changed bool) {
	var broken *openapi.BrokenError
	switch {
	case errors.As(err, &broken):
		next := &openapi.Broken{Message: openapi.Message(err)}
		old := v.broken.Swap(next)
		return old == nil || *old != *next
	case err == nil:
		return v.broken.Swap(nil) != nil
	}
	return false
}

// brokenIf marks an error, if it is one, as that of an invalid document.
func brokenIf(err error) error {
	if err == nil {
		return nil
	}
	return &openapi.BrokenError{Err: err}
}

// errChanged says that a document is not the one that the index names.
var errChanged = errors.New("the OpenAPI v2 document of the server changed")

// Document requests one OpenAPI document by its path in the index, or converts it from the v2
// document. Redirects are not followed. An openapi.BrokenError says that the server answered
// and that there is no such document or that it cannot be used.
func (s *Source) Document(ctx context.Context, path string) ([]byte, error) {
	index := s.openAPI.Load()
	q := request{path: path, accept: acceptLegacy, limit: maxOpenAPIDocument, noStore: true}
	converted := index != nil && index.V2 != ""
	key, _, _ := strings.Cut(strings.TrimPrefix(path, "/openapi/v3/"), "?")
	if converted && index.URLs[key] == "" {
		return nil, openapi.BadStatus(path, http.StatusNotFound)
	}
	if converted {
		q.path = "/openapi/v2"
	}
	a, err := s.do(ctx, q)
	switch {
	case err != nil:
		return nil, err
	case a.code != http.StatusOK:
		return nil, openapi.BadStatus(a.url, a.code)
	case !converted:
		return a.body, nil
	case a.tag() != index.V2:
		outdated := *index
		outdated.etag, outdated.read = "", time.Time{}
		s.openAPI.CompareAndSwap(index, &outdated)
		return nil, errChanged
	}
	// One at a time: the conversion takes many times the memory of the document.
	s.converting.Lock()
	defer s.converting.Unlock()
	data, err := openapi.FromV2(a.body, key)
	if err != nil {
		return nil, brokenIf(fmt.Errorf("convert OpenAPI v2: %w", err))
	}
	return data, nil
}
