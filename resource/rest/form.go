package rest

import (
	"errors"
	"sync"
	"weak"

	"github.com/hashicorp/golang-lru/v2/simplelru"

	"portico/resource"
)

// form is one way of showing an object: its bytes are the same for every
// reader that asks for it. YAML, indentation and tables are made of the JSON
// form on the way out.
type form struct {
	// media is JSON or protobuf.
	media media
	// version is the version of the object, or of meta.k8s.io for a partial.
	version string
	// partial is metadata only (PartialObjectMetadata).
	partial bool
}

// formOf returns the form of one object that a format is made of. The row
// object of a table depends on includeObject, see table.go.
func formOf(f format, version string) form {
	media := f.media
	if media == mediaYAML {
		media = mediaJSON
	}
	if f.transform == asPartial || f.transform == asPartialList {
		return form{media: media, version: f.metaVersion, partial: true}
	}
	return form{media: media, version: version}
}

// render returns the object in a form, apiVersion and kind included. Stored
// bytes that are in that form are returned as they stand; others are made once
// and shared. The result must not be changed.
func (a *API) render(k *Kind, o *resource.Object, f form) ([]byte, error) {
	if f.matchesStored(k, o) {
		return o.Data, nil
	}
	return a.forms.get(formKey{weak.Make(o), k, f}, func() ([]byte, error) { return f.encode(k, o) })
}

// renderOnce is render for an object that nobody else will read, such as the
// answer to a write.
func (f form) renderOnce(k *Kind, o *resource.Object) ([]byte, error) {
	if f.matchesStored(k, o) {
		return o.Data, nil
	}
	return f.encode(k, o)
}

// matchesStored reports whether the object's bytes are already in the form.
func (f form) matchesStored(k *Kind, o *resource.Object) bool {
	if f.partial || (f.media == mediaProtobuf) != (o.Encoding == resource.Protobuf) || o.Kind != k.Kind {
		return false
	}
	if !isVersion(o.APIVersion, k.Group, f.version) {
		return false
	}
	// Asked last: it is for stored bytes of the right version only, and may
	// have to decode them.
	e, ok := k.Codec.(Exacting)
	return !ok || e.Exact(o)
}

// isVersion reports whether an apiVersion is that group and version.
func isVersion(apiVersion, group, version string) bool {
	if group == "" {
		return apiVersion == version
	}
	n := len(group)
	return len(apiVersion) == n+1+len(version) && apiVersion[:n] == group && apiVersion[n] == '/' && apiVersion[n+1:] == version
}

// encode makes the form.
func (f form) encode(k *Kind, o *resource.Object) ([]byte, error) {
	if f.partial {
		data, err := encodePartial(k, o, f)
		if err != nil {
			return nil, storeReadError(k, o, err)
		}
		return data, nil
	}
	obj, err := k.decodeStored(o)
	if err != nil {
		return nil, err
	}
	return k.Codec.Encode(obj, k.GVK(f.version), f.media.contentType())
}

// defaultFormBytes bounds the memory of the form cache.
const defaultFormBytes = 64 << 20

// entryOverhead is what a cache entry costs besides its bytes, roughly.
const entryOverhead = 256

// formKey identifies a form of an object. Objects are immutable and shared, so
// their identity stands for their content. The pointer is weak because a form
// may be much smaller than its object (metadata alone): thousands of small
// entries would keep thousands of states that nobody will read again.
type formKey struct {
	object weak.Pointer[resource.Object]
	kind   *Kind
	form   form
}

// errFormNotMade is what the others get when the maker of an entry panics.
var errFormNotMade = errors.New("encode object: the encoder failed")

// formEntry is made once; everybody else who wants it waits.
type formEntry struct {
	once sync.Once
	data []byte
	err  error
	// cost is 0 until the entry is made. Guarded by the cache's lock.
	cost int
}

// formCache keeps the forms used last, within a number of bytes. It is the
// named cache "forms".
type formCache struct {
	mu    sync.Mutex
	lru   *simplelru.LRU[formKey, *formEntry]
	bytes int
	limit int
}

func newFormCache(limit int) *formCache {
	c := &formCache{limit: limit}
	// The number of entries is bounded through entryOverhead. NewLRU fails only
	// for a size below 1.
	c.lru, _ = simplelru.NewLRU(max(limit/entryOverhead, 1), func(_ formKey, e *formEntry) { c.bytes -= e.cost })
	return c
}

// get returns the kept bytes or makes them. Errors are not kept.
func (c *formCache) get(key formKey, encode func() ([]byte, error)) ([]byte, error) {
	c.mu.Lock()
	e, ok := c.lru.Get(key)
	if !ok {
		e = &formEntry{err: errFormNotMade}
		c.lru.Add(key, e)
	}
	c.mu.Unlock()

	e.once.Do(func() {
		defer c.account(key, e) // also when encode panics
		e.data, e.err = encode()
	})
	return e.data, e.err
}

// account adds a made entry's cost and evicts what is too much. An entry that
// was evicted while it was made, or cannot be kept, is not counted.
func (c *formCache) account(key formKey, e *formEntry) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if kept, ok := c.lru.Peek(key); !ok || kept != e {
		return
	}
	cost := len(e.data) + entryOverhead
	if e.err != nil || cost > c.limit/4 {
		c.lru.Remove(key)
		return
	}
	e.cost = cost
	c.bytes += cost
	for c.bytes > c.limit {
		if _, _, ok := c.lru.RemoveOldest(); !ok {
			return
		}
	}
}
