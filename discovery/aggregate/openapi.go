package aggregate

import (
	"context"
	"net/http"
	"strings"
)

// openAPIIndex is the document at /openapi/v3 (contract 1.7).
type openAPIIndex struct {
	Paths map[string]struct {
		ServerRelativeURL string `json:"serverRelativeURL"`
	} `json:"paths"`
}

// readOpenAPI fetches the server's index of OpenAPI v3 documents, cut down to
// the group/versions that are wanted of it: key (as "apis/G/V") to the URL that
// names the present document by its hash. A server without one has none.
func (s *Source) readOpenAPI(ctx context.Context) (map[string]string, error) {
	a, err := s.get(ctx, "/openapi/v3", acceptLegacy, "")
	if err != nil {
		return nil, err
	}
	out := map[string]string{}
	if a.code != http.StatusOK {
		return out, nil
	}
	var index openAPIIndex
	if err := a.decode(&index); err != nil {
		return nil, err
	}
	known, _ := s.GroupVersions()
	for i := range known {
		gv := &known[i]
		key := "apis/" + gv.Name()
		if gv.Group == "" {
			key = "api/" + gv.Version
		}
		entry, ok := index.Paths[key]
		// The URL leads clients back to the gateway: nothing else is passed on.
		if ok && strings.HasPrefix(entry.ServerRelativeURL, "/openapi/v3/"+key) {
			out[key] = entry.ServerRelativeURL
		}
	}
	return out, nil
}

// RefreshOpenAPI reads the server's OpenAPI index anew and reports whether it
// changed. A failure keeps what is known.
func (s *Source) RefreshOpenAPI(ctx context.Context) (changed bool, err error) {
	next, err := s.readOpenAPI(ctx)
	if err != nil {
		return false, err
	}
	if old := s.openAPI.Load(); old != nil && equal(*old, next) {
		return false, nil
	}
	s.openAPI.Store(&next)
	return true, nil
}

// OpenAPI returns the last good index, by key. It must not be changed.
func (s *Source) OpenAPI() map[string]string {
	if p := s.openAPI.Load(); p != nil {
		return *p
	}
	return nil
}

func equal(a, b map[string]string) bool {
	if len(a) != len(b) {
		return false
	}
	for k, v := range a {
		if b[k] != v {
			return false
		}
	}
	return true
}
