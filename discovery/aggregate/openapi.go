package aggregate

import (
	"context"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"strings"
	"time"

	"portico/discovery"
)

// maxHash bounds the hash in the URL of one OpenAPI document, in bytes.
const maxHash = 1024

// openAPIInterval is how often the index of a server without ETags is read
// while its discovery does not change.
const openAPIInterval = time.Minute

// openAPIAnswer is a server's last good index of OpenAPI documents. Immutable.
type openAPIAnswer struct {
	urls map[string]string // see OpenAPI
	// etag is the answer's, and known what discovery said when it was read: an
	// unchanged index means something else once other group/versions are wanted
	// of it.
	etag  string
	known *[]discovery.GroupVersion
	read  time.Time
}

// RefreshOpenAPI asks the server whether its OpenAPI index has changed, reads
// it if so, and reports whether OpenAPI has a new value. It is meant to be
// called after every Check: where the server knows ETags it costs next to
// nothing, and where it does not it asks once in a while only, or when
// discovery has changed. A failure keeps what is known. Like Check it is called
// from one goroutine at a time.
func (s *Source) RefreshOpenAPI(ctx context.Context) (changed bool, err error) {
	old, known, now := s.openAPI.Load(), s.known.Load(), time.Now()
	etag := ""
	if old != nil && old.known == known {
		if etag = old.etag; etag == "" && now.Sub(old.read) < openAPIInterval {
			return false, nil
		}
	}
	a, err := s.get(ctx, "/openapi/v3", acceptLegacy, etag)
	if err != nil {
		return false, err
	}
	next := &openAPIAnswer{known: known, read: now}
	if strings.HasPrefix(a.etag, `"`) { // others are not asked with
		next.etag = a.etag
	}
	switch a.code {
	case http.StatusNotModified:
		return false, nil
	case http.StatusNotFound: // a server without OpenAPI v3
	case http.StatusOK:
		if next.urls, err = readOpenAPI(a, known); err != nil {
			return false, err
		}
	default:
		return false, fmt.Errorf("bad status from %s: %d", a.url, a.code)
	}
	s.openAPI.Store(next)
	return old == nil || !maps.Equal(old.urls, next.urls), nil
}

// readOpenAPI reads an index (contract 1.7), cut down to the group/versions
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
		gv := &(*known)[i]
		key := "apis/" + gv.Name()
		if gv.Group == "" {
			key = "api/" + gv.Version
		}
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
		return a.urls
	}
	return nil
}
