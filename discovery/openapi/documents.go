package openapi

import (
	"crypto/rand"
	"crypto/sha512"
	"encoding/hex"
	"encoding/json"
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
	// Budget bounds the cached documents, in bytes. The least recently used are evicted, and a
	// larger document is built for each request. Default 64 MiB.
	Budget int
	// CBOR adds the media types of CBOR, which the server serves.
	CBOR bool
	// BrokenChanged is called when a document of another server (Remote) breaks or is valid again. It
	// must not block. Optional.
	BrokenChanged func()
	// Logger, nil: slog.Default().
	Logger *slog.Logger
}

// Documents are the OpenAPI v3 documents of a server's own kinds, one per group/version, and their
// index. Safe for concurrent use.
type Documents struct {
	log   *slog.Logger
	cache *cache
	cbor  bool
	seed  string // of every hash
	// brokenChanged is never nil.
	brokenChanged func()
	name          string // unique among processes

	mu      sync.Mutex // one Update at a time
	current atomic.Pointer[set]
}

// set is all documents at one moment. Immutable.
type set struct {
	byKey  map[string]*document
	index  *Index
	serial int // of the set
}

// document is the document of one group/version. It is replaced when its content would change; its
// bytes are in the cache.
type document struct {
	key, version, hash, url string
	// kinds are its inputs, by resource name. Kinds that make the same document replace them, so that
	// old ones can be freed.
	kinds atomic.Pointer[[]*rest.Kind]
	// fetch fetches the document from another server (remote.go); nil: it is built.
	fetch atomic.Pointer[func() ([]byte, error)]
	// broken is why the last fetched document is invalid; nil: it is not, or was not fetched.
	broken atomic.Pointer[string]
	// retired: it is no longer served, and not cached.
	retired atomic.Bool
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
	d := &Documents{brokenChanged: cfg.BrokenChanged, log: cfg.Logger, cache: newCache(cfg.Budget), cbor: cfg.CBOR, seed: hashSeed(cfg.CBOR), name: rand.Text()}
	d.current.Store(&set{index: NewIndex(nil)})
	return d
}

// FromKinds returns the documents of fixed kinds.
func FromKinds(cfg Config, kinds []*rest.Kind) *Documents {
	d := New(cfg)
	d.Update(kinds)
	return d
}

// Update replaces all kinds, which must not be modified afterwards. It builds no document and costs
// one digest per changed kind: group/versions with the same kinds, or with kinds that make the same
// document, keep their document. It is called before discovery shows the change, so that clients
// that read discovery find the document in the index.
func (d *Documents) Update(kinds []*rest.Kind) {
	d.mu.Lock()
	defer d.mu.Unlock()
	old := d.current.Load()
	next := &set{byKey: make(map[string]*document, len(old.byKey)), serial: old.serial + 1}
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

// byGroupVersion returns the sorted kinds of each document.
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

// document returns the document of a group/version: the old one if it would not change.
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

// Key returns the key of the document of a group/version: "apis/G/V" or "api/v1".
func Key(group, version string) string {
	if group == "" {
		return "api/" + version
	}
	return "apis/" + group + "/" + version
}

// URL returns the relative URL of a document with its hash; "" if there is none.
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

// ETag returns the quoted ETag of the index, which identifies all documents.
func (d *Documents) ETag() string { return d.current.Load().index.ETag() }

// State differs whenever the index does. Unlike ETag it does not encode the index, and it is valid in
// this process only.
func (d *Documents) State() string {
	return d.name + "-" + strconv.Itoa(d.current.Load().serial)
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

// builderVersion is part of every hash. It is incremented when the builder changes documents: clients
// cache them by their hash.
const builderVersion = 5

// hashSeed returns the inputs of all documents besides kinds: the builder and the modules of Go
// types.
func hashSeed(cbor bool) string {
	var out strings.Builder
	fmt.Fprintln(&out, builderVersion, cbor)
	if bi, ok := debug.ReadBuildInfo(); ok {
		for _, m := range bi.Deps {
			if strings.HasPrefix(m.Path, "k8s.io/") {
				fmt.Fprintln(&out, m.Path, m.Version)
			}
		}
	}
	return out.String()
}

// inputHash digests the inputs of a document, for URLs and ETags.
func inputHash(seed, key string, m *members) string {
	h := sha512.New()
	fmt.Fprintf(h, "%s%q\n", seed, key)
	for _, k := range m.kinds {
		fmt.Fprintf(h, "%q %q %q %v %q %v %v %q\n", k.Resource, k.Kind, k.List(), k.Namespaced, k.Verbs, k.Virtual(), k.ReturnDeleted, k.PatchTypes(m.version))
		for i := range k.Subresources {
			s := &k.Subresources[i]
			fmt.Fprintf(h, "- %q %q %q %v %v %q\n", s.Name, s.Verbs, s.GVK.String(), s.Create != nil, s.Connect != nil, s.PatchTypes(k, m.version))
		}
		if k.Definitions != nil {
			all := k.Definitions(modelRef)
			for _, name := range slices.Sorted(maps.Keys(all)) {
				data, _ := json.Marshal(all[name].Schema) // generated schemas always encode
				fmt.Fprintf(h, "= %q %s\n", name, data)
			}
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
