package swagger

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"slices"
	"strings"
	"time"

	"portico/discovery/openapi"
)

const (
	// maxDocument bounds one document that is fetched, in bytes; decoded it
	// takes about ten times that, and one is decoded at a time.
	maxDocument = 4 << 20
	// fetchTimeout bounds fetching one document.
	fetchTimeout = 10 * time.Second
	// failurePause and failurePauseMax are the pauses before a document that
	// could not be had is fetched again: the first, and the longest. Until then
	// it costs the others no time.
	failurePause    = time.Minute
	failurePauseMax = time.Hour
)

var (
	// errNone says that a server has no such document.
	errNone = errors.New("no such document")
	// errAway says that it did not answer.
	errAway = errors.New("no answer in time")
)

// largeError says that a document is larger than maxDocument.
type largeError struct{ url string }

func (e *largeError) Error() string {
	return fmt.Sprintf("answer of %s is larger than %d bytes", e.url, maxDocument)
}

// Server is one server whose kinds are in the document.
type Server struct {
	// ID tells servers apart. Another server gets another ID.
	ID string
	// State may be any text; when it changes (because the server works again,
	// say), what failed is tried again at once.
	State string
	// Documents are the group/versions that are wanted of it.
	Documents []Document
	// Fetch asks for a document. A server that has no /openapi/v2 answers 404,
	// and is asked for its v3 documents; so is one whose v2 document is too large.
	Fetch func(ctx context.Context, path, etag string) (*Answer, error)
}

// Document is one group/version of a server.
type Document struct {
	APIService string // for logs and metrics
	Key        string // "apis/G/V" or "api/v1"
	// URL is the path of its v3 document with the hash of its present content;
	// "" if the server has none.
	URL string
}

// prefix is what all its paths begin with.
func (d *Document) prefix() string { return "/" + d.Key + "/" }

// Answer is what a server said.
type Answer struct {
	Code int
	// ETag of the document, and Location of a redirect.
	ETag, Location string
	Body           []byte
}

// Fetch asks a server over HTTP. Documents larger than 4 MiB are errors, and
// redirects are not followed.
func Fetch(ctx context.Context, via http.RoundTripper, base string, identify func(http.Header), path, etag string) (*Answer, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, base+path, nil)
	if err != nil {
		return nil, fmt.Errorf("make request: %w", err)
	}
	req.Header.Set("Accept", mediaJSON)
	req.Header.Set("User-Agent", "portico-gateway")
	req.Header.Set("Cache-Control", "no-store") // for one use
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
		return nil, &openapi.BrokenError{Err: &largeError{req.URL.String()}}
	}
	return &Answer{Code: res.StatusCode, ETag: res.Header.Get("ETag"), Location: res.Header.Get("Location"), Body: body}, nil
}

// loaded is what is known of a server, last good parts kept.
type loaded struct {
	// parts are by key; the server's own v2 document, which is of all its
	// group/versions, is under "".
	parts    map[string]*part
	failures map[string]*failure
	// large, if not nil: the server's own v2 document is, and its v3 documents take
	// its place. It is a failure as far as trying again goes.
	large *failure
}

// failure is why a part is missing, or not the present one.
type failure struct {
	names []string // APIServices
	state string   // of what was tried
	err   error
	pause time.Duration
	next  time.Time // not before
}

// loader brings what is known of one server up to date.
type loader struct {
	srv      *Server
	old, now *loaded
	at       time.Time
	// decode runs one conversion at a time, of all servers.
	decode func(func() (*part, error)) (*part, error)
}

// load returns what is to be known of the server from now on.
func (l *loader) load(ctx context.Context) *loaded {
	l.now = &loaded{parts: map[string]*part{}, failures: map[string]*failure{}}
	names, prefixes := l.wanted()
	state := l.srv.State + strings.Join(prefixes, " ")
	if old := l.old.large; old != nil && old.state == state && l.at.Before(old.next) {
		l.now.large = old
	} else if err := l.try("", state, names, func(old *part) (*part, error) {
		return l.v2(ctx, old, state, names, prefixes)
	}); !errors.Is(err, errNone) {
		if l.now.parts[""] == nil { // what its v3 documents said stands
			maps.Copy(l.now.parts, l.old.parts)
		}
		return l.now
	}
	l.loadV3(ctx)
	return l.now
}

// loadV3 goes by the server's v3 documents. Once it fails to answer it is not asked
// for more of them: those who wait for other servers wait for it no longer. What
// failed before comes last, so that everything has its turn.
func (l *loader) loadV3(ctx context.Context) {
	documents := slices.Clone(l.srv.Documents)
	slices.SortStableFunc(documents, func(a, b Document) int {
		return cmp.Compare(l.failedBefore(a.Key), l.failedBefore(b.Key))
	})
	away := false
	for i := range documents {
		d := &documents[i]
		if d.URL == "" {
			continue
		}
		if away {
			l.now.keep(d.Key, l.old.parts[d.Key])
			if before := l.old.failures[d.Key]; before != nil {
				l.now.failures[d.Key] = before
			}
			continue
		}
		_ = l.try(d.Key, l.srv.State+d.URL, []string{d.APIService}, func(old *part) (*part, error) {
			p, err := l.v3(ctx, old, d)
			away = errors.Is(err, errAway)
			return p, err
		})
	}
}

