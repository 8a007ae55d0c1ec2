package openapi

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"sync"
	"time"

	"github.com/hashicorp/golang-lru/v2/simplelru"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"portico/resource"
	httpresponse "portico/resource/response"
)

// maxRemote bounds the number of cached documents of other servers; Config.Budget bounds their
// bytes.
const maxRemote = 4096

// Remote serves documents of other servers: each is fetched at the first request, once for
// concurrent requests, and cached by its hash, also while its server is unavailable. Safe for
// concurrent use. It is the named cache "openapi-remote".
type Remote struct {
	documents *Documents
	queues    fetchQueues

	mu    sync.Mutex
	known *simplelru.LRU[remoteLink, *document]
}

// remoteLink identifies a document of one server, with the hash in the link. Servers may have the
// same hash for different documents.
type remoteLink struct{ owner, link string }

// NewRemote returns a Remote with an empty cache.
func NewRemote(cfg Config) *Remote {
	m := &Remote{documents: New(cfg)}
	// NewLRU fails only for a size below 1.
	m.known, _ = simplelru.NewLRU(maxRemote, func(_ remoteLink, doc *document) { m.documents.cache.drop(doc) })
	return m
}

// Serve answers a request for the document at link, a URL of the index with a hash, of the server
// owner. It returns false, without having answered, if the request must go to the server: it has
// another hash or asks for an unknown form, or the document cannot be fetched. A document that is
// broken (BrokenError) or late is answered with an error. fetch returns the JSON of the document
// with that hash; it must not depend on the request, since others may wait for it.
func (m *Remote) Serve(w http.ResponseWriter, r *http.Request, owner, key, link string, fetch func() ([]byte, error)) bool {
	hash := hashOf(link)
	if asked := r.URL.Query().Get("hash"); hash == "" || asked != "" && asked != hash {
		return false
	}
	media, ok := negotiate(r.Header.Values("Accept"))
	if !ok || r.Method != http.MethodGet && r.Method != http.MethodHead {
		return false
	}
	return m.serve(w, r, remoteLink{owner, link}, key, media, fetch) == nil
}

// ServeConverted is Serve for a document that the server does not have itself: every request is
// answered.
func (m *Remote) ServeConverted(w http.ResponseWriter, r *http.Request, owner, key, link string, fetch func() ([]byte, error)) {
	media, ok := negotiate(r.Header.Values("Accept"))
	if asked := r.URL.Query().Get("hash"); asked != "" && asked != hashOf(link) {
		w.Header().Set("Location", link)
		w.WriteHeader(http.StatusMovedPermanently)
		return
	}
	if !ok {
		httpresponse.WriteStatus(w, r, httpresponse.NotAcceptable(mediaJSON, mediaOpenAPIProtobuf))
		return
	}
	if err := m.serve(w, r, remoteLink{owner, link}, key, media, fetch); err != nil {
		httpresponse.WriteStatus(w, r, resource.Unavailable(fmt.Sprintf("the OpenAPI document %s cannot be converted: %v", key, err), 0))
	}
}

// serve answers with a document or, if it is broken or late, with an error. If it returns an error it
// has not answered.
func (m *Remote) serve(w http.ResponseWriter, r *http.Request, at remoteLink, key, media string, fetch func() ([]byte, error)) error {
	doc := m.document(at, key, hashOf(at.link))
	queued := func() ([]byte, error) { return m.queues.fetch(at.owner, fetch) }
	doc.fetch.Store(&queued)
	err := m.documents.answer(w, r, doc, media)
	if errors.Is(err, errBusy) || errors.Is(err, context.DeadlineExceeded) {
		httpresponse.WriteStatus(w, r, resource.Unavailable(fmt.Sprintf("the OpenAPI document %s was not fetched in time: %v", key, err), 0))
		return nil
	}
	message, broken := isBroken(err)
	if !broken {
		return err
	}
	httpresponse.WriteStatus(w, r, apierrors.NewGenericServerResponse(http.StatusBadGateway, r.Method, schema.GroupResource{}, "",
		"the OpenAPI document "+key+" of its server is invalid: "+message, 0, false))
	return nil
}

func hashOf(link string) string {
	u, err := url.Parse(link)
	if err != nil {
		return ""
	}
	return u.Query().Get("hash")
}

// document returns the same document for the same link.
func (m *Remote) document(link remoteLink, key, hash string) *document {
	m.mu.Lock()
	defer m.mu.Unlock()
	if doc, ok := m.known.Get(link); ok {
		return doc
	}
	doc := &document{key: key, hash: hash, url: link.link}
	m.known.Add(link, doc)
	return doc
}

// maxDocument bounds a fetched document, in bytes; decoded it takes about ten times that.
const maxDocument = 4 << 20

// Answer is the answer of a server to a request for a document.
type Answer struct {
	Code int
	// ETag of the document, and Location of a redirect.
	ETag, Location string
	Body           []byte
}

// Fetch requests a document. Documents larger than 4 MiB are errors, and redirects are not followed.
func Fetch(ctx context.Context, via http.RoundTripper, base string, identify func(http.Header), path, etag string) (*Answer, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, base+path, nil)
	if err != nil {
		return nil, fmt.Errorf("make request: %w", err)
	}
	req.Header.Set("Accept", mediaJSON)
	req.Header.Set("User-Agent", "portico-gateway")
	req.Header.Set("Cache-Control", noStore)
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

const (
	// fetchesPerServer is how many documents of a server are fetched at a time: a server
	// that hangs delays requests for its own documents only.
	fetchesPerServer = 4
	// fetchWait is how long a fetch waits for a slot.
	fetchWait = 5 * time.Second
)

// errBusy is the error of a fetch that got no slot in time.
var errBusy = errors.New("its server has not answered requests for others yet")

// fetchQueues bound the fetches of each server. The zero value is ready; safe for
// concurrent use.
type fetchQueues struct {
	mu sync.Mutex
	of map[string]*fetchQueue // by owner, of those in use
}

// fetchQueue is the queue of one server.
type fetchQueue struct {
	slots chan struct{}
	users int // fetches that run or wait
}

// fetch runs a fetch in a slot of its server.
func (q *fetchQueues) fetch(owner string, fetch func() ([]byte, error)) ([]byte, error) {
	at := q.acquire(owner)
	defer q.release(owner, at)
	timer := time.NewTimer(fetchWait)
	defer timer.Stop()
	select {
	case at.slots <- struct{}{}:
	case <-timer.C:
		return nil, errBusy
	}
	defer func() { <-at.slots }()
	return fetch()
}

func (q *fetchQueues) acquire(owner string) *fetchQueue {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.of == nil {
		q.of = map[string]*fetchQueue{}
	}
	at := q.of[owner]
	if at == nil {
		at = &fetchQueue{slots: make(chan struct{}, fetchesPerServer)}
		q.of[owner] = at
	}
	at.users++
	return at
}

func (q *fetchQueues) release(owner string, at *fetchQueue) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if at.users--; at.users == 0 {
		delete(q.of, owner)
	}
}
