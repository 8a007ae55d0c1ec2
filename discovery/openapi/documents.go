package openapi

import (
	"crypto/rand"
	"crypto/sha512"
	"encoding/hex"
	"fmt"
	"log/slog"
	"maps"
	"net/http"
	"runtime/debug"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"

	"portico/resource/rest"
)

// Config of Documents. The zero value is good.
type Config struct {
	// Budget bounds the documents that are kept built, in bytes. What was used
	// least recently goes first, and a document larger than the budget is
	// built for each request. Default 64 MiB.
	Budget int
	// BrokenChanged, if not nil, is called when a document of another server
	// (Remote) is found to be broken, or to be so no more. It must not wait.
	BrokenChanged func()
	// Logger is told of schemas that cannot be built. nil: slog.Default().
	Logger *slog.Logger
}

// Documents are the OpenAPI v3 documents of a server's own kinds, one for each
// group/version, and their index. Safe for concurrent use.
type Documents struct {
	log   *slog.Logger
	cache *cache
	seed  string // of every hash
	// brokenChanged is never nil.
	brokenChanged func()
	name          string // tells these Documents from those of other processes

	mu      sync.Mutex // one Update at a time
	current atomic.Pointer[set]
}

// set is all documents at one moment. Immutable.
type set struct {
	byKey map[string]*document
	index *Index
	turn  int // counts the sets
}

// document is one group/version's document. It lives as long as what it would
// say stays the same; its bytes are in the cache.
type document struct {
	key, version, hash, url string
	// kinds are what it is built from, by resource name. They may be replaced
	// by others that make the same document, so that a server's outdated rows
	// are not kept alive.
	kinds atomic.Pointer[[]*rest.Kind]
	// fetch has the document from another server (remote.go); nil: it is built.
	fetch atomic.Pointer[func() ([]byte, error)]
	// broken is why what was fetched last cannot be used; nil: it can, or
	// nothing was.
	broken atomic.Pointer[string]
	// retired: nobody will ask for it again. Guarded by the cache's lock.
	retired bool
}

// New returns Documents of no kinds.
func New(cfg Config) *Documents {
	if cfg.Budget == 0 {
		cfg.Budget = defaultBudget
	}
	if cfg.Logger == nil {
		cfg.Logger = slog.Default()
	}
	if cfg.BrokenChanged == nil {
		cfg.BrokenChanged = func() {}
	}
	d := &Documents{brokenChanged: cfg.BrokenChanged, log: cfg.Logger, cache: newCache(cfg.Budget), seed: hashSeed(), name: rand.Text()}
	d.current.Store(&set{index: NewIndex(nil)})
	return d
}

// FromKinds returns the documents of kinds that do not change.
func FromKinds(kinds []*rest.Kind) *Documents {
	d := New(Config{})
	d.Update(kinds)
	return d
}

// Update makes kinds, whose rows must not change any more, the whole of what
// is described. It builds nothing and is cheap enough to be called at every
// change: group/versions whose rows are the same ones, or would make the same
// document, stay as they are, with what is built of them.
//
// A server that serves kinds as they come and go calls Update before its
// discovery shows the change, so that whoever reads the index after discovery
// finds it there.
func (d *Documents) Update(kinds []*rest.Kind) {
	d.mu.Lock()
	defer d.mu.Unlock()
	old := d.current.Load()
	next := &set{byKey: make(map[string]*document, len(old.byKey)), turn: old.turn + 1}
	same := true
	for key, m := range byGroupVersion(kinds) {
		doc := d.document(key, m, old.byKey[key])
		next.byKey[key] = doc
		same = same && doc == old.byKey[key]
	}
	if same && len(next.byKey) == len(old.byKey) {
		return
	}
	urls := make(map[string]string, len(next.byKey))
	for key, doc := range next.byKey {
		urls[key] = doc.url
	}
	next.index = NewIndex(urls)
	d.current.Store(next)
	for key, doc := range old.byKey {
		if next.byKey[key] != doc {
			d.cache.drop(doc)
		}
	}
}

// members are the kinds of one group/version.
type members struct {
	version string
	kinds   []*rest.Kind
}

