package openapi

import (
	"net/http"
	"net/url"
	"sync"

	"github.com/hashicorp/golang-lru/v2/simplelru"
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
// with a hash, as its server would. owner tells servers apart. It returns false, having answered nothing,
// where only the server itself can say what is right: the request names another
// hash, wants a form that there is not, or the document cannot be fetched. fetch
// returns the JSON of the document with that hash and no other; it must not
// depend on the request, which others may wait for.
func (m *Remote) Serve(w http.ResponseWriter, r *http.Request, owner, key, link string, fetch func() ([]byte, error)) bool {
	hash := hashOf(link)
	if asked := r.URL.Query().Get("hash"); hash == "" || asked != "" && asked != hash {
		return false
	}
	media, ok := negotiate(r.Header.Values("Accept"))
	if !ok || r.Method != http.MethodGet && r.Method != http.MethodHead {
		return false
	}
	doc := m.document(remoteLink{owner, link}, key, hash)
	doc.fetch.Store(&fetch)
	return m.documents.answer(w, r, doc, media) == nil
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
