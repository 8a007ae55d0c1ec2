package sources

import (
	"context"
	"errors"
	"net/http"
	"strings"
	"sync/atomic"
	"time"

	"portico/discovery/openapi"
)

// verdict is whether what a server's documents all depend on can be used.
type verdict struct {
	broken atomic.Pointer[openapi.Broken]
}

// took notes how reading ended, and reports whether that is another verdict.
// Being out of reach is none.
func (v *verdict) took(err error) (changed bool) {
	var broken *openapi.BrokenError
	var large *tooLargeError
	switch {
	case errors.As(err, &broken), errors.As(err, &large):
		now := &openapi.Broken{Message: openapi.Message(err)}
		old := v.broken.Swap(now)
		return old == nil || *old != *now
	case err == nil:
		return v.broken.Swap(nil) != nil
	}
	return false
}

func (v *verdict) list() []openapi.Broken {
	if b := v.broken.Load(); b != nil {
		return []openapi.Broken{*b}
	}
	return nil
}

// brokenIf says of an error, if it is one, that it is the document's.
func brokenIf(err error) error {
	if err == nil {
		return nil
	}
	return &openapi.BrokenError{Err: err}
}

// badOpenAPI is the error for an answer that holds no document.
func badOpenAPI(a *answer) error { return openapi.BadStatus(a.url, a.code) }

// Broken returns what keeps the server's OpenAPI index from being used; nil if
// nothing is known to. Single documents are for who reads them to judge.
func (s *Source) Broken() []openapi.Broken { return s.openAPIVerdict.list() }

// Made reports whether the v3 documents are made here, of the server's v2
// document: the server itself would not know them.
func (s *Source) Made() bool {
	a := s.openAPI.Load()
	return a != nil && a.V2 != ""
}

// errOvertaken says that a document is not the one that the index names.
var errOvertaken = errors.New("the server's OpenAPI v2 document changed meanwhile")

// Document asks the server for one of its OpenAPI documents, by its path as the
// index has it, or makes it if the server would not know it (Made). Those that
// are larger than a few MiB are errors, and redirects are not followed.
func (s *Source) Document(ctx context.Context, path, etag string) (*openapi.Answer, error) {
	index := s.openAPI.Load()
	key, _, _ := strings.Cut(strings.TrimPrefix(path, "/openapi/v3/"), "?")
	if index == nil || index.V2 == "" || !strings.HasPrefix(path, "/openapi/v3/") {
		return openapi.Fetch(ctx, s.cfg.Transport, s.cfg.BaseURL, s.cfg.Identify, path, etag)
	}
	if index.URLs[key] == "" {
		return &openapi.Answer{Code: http.StatusNotFound}, nil
	}
	a, err := s.getWithin(ctx, maxV2, "/openapi/v2", acceptLegacy, "")
	switch {
	case err != nil:
		return nil, err
	case a.code != http.StatusOK:
		return nil, badOpenAPI(a)
	case a.mark() != index.V2:
		// What is known is to be read again.
		again := *index
		again.etag, again.read = "", time.Time{}
		s.openAPI.CompareAndSwap(index, &again)
		return nil, errOvertaken
	}
	data, err := s.fromV2(a.body, key)
	if err != nil {
		return nil, brokenIf(err)
	}
	return &openapi.Answer{Code: http.StatusOK, Body: data}, nil
}

// fromV2 makes one document at a time: that takes many times the size of the whole.
func (s *Source) fromV2(whole []byte, key string) ([]byte, error) {
	s.making.Lock()
	defer s.making.Unlock()
	return openapi.FromV2(whole, key)
}

// RestoreOpenAPI makes index what the server's said last, unless it was read
// since. It reports whether it did. The documents themselves still have to be
// fetched.
func (s *Source) RestoreOpenAPI(index *OpenAPIIndex) bool {
	old := s.openAPI.Load()
	return (old == nil || old.restored) && s.openAPI.CompareAndSwap(old, &openAPIAnswer{OpenAPIIndex: *index, restored: true})
}

// HeardOpenAPI returns the index that this source read of the server, for
// RestoreOpenAPI of another; nil if it has read none. While nothing new is read
// it is the same one. It must not be changed.
func (s *Source) HeardOpenAPI() *OpenAPIIndex {
	if a := s.openAPI.Load(); a != nil && !a.restored {
		return &a.OpenAPIIndex
	}
	return nil
}
