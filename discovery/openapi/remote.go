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

// maxRemote is how many documents of other servers are kept at most; Config's
// Budget bounds their bytes.
const maxRemote = 4096

// Remote keeps documents of other servers: each is fetched when it is first
// asked for, once for all who ask, and kept by its hash, so that it is served
// also while its server is away. Safe for concurrent use. It is the named cache
// "openapi-remote".
type Remote struct {
	documents *Documents
	queues    fetchQueues

	mu    sync.Mutex
	known *simplelru.LRU[remoteLink, *document]
}

// remoteLink is a document of one server. Its hash is in the link; that of
// another server is not trusted to mean the same.
type remoteLink struct{ owner, link string }

// NewRemote returns a Remote that keeps nothing yet.
func NewRemote(cfg Config) *Remote {
	m := &Remote{documents: New(cfg)}
	// NewLRU fails only for a size below 1.
	m.known, _ = simplelru.NewLRU(maxRemote, func(_ remoteLink, doc *document) { m.documents.cache.drop(doc) })
	return m
}

// Serve answers a request for the document that the index has under link, a URL
// with a hash, as its server would. owner tells servers apart. It returns false,
// having answered nothing, where only the server itself can say what is right:
// the request names another hash, wants a form that there is not, or the server
// cannot be asked for the document. One that is broken (BrokenError), or did not
// come in time, is answered with why. fetch returns the JSON of the document with that hash and
// no other; it must not depend on the request, which others may wait for.
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

// ServeMade is Serve for a document that is made here of something that the
// server has: there is nobody else to answer.
func (m *Remote) ServeMade(w http.ResponseWriter, r *http.Request, owner, key, link string, fetch func() ([]byte, error)) {
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
		httpresponse.WriteStatus(w, r, resource.Unavailable(fmt.Sprintf("the OpenAPI document %s cannot be made: %v", key, err), 0))
	}
}

// serve answers with a document, or with why it is broken. Of any other error it
// has said nothing.
func (m *Remote) serve(w http.ResponseWriter, r *http.Request, at remoteLink, key, media string, fetch func() ([]byte, error)) error {
	doc := m.document(at, key, hashOf(at.link))
	turn := func() ([]byte, error) { return m.queues.fetch(at.owner, fetch) }
	doc.fetch.Store(&turn)
	err := m.documents.answer(w, r, doc, media)
	if errors.Is(err, errBusy) || errors.Is(err, context.DeadlineExceeded) {
		httpresponse.WriteStatus(w, r, resource.Unavailable(fmt.Sprintf("the OpenAPI document %s did not come in time: %v", key, err), 0))
		return nil
	}
	message, broken := isBroken(err)
	if !broken {
		return err
	}
	httpresponse.WriteStatus(w, r, apierrors.NewGenericServerResponse(http.StatusBadGateway, r.Method, schema.GroupResource{}, "",
		"the OpenAPI document "+key+" of its server cannot be used: "+message, 0, false))
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

const (
	// fetchesPerServer is how many documents of a server are fetched at a time: a server
	// that hangs delays requests for its own documents only.
	fetchesPerServer = 4
	// fetchWait is how long a fetch waits for a slot.
	fetchWait = 5 * time.Second
)

// errBusy is the error of a fetch that got no slot in time.
var errBusy = errors.New("its server has not answered yet with others")

// fetchQueues bound the fetches of each server. The zero value is ready; safe for
// concurrent use.
type fetchQueues struct {
	mu sync.Mutex
	of map[string]*fetchQueue // by owner, of those in use
}

// fetchQueue is that of one server.
type fetchQueue struct {
	slots chan struct{}
	users int // fetches that run or wait
}

// fetch runs a fetch of a server in one of its slots.
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
