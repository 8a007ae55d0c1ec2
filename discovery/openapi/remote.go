package openapi

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"sync"

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
