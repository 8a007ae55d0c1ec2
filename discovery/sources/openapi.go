package sources

import (
	"context"
	"maps"
	"net/http"
	"net/url"
	"strings"
	"time"

	"portico/discovery"
	"portico/discovery/openapi"
)

// maxHash bounds the hash in the URL of one OpenAPI document, in bytes.
const maxHash = 1024

// openAPIInterval is how often the index of a server without ETags is read
// while its discovery does not change.
const openAPIInterval = time.Minute

// maxV2 bounds a server's OpenAPI v2 document, in bytes; decoded it takes about
// ten times that.
const maxV2 = 4 << 20

// OpenAPIIndex says which OpenAPI documents a server has, as it is kept for a
// gateway that starts while the server is away. Immutable.
type OpenAPIIndex struct {
	// URLs name the present document of each group/version; see Source.OpenAPI.
	URLs map[string]string `json:"urls"`
	// V2 identifies the v2 document that the documents are made of; "": the
	// server has them itself.
	V2 string `json:"v2,omitempty"`
}

// openAPIAnswer is a server's last good index of OpenAPI documents. Immutable.
type openAPIAnswer struct {
	OpenAPIIndex
	// etag is the answer's, and known what discovery said when it was read: an
	// unchanged index means something else once other group/versions are wanted
	// of it.
	// Where V2 is set it is that of the v2 document.
	etag  string
	known *[]discovery.GroupVersion
	read  time.Time
	// restored: another Source read it.
	restored bool
}

// RefreshOpenAPI asks the server whether its OpenAPI index has changed, reads
// it if so, and reports whether OpenAPI or Broken has a new value. A server without v3 is
// asked for its v2 document in its place. It is meant to be called after every
// Check: where the server knows ETags it costs next to nothing, and where it
// does not it asks once in a while only, or when discovery has changed. A failure
// keeps what is known. Like Check it is called from one goroutine at a time.
func (s *Source) RefreshOpenAPI(ctx context.Context) (changed bool, err error) {
	old, next := s.openAPI.Load(), &openAPIAnswer{known: s.known.Load(), read: time.Now()}
	unchanged := false
	if old != nil && old.known == next.known {
		soon := next.read.Sub(old.read) < openAPIInterval
		if soon && old.etag == "" {
			return false, nil
		}
		if soon && old.V2 != "" {
			next.read = old.read // of v3, which it may have got meanwhile
			unchanged, err = s.readV2(ctx, next, old)
		} else {
			unchanged, err = s.readV3(ctx, next, old)
		}
	} else {
		_, err = s.readV3(ctx, next, nil)
	}
	changed = s.openAPIVerdict.took(err)
	if err != nil || unchanged {
		return changed, err
	}
	s.openAPI.Store(next)
	return changed || old == nil || !maps.Equal(old.URLs, next.URLs), nil
}

// readV3 reads the index into next, unless it is the old one.
func (s *Source) readV3(ctx context.Context, next, old *openAPIAnswer) (unchanged bool, err error) {
	etag := ""
	if old != nil && old.V2 == "" {
		etag = old.etag
	}
	a, err := s.get(ctx, "/openapi/v3", acceptLegacy, etag)
	if err != nil {
		return false, err
	}
	next.etag = a.quotedETag()
	switch a.code {
	case http.StatusNotModified:
		return true, nil
	case http.StatusNotFound: // a server without OpenAPI v3
		return s.readV2(ctx, next, old)
	case http.StatusOK:
		next.URLs, err = readOpenAPI(a, next.known)
		return false, brokenIf(err)
	}
	return false, badOpenAPI(a)
}

// readV2 makes the index of a server that has OpenAPI v2 only.
func (s *Source) readV2(ctx context.Context, next, old *openAPIAnswer) (unchanged bool, err error) {
	etag := ""
	if old != nil && old.V2 != "" {
		etag = old.etag
	}
	a, err := s.getWithin(ctx, maxV2, "/openapi/v2", acceptLegacy, etag)
	if err != nil {
		return false, err
	}
	next.etag = a.quotedETag()
	switch a.code {
	case http.StatusNotModified:
		next.etag, next.V2, next.URLs = old.etag, old.V2, old.URLs
		return false, nil
	case http.StatusNotFound: // a server without any OpenAPI
		return false, nil
	case http.StatusOK:
	default:
		return false, badOpenAPI(a)
	}
	keys, err := openapi.KeysOfV2(a.body, next.keys())
	if err != nil {
		return false, brokenIf(err)
	}
	next.V2, next.URLs = a.mark(), map[string]string{}
	for _, key := range keys {
		next.URLs[key] = "/openapi/v3/" + key + "?hash=" + openapi.ConvertedHash(next.V2, key)
	}
	return false, nil
}

// keys are the keys of the documents of everything that is known.
func (a *openAPIAnswer) keys() (out []string) {
	if a.known == nil {
		return nil
	}
	for i := range *a.known {
		out = append(out, openapi.Key((*a.known)[i].Group, (*a.known)[i].Version))
	}
	return out
}

// quotedETag is the ETag to ask with the next time; "" if there is none.
func (a *answer) quotedETag() string {
	if isETag(a.etag) { // others are not asked with
		return a.etag
	}
	return ""
}

// readOpenAPI reads an index (docs/wire.md 1.7), cut down to the group/versions
// that discovery knows of the server; nil is none.
func readOpenAPI(a *answer, known *[]discovery.GroupVersion) (map[string]string, error) {
	var index struct {
		Paths map[string]struct {
			ServerRelativeURL string `json:"serverRelativeURL"`
		} `json:"paths"`
	}
	if err := a.decode(&index); err != nil {
		return nil, err
	}
	out := map[string]string{}
	if known == nil {
		return out, nil
	}
	for i := range *known {
		key := openapi.Key((*known)[i].Group, (*known)[i].Version)
		if link, ok := documentURL(key, index.Paths[key].ServerRelativeURL); ok {
			out[key] = link
		}
	}
	return out, nil
}

// documentURL checks the URL that a server gives for a document. It will lead
// clients back to the gateway, so nothing but the document's own path and hash
// is passed on.
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

// OpenAPI returns the last good index: the URL that names the present document
// of a group/version by its hash, by the document's key ("apis/G/V"). It must
// not be changed.
func (s *Source) OpenAPI() map[string]string {
	if a := s.openAPI.Load(); a != nil {
		return a.URLs
	}
	return nil
}
