package sources

import (
	"bytes"
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
)

// maxDocument bounds one OpenAPI answer, in bytes.
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
	url        string // for people
	code       int
	etag       string
	modified   string // Last-Modified
	date       string
	length     int64 // Content-Length; -1: the server does not say
	retryAfter time.Duration
	aggregated bool
	body       []byte
	// cut: the answer goes on, beyond what was to be read of it.
	cut bool
}

// mark identifies the answer's content.
func (a *answer) mark() string {
	if a.etag != "" {
		return a.etag
	}
	return a.sum()
}

// sum identifies the answer's bytes.
func (a *answer) sum() string {
	sum := sha256.Sum256(a.body)
	return "sha256:" + hex.EncodeToString(sum[:])
}

// maxElements bounds what is taken apart of an index of OpenAPI documents: three bytes,
// {}, take hundreds in memory.
const maxElements = 500_000

// elements says, roughly, how many elements a JSON document has.
func elements(document []byte) int { return bytes.Count(document, []byte(",")) + 1 }

func (a *answer) decode(into any) error {
	if elements(a.body) > maxElements {
		return fmt.Errorf("answer of %s has more than %d elements", a.url, maxElements)
	}
	if err := json.Unmarshal(a.body, into); err != nil {
		return fmt.Errorf("decode answer of %s: %w", a.url, err)
	}
	return nil
}

// get asks for one document; redirects are not followed.
func (s *Source) get(ctx context.Context, path, accept, etag string) (*answer, error) {
	return s.getWithin(ctx, maxDocument, path, accept, etag)
}

// getList asks for one document that is taken apart item by item. Of one that is too
// large, the beginning is returned.
func (s *Source) getList(ctx context.Context, limit int64, path, accept string) (*answer, error) {
	return s.ask(ctx, question{method: http.MethodGet, path: path, accept: accept, limit: limit, cut: true})
}

// getWithin is get of a document that has so many bytes at most.
func (s *Source) getWithin(ctx context.Context, limit int64, path, accept, etag string) (*answer, error) {
	return s.ask(ctx, question{method: http.MethodGet, path: path, accept: accept, etag: etag, limit: limit})
}

// question is a request for one document.
type question struct {
	method, path, accept string
	// etag and since, if not "", are of the document that is known.
	etag, since string
	limit       int64 // of the answer's body, in bytes
	// cut: of a longer body, so much is wanted.
	cut bool
	// check: the context's deadline is for the header, and bodyTimeout for the body.
	check bool
}

// bodyTimeout bounds how long the body of the answer to a check may take. A server that has
// sent the header in time is there; a document of megabytes takes longer than a check may
// where other processes use the processors.
const bodyTimeout = 10 * time.Second

func (s *Source) ask(ctx context.Context, q question) (*answer, error) {
	url := s.cfg.Shown + q.path
	headerArrived := func() {}
	if q.check {
		var cancel context.CancelFunc
		ctx, headerArrived, cancel = s.headerDeadline(ctx)
		defer cancel()
	}
	req, err := http.NewRequestWithContext(ctx, q.method, s.cfg.BaseURL+q.path, nil)
	if err != nil {
		return nil, fmt.Errorf("make request: %w", err)
	}
	req.Header.Set("Accept", q.accept)
	req.Header.Set("User-Agent", "portico-gateway")
	if isETag(q.etag) {
		req.Header.Set("If-None-Match", q.etag)
	}
	if q.since != "" {
		req.Header.Set("If-Modified-Since", q.since)
	}
	s.cfg.Identify(req.Header)
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
	cut := int64(len(body)) > q.limit
	if cut && !q.cut {
		return nil, &tooLargeError{url, q.limit}
	}
	_, params, _ := mime.ParseMediaType(res.Header.Get("Content-Type"))
	return &answer{
		url: url, code: res.StatusCode, etag: res.Header.Get("ETag"), body: body, cut: cut,
		modified: res.Header.Get("Last-Modified"), date: res.Header.Get("Date"), length: res.ContentLength,
		retryAfter: retryAfter(res.Header),
		aggregated: params["as"] == "APIGroupDiscoveryList" && params["v"] == "v2",
	}, nil
}

// headerDeadline returns a context that ends with parent until headerArrived is called, and
// after that with the source, or bodyTimeout later.
func (s *Source) headerDeadline(parent context.Context) (ctx context.Context, headerArrived func(), cancel context.CancelFunc) {
	ctx, end := context.WithCancelCause(context.WithoutCancel(parent))
	stopParent := context.AfterFunc(parent, func() { end(context.Cause(parent)) })
	stopSource := context.AfterFunc(s.lifetime, func() { end(context.Canceled) })
	var timer *time.Timer
	headerArrived = func() {
		if stopParent() {
			timer = time.AfterFunc(bodyTimeout, func() { end(context.DeadlineExceeded) })
		}
	}
	return ctx, headerArrived, func() {
		stopParent()
		stopSource()
		if timer != nil {
			timer.Stop()
		}
		end(nil)
	}
}

// isETag reports whether a text is an entity tag to ask with: also a weak one,
// which says that the document means the same.
func isETag(text string) bool {
	return strings.HasPrefix(text, `"`) || strings.HasPrefix(text, `W/"`)
}

// getDocument asks for a legacy document, of which so many bytes are read at most.
func (s *Source) getDocument(ctx context.Context, limit int64, path string) (*answer, error) {
	a, err := s.getList(ctx, limit, path, acceptLegacy)
	switch {
	case err != nil:
		return nil, err
	case a.code == http.StatusNotFound:
		return nil, fmt.Errorf("%s: %w", a.url, errAbsent)
	case a.code != http.StatusOK:
		return nil, badStatus(a)
	}
	return a, nil
}

// badStatus is the error for an answer that is not what was asked for.
func badStatus(a *answer) error { return &statusError{a.url, a.code, a.retryAfter} }

// statusError is what badStatus returns.
type statusError struct {
	url        string // for people
	code       int
	retryAfter time.Duration // before that it is not to be asked again; 0: not said
}

func (e *statusError) Error() string { return BadStatus(e.url, e.code).Error() }

// BadStatus is the error for a check of url that was answered with code. 508 means
// that the check has come back to the gateway.
func BadStatus(url string, code int) error {
	if code == http.StatusLoopDetected {
		return fmt.Errorf("bad status from %s: 508 Loop Detected: the address leads back to this gateway", url)
	}
	return fmt.Errorf("bad status from %s: %d", url, code)
}

// retryAfter returns the Retry-After of an answer; 0 if there is none, or one that is
// a date.
func retryAfter(h http.Header) time.Duration {
	seconds, _ := strconv.ParseUint(h.Get("Retry-After"), 10, 16) // the largest for any that is larger
	return time.Duration(seconds) * time.Second
}
