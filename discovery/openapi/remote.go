package openapi

import (
	"context"
	"errors"
	"fmt"
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

	mu    sync.Mutex // guards known and slots
	known *simplelru.LRU[remoteLink, *document]
	slots *simplelru.LRU[string, chan struct{}] // of fetches, by owner
}

// remoteLink identifies a document of one server, with the hash in the link. Servers may have the
// same hash for different documents.
type remoteLink struct{ owner, link string }

// NewRemote returns a Remote with an empty cache.
func NewRemote(cfg Config) *Remote {
	m := &Remote{documents: New(cfg)}
	// NewLRU fails only for a size below 1.
	m.known, _ = simplelru.NewLRU(maxRemote, func(_ remoteLink, doc *document) { m.documents.cache.drop(doc) })
	m.slots, _ = simplelru.NewLRU[string, chan struct{}](maxServers, nil)
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
	queued := func() ([]byte, error) { return m.fetch(at.owner, fetch) }
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

// Keep drops the documents for which current does not return the owner and the link that they have.
func (m *Remote) Keep(current func(key string) (owner, link string)) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, known := range m.known.Keys() {
		doc, _ := m.known.Peek(known)
		if owner, link := current(doc.key); known != (remoteLink{owner, link}) {
			m.known.Remove(known)
		}
	}
}

const (
	// fetchesPerServer is how many documents of a server are fetched at a time: a server
	// that hangs delays requests for its own documents only.
	fetchesPerServer = 4
	// fetchWait is how long a fetch waits for a slot.
	fetchWait = 5 * time.Second
	// maxServers bounds the servers with counted fetches.
	maxServers = 4096
)

// errBusy is the error of a fetch that got no slot in time.
var errBusy = errors.New("its server has not answered requests for others yet")

// fetch runs a fetch in a slot of its server.
func (m *Remote) fetch(owner string, fetch func() ([]byte, error)) ([]byte, error) {
	m.mu.Lock()
	slots, ok := m.slots.Get(owner)
	if !ok {
		slots = make(chan struct{}, fetchesPerServer)
		m.slots.Add(owner, slots)
	}
	m.mu.Unlock()
	timer := time.NewTimer(fetchWait)
	defer timer.Stop()
	select {
	case slots <- struct{}{}:
	case <-timer.C:
		return nil, errBusy
	}
	defer func() { <-slots }()
	return fetch()
}
