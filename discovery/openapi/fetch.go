package openapi

import (
	"context"
	"fmt"
	"io"
	"net/http"
)

// maxDocument bounds one document that is fetched, in bytes; decoded it takes about ten
// times that.
const maxDocument = 4 << 20

// Answer is what a server answered when it was asked for a document.
type Answer struct {
	Code int
	// ETag of the document, and Location of a redirect.
	ETag, Location string
	Body           []byte
}

// Fetch asks a server for a document over HTTP. Documents larger than 4 MiB are errors,
// and redirects are not followed.
func Fetch(ctx context.Context, via http.RoundTripper, base string, identify func(http.Header), path, etag string) (*Answer, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, base+path, nil)
	if err != nil {
		return nil, fmt.Errorf("make request: %w", err)
	}
	req.Header.Set("Accept", mediaJSON)
	req.Header.Set("User-Agent", "portico-gateway")
	req.Header.Set("Cache-Control", noStore) // for one use
	if etag != "" {
		req.Header.Set("If-None-Match", etag)
	}
	identify(req.Header)
	res, err := via.RoundTrip(req)
	if err != nil {
		return nil, err
	}
	defer res.Body.Close()
	body, err := io.ReadAll(io.LimitReader(res.Body, maxDocument+1))
	if err != nil {
		return nil, fmt.Errorf("read answer of %s: %w", req.URL.Path, err)
	}
	if len(body) > maxDocument {
		return nil, &BrokenError{fmt.Errorf("answer of %s is larger than %d bytes", req.URL, maxDocument)}
	}
	return &Answer{Code: res.StatusCode, ETag: res.Header.Get("ETag"), Location: res.Header.Get("Location"), Body: body}, nil
}
