package sources

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
	"strconv"
	"strings"
	"time"

	"portico/discovery/openapi"
)

const (
	acceptLegacy     = "application/json"
	acceptAggregated = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList,application/json"

	// maxIndexElements bounds the elements of an index of OpenAPI documents.
	maxIndexElements = 500_000
	// probeBodyTimeout bounds reading the body of the answer to a check. A server that sent
	// the header in time is available; a document of megabytes takes longer on a busy machine.
	probeBodyTimeout = 10 * time.Second
)

// errAbsent says that the server answered 404.
var errAbsent = errors.New("no such document")

// tooLargeError says that an answer is larger than its limit.
type tooLargeError struct {
	url   string
	limit int64
}

func (e *tooLargeError) Error() string {
	return fmt.Sprintf("answer of %s is larger than %d bytes", e.url, e.limit)
}

// request is a request for one document.
type request struct {
	method       string // default GET
	path, accept string
	// etag and modifiedSince are those of the known document, or empty.
	etag, modifiedSince string
	limit               int64 // of the body, in bytes
	truncate            bool  // a longer body is truncated; otherwise it is a tooLargeError
	noStore             bool  // the server need not cache the document: it is requested once
	// probe: the deadline of the context is for the header, and probeBodyTimeout for the body.
	probe bool
}

// answer is a response.
type answer struct {
	url        string // for messages
	code       int
	etag       string
	modified   string // Last-Modified
	length     int64  // Content-Length; -1: unknown
	retryAfter time.Duration
	aggregated bool
	body       []byte
	truncated  bool
}

// tag identifies the content of the answer.
func (a *answer) tag() string {
	if a.etag != "" {
		return a.etag
	}
	return a.sum()
}

func (a *answer) sum() string {
	sum := sha256.Sum256(a.body)
	return "sha256:" + hex.EncodeToString(sum[:])
}

func (a *answer) decode(into any) error {
	if countElements(a.body) > maxIndexElements {
		return fmt.Errorf("answer of %s has more than %d elements", a.url, maxIndexElements)
	}
	if err := json.Unmarshal(a.body, into); err != nil {
		return fmt.Errorf("decode answer of %s: %w", a.url, err)
	}
	return nil
}

// newRequest returns a request with the identity of the gateway.
func (s *Source) newRequest(ctx context.Context, method, uri, accept string) (*http.Request, error) {
	req, err := http.NewRequestWithContext(ctx, method, s.cfg.BaseURL+uri, nil)
	if err != nil {
		return nil, fmt.Errorf("make request: %w", err)
	}
	req.Header.Set("Accept", accept)
	req.Header.Set("User-Agent", "portico-gateway")
	s.cfg.Identify(req.Header)
	return req, nil
}

// do sends a request and reads the answer. Redirects are not followed.
func (s *Source) do(ctx context.Context, q request) (*answer, error) {
	url := s.cfg.Shown + q.path
	headerArrived := func() {}
	if q.probe {
		parent := ctx
		var end context.CancelCauseFunc
		ctx, end = context.WithCancelCause(s.lifetime)
		defer end(nil)
		stop := context.AfterFunc(parent, func() { end(context.Cause(parent)) })
		defer stop()
		headerArrived = func() {
			if stop() {
				time.AfterFunc(probeBodyTimeout, func() { end(context.DeadlineExceeded) })
			}
		}
	}
	req, err := s.newRequest(ctx, q.method, q.path, q.accept)
	if err != nil {
		return nil, err
	}
	if isETag(q.etag) {
		req.Header.Set("If-None-Match", q.etag)
	}
	if q.modifiedSince != "" {
		req.Header.Set("If-Modified-Since", q.modifiedSince)
	}
	if q.noStore {
		req.Header.Set("Cache-Control", openapi.NoStore)
	}
	res, err := s.cfg.Transport.RoundTrip(req)
	if err != nil {
		return nil, err
	}
	defer res.Body.Close()
	headerArrived()
	body, err := io.ReadAll(io.LimitReader(res.Body, q.limit+1))
	if err != nil {
		return nil, fmt.Errorf("read answer of %s: %w", url, err)
	}
	truncated := int64(len(body)) > q.limit
	if truncated && !q.truncate {
		return nil, &openapi.BrokenError{Err: &tooLargeError{url, q.limit}}
	}
	_, params, _ := mime.ParseMediaType(res.Header.Get("Content-Type"))
	return &answer{
		url: url, code: res.StatusCode, etag: res.Header.Get("ETag"), body: body, truncated: truncated,
		modified: res.Header.Get("Last-Modified"), length: res.ContentLength, retryAfter: retryAfter(res.Header),
		aggregated: params["as"] == "APIGroupDiscoveryList" && params["v"] == "v2",
	}, nil
}

// isETag reports whether a text is an entity tag, strong or weak.
func isETag(text string) bool {
	return strings.HasPrefix(text, `"`) || strings.HasPrefix(text, `W/"`)
}

func badStatus(a *answer) error { return &statusError{a.url, a.code, a.retryAfter} }

// statusError says that the server answered with an unexpected status.
type statusError struct {
	url        string // for messages
	code       int
	retryAfter time.Duration // 0: not given
}

func (e *statusError) Error() string { return BadStatus(e.url, e.code).Error() }

// BadStatus returns the error for a check of url that was answered with code. 508 means that
// the check came back to the gateway.
func BadStatus(url string, code int) error {
	if code == http.StatusLoopDetected {
		return fmt.Errorf("bad status from %s: 508 Loop Detected: the address leads back to this gateway", url)
	}
	return fmt.Errorf("bad status from %s: %d", url, code)
}

// retryAfter returns Retry-After in seconds; 0 if there is none or it is a date.
func retryAfter(h http.Header) time.Duration {
	seconds, _ := strconv.ParseUint(h.Get("Retry-After"), 10, 16) // out of range: the maximum
	return time.Duration(seconds) * time.Second
}
