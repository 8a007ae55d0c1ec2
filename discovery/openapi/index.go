package openapi

import (
	"crypto/sha512"
	"encoding/json"
	"fmt"
	"net/http"
	"strconv"
	"sync"

	httpresponse "portico/resource/response"
)

// Index is the document at /openapi/v3: which documents there are, and the URL
// that names the present content of each by its hash. It is encoded at the
// first request. Immutable and safe for concurrent use.
type Index struct {
	encode func() (indexBody, error)
}

type indexBody struct {
	json []byte
	etag string // quoted
}

// NewIndex makes the index of documents, key to URL. urls must not be changed
// any more.
func NewIndex(urls map[string]string) *Index {
	return &Index{sync.OnceValues(func() (indexBody, error) {
		type entry struct {
			URL string `json:"serverRelativeURL"`
		}
		index := struct {
			Paths map[string]entry `json:"paths"`
		}{make(map[string]entry, len(urls))}
		for key, url := range urls {
			index.Paths[key] = entry{url}
		}
		body, err := json.Marshal(index)
		if err != nil {
			return indexBody{}, fmt.Errorf("encode OpenAPI index: %w", err)
		}
		return indexBody{body, strconv.Quote(fmt.Sprintf("%X", sha512.Sum512(body)))}, nil
	})}
}

// ETag identifies the index. It is quoted, as in the header.
func (x *Index) ETag() string {
	body, _ := x.encode() // strings always encode
	return body.etag
}

// ServeHTTP answers with the index, or 304 for a client that has it.
func (x *Index) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, err := x.encode()
	if err != nil {
		httpresponse.WriteStatus(w, r, err)
		return
	}
	h := w.Header()
	h.Set("ETag", body.etag)
	if HasTag(r, body.etag) {
		w.WriteHeader(http.StatusNotModified)
		return
	}
	httpresponse.WriteBody(w, r, http.StatusOK, mediaJSON, body.json)
}