func (l *loader) failedBefore(key string) int {
	if l.old.failures[key] != nil {
		return 1
	}
	return 0
}

func (l *loader) wanted() (names, prefixes []string) {
	for i := range l.srv.Documents {
		d := &l.srv.Documents[i]
		names, prefixes = append(names, d.APIService), append(prefixes, d.prefix())
	}
	return names, prefixes
}

// try makes a part, unless that failed a short while ago. A part that cannot be
// made stays as it was.
func (l *loader) try(key, state string, names []string, load func(old *part) (*part, error)) error {
	old, before := l.old.parts[key], l.old.failures[key]
	if before != nil && before.state == state && l.at.Before(before.next) {
		l.now.keep(key, old)
		l.now.failures[key] = before
		return before.err
	}
	p, err := load(old)
	switch {
	case err == nil:
		l.now.keep(key, p)
	case !errors.Is(err, errNone):
		l.now.keep(key, old)
		f := &failure{names: names, state: state, err: err, pause: failurePause}
		if before != nil && before.state == state {
			f.pause = min(before.pause*2, failurePauseMax)
		}
		f.next = l.at.Add(f.pause)
		l.now.failures[key] = f
	}
	return err
}

func (l *loaded) keep(key string, p *part) {
	if p != nil {
		l.parts[key] = p
	}
}

// v2 fetches the server's own document.
func (l *loader) v2(ctx context.Context, old *part, state string, names, prefixes []string) (*part, error) {
	etag := ""
	if old != nil && slices.Equal(old.names, names) {
		etag = old.etag
	}
	a, err := l.fetch(ctx, "/openapi/v2", etag)
	var large *largeError
	switch {
	case errors.As(err, &large) && l.hasV3():
		l.now.large = &failure{state: state, next: l.at.Add(failurePauseMax)}
		return nil, errNone
	case err != nil:
		return nil, err
	case a.Code == http.StatusNotModified && etag != "":
		return old, nil
	case a.Code == http.StatusNotFound:
		return nil, errNone
	case a.Code != http.StatusOK:
		return nil, openapi.BadStatus("/openapi/v2", a.Code)
	}
	p, err := l.decode(func() (*part, error) { return newPartV2(a.Body, prefixes) })
	if err != nil {
		return nil, &openapi.BrokenError{Err: err}
	}
	p.names, p.etag = names, a.ETag
	return p, nil
}

// v3 fetches the document of one group/version.
func (l *loader) v3(ctx context.Context, old *part, d *Document) (*part, error) {
	if old != nil && old.state == d.URL {
		return old, nil
	}
	a, err := l.fetch(ctx, d.URL, "")
	if err == nil && a.Code == http.StatusMovedPermanently && strings.HasPrefix(a.Location, "/openapi/v3/"+d.Key+"?") {
		// It changed while its hash was on its way here.
		a, err = l.fetch(ctx, a.Location, "")
	}
	switch {
	case err != nil:
		return nil, err
	case a.Code == http.StatusNotFound:
		return nil, errNone
	case a.Code != http.StatusOK:
		return nil, openapi.BadStatus("/openapi/v3/"+d.Key, a.Code)
	}
	p, err := l.decode(func() (*part, error) { return newPartV3(a.Body, []string{d.prefix()}) })
	if err != nil {
		return nil, &openapi.BrokenError{Err: err}
	}
	p.names, p.state = []string{d.APIService}, d.URL
	return p, nil
}

// hasV3 reports whether the server has a v3 document.
func (l *loader) hasV3() bool {
	return slices.ContainsFunc(l.srv.Documents, func(d Document) bool { return d.URL != "" })
}

// fetch asks for a document. That the server did not answer in time is errAway.
func (l *loader) fetch(ctx context.Context, path, etag string) (*Answer, error) {
	ctx, cancel := context.WithTimeout(ctx, fetchTimeout)
	defer cancel()
	a, err := l.srv.Fetch(ctx, path, etag)
	if err != nil && ctx.Err() != nil {
		err = fmt.Errorf("%w: %w", errAway, err)
	}
	return a, err
}

// sorted returns the parts in the order of the server's group/versions.
func (l *loaded) sorted(srv *Server) (out []*part) {
	if p := l.parts[""]; p != nil {
		return append(out, p)
	}
	for i := range srv.Documents {
		if p := l.parts[srv.Documents[i].Key]; p != nil {
			out = append(out, p)
		}
	}
	return out
}
