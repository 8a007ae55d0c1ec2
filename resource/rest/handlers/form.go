package handlers

import (
	"errors"
	"sync"
	"weak"

	"portico/resource"
	"portico/resource/bytelru"
	"portico/resource/rest"
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
func (a *API) render(k *rest.Kind, o *resource.Object, f form) ([]byte, error) {
	if f.matchesStored(k, o) {
		return o.Data, nil
	}
	return a.forms.get(formKey{weak.Make(o), k, f}, func() ([]byte, error) { return f.encode(k, o) })
}

// renderOnce is render without the cache, for an object with one reader, such as the answer
// to a write.
func (f form) renderOnce(k *rest.Kind, o *resource.Object) ([]byte, error) {
	if f.matchesStored(k, o) {
		return o.Data, nil
	}
	return f.encode(k, o)
}

// matchesStored reports whether the object's bytes are already in the form.
func (f form) matchesStored(k *rest.Kind, o *resource.Object) bool {
	if f.partial || (f.media == mediaProtobuf) != (o.Encoding == resource.Protobuf) || o.Kind != k.Kind {
		return false
	}
	if !isVersion(o.APIVersion, k.Group, f.version) {
		return false
	}
	// The last condition: Canonical is for stored bytes of the right version and
	// may have to decode them.
	c, ok := k.Codec.(rest.CanonicalCodec)
	return !ok || c.Canonical(o)
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
func (f form) encode(k *rest.Kind, o *resource.Object) ([]byte, error) {
	if f.partial {
		data, err := encodePartial(k, o, f)
		if err != nil {
			return nil, k.StoreReadError(o, err)
		}
		return data, nil
	}
	obj, err := k.Decode(o)
	if err != nil {
		return nil, err
	}
	return k.Codec.Encode(obj, k.GVK(f.version), f.media.contentType())
}

// defaultFormBytes bounds the memory of the form cache.
const defaultFormBytes = 64 << 20

// entryOverhead is roughly what a cache entry takes besides its bytes.
const entryOverhead = 256

// formKey identifies a form of an object. Objects are immutable and shared, so their
// identity stands for their content. The pointer is weak because a form may be much
// smaller than its object (metadata alone): thousands of small entries would keep
// thousands of states that are not read again.
type formKey struct {
	object weak.Pointer[resource.Object]
	kind   *rest.Kind
	form   form
}

// errFormNotMade is the error of the other readers when the encoder panics.
var errFormNotMade = errors.New("encode object: the encoder failed")

// formEntry is encoded once; other readers wait for that.
type formEntry struct {
	once sync.Once
	data []byte
	err  error
}

// formCache keeps the most recently used forms.
type formCache struct {
	entries *bytelru.Cache[formKey, *formEntry]
	limit   int
}

func newFormCache(limit int) *formCache {
	return &formCache{entries: bytelru.New[formKey, *formEntry](limit), limit: limit}
}

// get returns the cached bytes or encodes them. Errors are not cached, nor forms of more
// than a quarter of the cache.
func (c *formCache) get(key formKey, encode func() ([]byte, error)) ([]byte, error) {
	e := c.entries.GetOrAdd(key, func() (*formEntry, int) { return &formEntry{err: errFormNotMade}, entryOverhead })
	e.once.Do(func() {
		defer c.account(key, e) // also when encode panics
		e.data, e.err = encode()
	})
	return e.data, e.err
}

// account sets the size of an encoded entry, unless it was evicted meanwhile.
func (c *formCache) account(key formKey, e *formEntry) {
	same := func(kept *formEntry) bool { return kept == e }
	if e.err == nil && len(e.data) <= c.limit/4 {
		c.entries.Resize(key, same, entryOverhead+len(e.data))
	} else if c.entries.Resize(key, same, 0) {
		c.entries.Remove(key)
	}
}
