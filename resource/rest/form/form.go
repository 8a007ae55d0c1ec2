// Package form encodes stored objects in the forms that clients request: a version in JSON
// or protobuf, metadata only, or table rows. It shares encoded forms between readers.
//
// Runs in: gateway, core, crd.
package form

import (
	"bytes"
	"errors"
	"sync"
	"weak"

	"portico/resource"
	"portico/resource/bytelru"
	"portico/resource/response"
	"portico/resource/rest"
)

// Form is an encoding of an object that is the same for every reader. YAML, indented JSON
// and tables are made from the JSON form for each response.
type Form struct {
	// Media is JSON or Protobuf.
	Media response.Media
	// Version is the version of the object, or of meta.k8s.io if Partial.
	Version string
	// Partial requests PartialObjectMetadata.
	Partial bool
}

// Of returns the form of one object that a response in the format is made from. version is
// that of the request. The objects in table rows depend on includeObject, see Tables.
func Of(f response.Format, version string) Form {
	media := f.Media
	if media == response.YAML {
		media = response.JSON
	}
	if f.Transform == response.AsPartial || f.Transform == response.AsPartialList {
		return Form{Media: media, Version: f.MetaVersion, Partial: true}
	}
	return Form{Media: media, Version: version}
}

// Encode returns the object in the form, apiVersion and kind included: the stored bytes if
// they have the form. The result must not be changed.
func (f Form) Encode(k *rest.Kind, o *resource.Object) ([]byte, error) {
	if f.matchesStored(k, o) {
		return o.Data, nil
	}
	return f.encode(k, o)
}

// matchesStored reports whether the stored bytes have the form.
func (f Form) matchesStored(k *rest.Kind, o *resource.Object) bool {
	if f.Partial || (f.Media == response.Protobuf) != (o.Encoding == resource.Protobuf) || o.Kind != k.Kind {
		return false
	}
	if !isVersion(o.APIVersion, k.Group, f.Version) {
		return false
	}
	// Last, because Canonical may decode the object.
	c, ok := k.Codec.(rest.CanonicalCodec)
	return !ok || c.Canonical(o)
}

// isVersion reports whether an apiVersion is that group and version, without allocating.
func isVersion(apiVersion, group, version string) bool {
	if group == "" {
		return apiVersion == version
	}
	n := len(group)
	return len(apiVersion) == n+1+len(version) && apiVersion[:n] == group && apiVersion[n] == '/' && apiVersion[n+1:] == version
}

func (f Form) encode(k *rest.Kind, o *resource.Object) ([]byte, error) {
	if f.Partial {
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
	return k.Codec.Encode(obj, k.GVK(f.Version), f.Media.ContentType())
}

// Cache holds the most recently used forms of objects. Safe for concurrent use.
type Cache struct{ forms *Shared[cacheKey] }

// cacheKey identifies a form of an object. Objects are immutable and shared, so that their
// identity represents their content. The pointer is weak because a form may be much smaller
// than its object (metadata only): entries must not keep states in memory that nothing else
// reads, nor definitions that are no longer served.
type cacheKey struct {
	object weak.Pointer[resource.Object]
	kind   weak.Pointer[rest.Kind]
	form   Form
}

// NewCache returns a cache of at most limit bytes.
func NewCache(limit int) *Cache { return &Cache{NewShared[cacheKey](limit)} }

// Encode is Form.Encode with the cache.
func (c *Cache) Encode(k *rest.Kind, o *resource.Object, f Form) ([]byte, error) {
	if f.matchesStored(k, o) {
		return o.Data, nil
	}
	return c.forms.Get(cacheKey{weak.Make(o), weak.Make(k), f}, func() ([]byte, error) { return f.encode(k, o) })
}

// Shared holds the most recently used encodings, each encoded once for all readers that ask
// for it. Safe for concurrent use.
type Shared[K comparable] struct {
	entries *bytelru.Cache[K, *encoding]
	limit   int
}

// encoding is encoded once; concurrent readers wait.
type encoding struct {
	once sync.Once
	data []byte
	err  error
}

// entryOverhead is the approximate size of an entry without its data, in bytes.
const entryOverhead = 256

// errPanicked is the error of concurrent readers if the encoder panics.
var errPanicked = errors.New("encode object: the encoder failed")

// NewShared returns an empty Shared of at most limit bytes.
func NewShared[K comparable](limit int) *Shared[K] {
	return &Shared[K]{entries: bytelru.New[K, *encoding](limit), limit: limit}
}

// Get returns the encoding of a key, or calls encode. The result must not be changed.
// Errors are not kept, nor data of more than half of the limit.
func (s *Shared[K]) Get(key K, encode func() ([]byte, error)) ([]byte, error) {
	e := s.entries.GetOrAdd(key, func() (*encoding, int) { return &encoding{err: errPanicked}, entryOverhead })
	e.once.Do(func() {
		defer s.account(key, e) // also when encode panics
		e.data, e.err = encode()
		if cap(e.data) > len(e.data)+len(e.data)/8 { // entries are counted by their length
			e.data = bytes.Clone(e.data)
		}
	})
	return e.data, e.err
}

// account sets the size of an entry that was encoded, unless it was evicted meanwhile.
func (s *Shared[K]) account(key K, e *encoding) {
	same := func(kept *encoding) bool { return kept == e }
	if e.err == nil && len(e.data) <= s.limit/2 {
		s.entries.Resize(key, same, entryOverhead+len(e.data))
	} else if s.entries.Resize(key, same, 0) {
		s.entries.Remove(key)
	}
}
