package aggregate

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
)

// maxDocument bounds one discovery answer. 2,000 custom resource definitions
// make about 2 MiB.
const maxDocument = 32 << 20

const (
	acceptLegacy     = "application/json"
	acceptAggregated = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList,application/json"
)

// errAbsent says that the server has no such document.
var errAbsent = errors.New("no such document")

// tooLargeError says that an answer is larger than its bound.
type tooLargeError struct {
	url   string
	limit int64
}

func (e *tooLargeError) Error() string {
	return fmt.Sprintf("answer of %s is larger than %d bytes", e.url, e.limit)
}

// answer is what a server said.
type answer struct {
	url        string
	code       int
	etag       string
	aggregated bool
	body       []byte
}

// mark identifies the answer's content.
func (a *answer) mark() string {
	if a.etag != "" {
		return a.etag
	}
	sum := sha256.Sum256(a.body)
	return "sha256:" + hex.EncodeToString(sum[:])
}

func (a *answer) decode(into any) error {
	if err := json.Unmarshal(a.body, into); err != nil {
		return fmt.Errorf("decode answer of %s: %w", a.url, err)
	}
	return nil
}

// get asks for one document; redirects are not followed.
func (s *Source) get(ctx context.Context, path, accept, etag string) (*answer, error) {
	return s.getWithin(ctx, maxDocument, path, accept, etag)
}

// getWithin is get of a document that has so many bytes at most.
func (s *Source) getWithin(ctx context.Context, limit int64, path, accept, etag string) (*answer, error) {
	url := s.cfg.BaseURL + path
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return nil, fmt.Errorf("make request: %w", err)
	}
	req.Header.Set("Accept", accept)
	req.Header.Set("User-Agent", "portico-gateway")
	if etag != "" && etag[0] == '"' {
		req.Header.Set("If-None-Match", etag)
	}
	s.cfg.Identify(req.Header)
	res, err := s.cfg.Transport.RoundTrip(req)
	if err != nil {
		return nil, err
	}
	defer res.Body.Close()
	body, err := io.ReadAll(io.LimitReader(res.Body, limit+1))
	if err != nil {
		return nil, fmt.Errorf("read answer of %s: %w", url, err)
	}
	if int64(len(body)) > limit {
		return nil, &tooLargeError{url, limit}
	}
	_, params, _ := mime.ParseMediaType(res.Header.Get("Content-Type"))
	return &answer{
		url: url, code: res.StatusCode, etag: res.Header.Get("ETag"), body: body,
		aggregated: params["as"] == "APIGroupDiscoveryList" && params["v"] == "v2",
	}, nil
}

// getDocument fetches and decodes a legacy document.
func (s *Source) getDocument(ctx context.Context, path string, into any) error {
	a, err := s.get(ctx, path, acceptLegacy, "")
	switch {
	case err != nil:
		return err
	case a.code == http.StatusNotFound:
		return fmt.Errorf("%s: %w", a.url, errAbsent)
	case a.code != http.StatusOK:
		return fmt.Errorf("bad status from %s: %d", a.url, a.code)
	}
	return a.decode(into)
}