// byGroupVersion sorts kinds into the documents they are described in, in an
// order that does not depend on the caller's.
func byGroupVersion(kinds []*rest.Kind) map[string]*members {
	out := make(map[string]*members, len(kinds))
	for _, k := range kinds {
		for _, version := range k.Versions {
			key := Key(k.Group, version)
			m := out[key]
			if m == nil {
				m = &members{version: version}
				out[key] = m
			}
			m.kinds = append(m.kinds, k)
		}
	}
	for _, m := range out {
		if len(m.kinds) > 1 {
			slices.SortStableFunc(m.kinds, func(a, b *rest.Kind) int { return strings.Compare(a.Resource, b.Resource) })
		}
	}
	return out
}

// document returns the document of a group/version: the old one if that still
// says the same.
func (d *Documents) document(key string, m *members, old *document) *document {
	if old != nil && slices.Equal(*old.kinds.Load(), m.kinds) {
		return old
	}
	hash := inputHash(d.seed, key, m)
	if old != nil && old.hash == hash {
		old.kinds.Store(&m.kinds)
		return old
	}
	doc := &document{key: key, version: m.version, hash: hash, url: "/openapi/v3/" + key + "?hash=" + hash}
	doc.kinds.Store(&m.kinds)
	return doc
}

// Key returns the name of a group/version's document: "apis/G/V", "api/v1".
func Key(group, version string) string {
	if group == "" {
		return "api/" + version
	}
	return "apis/" + group + "/" + version
}

// URL returns the relative URL of a document with its hash; "" if there is no
// such document.
func (d *Documents) URL(key string) string {
	if doc := d.current.Load().byKey[key]; doc != nil {
		return doc.url
	}
	return ""
}

// Keys returns the keys of all documents, sorted.
func (d *Documents) Keys() []string {
	return slices.Sorted(maps.Keys(d.current.Load().byKey))
}

// ETag identifies the present index, and with it all documents. It is quoted,
// as in the header.
func (d *Documents) ETag() string { return d.current.Load().index.ETag() }

// State differs whenever the index does, and costs nothing to ask for: unlike
// ETag it does not encode the index. It means nothing to another process.
func (d *Documents) State() string {
	return d.name + "-" + strconv.Itoa(d.current.Load().turn)
}

// Handler serves /openapi/v3 and /openapi/v3/<key>.
func (d *Documents) Handler() http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		now := d.current.Load()
		key, ok := strings.CutPrefix(r.URL.Path, "/openapi/v3")
		key = strings.Trim(key, "/")
		doc := now.byKey[key]
		switch {
		case ok && key == "":
			now.index.ServeHTTP(w, r)
		case ok && doc != nil:
			d.serve(w, r, doc)
		default:
			http.Error(w, "404 page not found", http.StatusNotFound)
		}
	})
}

// builderVersion is part of every hash: clients cache documents by their hash,
// so a builder that writes something else must count it up.
const builderVersion = 3

// hashSeed says what every document depends on besides its kinds: the builder
// and the modules whose Go types it describes.
func hashSeed() string {
	var out strings.Builder
	fmt.Fprintln(&out, builderVersion)
	if bi, ok := debug.ReadBuildInfo(); ok {
		for _, m := range bi.Deps {
			if strings.HasPrefix(m.Path, "k8s.io/") {
				fmt.Fprintln(&out, m.Path, m.Version)
			}
		}
	}
	return out.String()
}

// inputHash digests what a document is made from, in the form that clients see
// in URLs and ETags.
func inputHash(seed, key string, m *members) string {
	h := sha512.New()
	fmt.Fprintf(h, "%s%q\n", seed, key)
	for _, k := range m.kinds {
		fmt.Fprintf(h, "%q %q %q %v %q %v %v %q\n", k.Resource, k.Kind, k.List(), k.Namespaced, k.Verbs, k.Review != nil, k.ReturnDeleted, k.PatchTypes(m.version))
		for i := range k.Subresources {
			s := &k.Subresources[i]
			fmt.Fprintf(h, "- %q %q %q %v %v %q\n", s.Name, s.Verbs, s.GVK.String(), s.Create != nil, s.Connect != nil, s.PatchTypes(k, m.version))
		}
		if k.Schema != nil {
			fmt.Fprintf(h, "= %q %q\n", k.FieldLabels, schemaInputs(k, m.version))
		}
	}
	return strings.ToUpper(hex.EncodeToString(h.Sum(nil)))
}

func schemaInputs(k *rest.Kind, version string) string {
	if k.SchemaInputs == nil {
		return ""
	}
	return k.SchemaInputs(version)
}
