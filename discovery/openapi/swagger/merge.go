package swagger

import (
	"bytes"
	"compress/gzip"
	"crypto/sha512"
	"encoding/json"
	"errors"
	"fmt"
	"hash"
	"io"
	"maps"
	"regexp"
	"slices"

	"k8s.io/kube-openapi/pkg/aggregator"
	"k8s.io/kube-openapi/pkg/validation/spec"
)

const (
	// maxShared bounds the definitions that are held while parts are merged,
	// as JSON, in bytes; decoded they take about ten times that.
	maxShared = 4 << 20
	// maxMerged bounds the whole document, as JSON, in bytes. It is kept
	// compressed, about a twentieth of that.
	maxMerged = 512 << 20
)

var (
	errShared = fmt.Errorf("definitions that several servers have are larger than %d bytes", maxShared)
	errMerged = fmt.Errorf("the OpenAPI v2 document is larger than %d bytes", maxMerged)
)

// document is the whole in JSON. Immutable.
type document struct {
	etag   string // quoted
	size   int    // of the JSON, in bytes
	packed []byte // gzip
}

// limits of a merge, in bytes.
type limits struct{ shared, merged int }

// merge puts the parts together, in their order. One that cannot be merged is
// left out, and told to failed.
func merge(parts []*part, l limits, failed func(*part, error)) (*document, error) {
	m, err := newMerger(parts, l)
	if err != nil {
		return nil, err
	}
	for _, p := range parts {
		if err := m.add(p); err != nil {
			failed(p, err)
		}
	}
	return m.finish()
}

// merger writes a document while parts are added to it.
type merger struct {
	limits limits
	// held counts the parts that have a definition or parameter, by name: those
	// of several parts, and what was renamed, stay in shared.
	held   map[string]int
	shared *spec.Swagger
	size   int // of shared, about

	out         bytes.Buffer
	hash        hash.Hash
	packed      *gzip.Writer
	written     int
	first       bool          // nothing is in the paths yet
	definitions *bytes.Buffer // what is in one part only, compressed
	aside       *gzip.Writer
	asideSize   int
}

// renamed tells names that the aggregator may have given.
var renamed = regexp.MustCompile(`_v[0-9]+$`)

func newMerger(parts []*part, l limits) (*merger, error) {
	m := &merger{limits: l, held: map[string]int{}, shared: &spec.Swagger{}, hash: sha512.New(), first: true, definitions: &bytes.Buffer{}}
	for _, p := range parts {
		for _, name := range p.definitions {
			m.held[name]++
		}
	}
	// BestSpeed is a known level: no error.
	m.packed, _ = gzip.NewWriterLevel(&m.out, gzip.BestSpeed)
	m.aside, _ = gzip.NewWriterLevel(m.definitions, gzip.BestSpeed)
	head, err := json.Marshal(about())
	if err != nil {
		return nil, err
	}
	return m, m.write([]byte(`{"swagger":"2.0","info":` + string(head) + `,"paths":{`))
}

// write adds to the document.
func (m *merger) write(data []byte) error {
	m.written += len(data)
	_, _ = m.hash.Write(data) // never fails
	_, err := m.packed.Write(data)
	return err
}

// alone reports whether a definition is in one part only, under its own name.
func (m *merger) alone(name string) bool { return m.held[name] == 1 && !renamed.MatchString(name) }

// add merges a part. What follows an error is as if it had never been there.
func (m *merger) add(p *part) error {
	if m.written+m.asideSize+p.size > m.limits.merged {
		return errMerged
	}
	doc, err := p.open()
	if err != nil {
		return err
	}
	size, err := m.newlyShared(doc)
	if err != nil {
		return err
	}
	if m.size+size > m.limits.shared {
		return errShared
	}
	defer func() { m.shared.Paths = nil }()
	if err := aggregator.MergeSpecs(m.shared, doc); err != nil {
		return fmt.Errorf("merge OpenAPI v2 documents: %w", err)
	}
	m.size += size
	for _, name := range slices.Sorted(maps.Keys(m.shared.Definitions)) {
		if !m.alone(name) {
			continue
		}
		s := m.shared.Definitions[name]
		delete(m.shared.Definitions, name)
		if err := m.setAside(name, &s); err != nil {
			return err
		}
	}
	return m.writePaths()
}

// newlyShared returns the size of the definitions and parameters that would be
// held because of a part.
func (m *merger) newlyShared(doc *spec.Swagger) (size int, err error) {
	for name, s := range doc.Definitions {
		if m.alone(name) {
			continue
		}
		if _, have := m.shared.Definitions[name]; have && !renamed.MatchString(name) && m.sameSchema(name, &s) {
			continue
		}
		data, err := json.Marshal(&s)
		if err != nil {
			return 0, fmt.Errorf("encode definition %s: %w", name, err)
		}
		size += len(data)
	}
	for name, p := range doc.Parameters {
		if _, have := m.shared.Parameters[name]; !have {
			size += len(p.Description) + len(name)
		}
	}
	return size, nil
}

// sameSchema reports, cheaply, whether a definition is probably held already:
// it is asked for the bound alone.
func (m *merger) sameSchema(name string, s *spec.Schema) bool {
	have := m.shared.Definitions[name]
	return len(have.Properties) == len(s.Properties) && have.Description == s.Description
}

// setAside writes a definition to where it waits for the end of the paths.
func (m *merger) setAside(name string, s *spec.Schema) error {
	data, err := json.Marshal(s)
	if err != nil {
		return fmt.Errorf("encode definition %s: %w", name, err)
	}
	var b bytes.Buffer
	if m.asideSize > 0 {
		b.WriteByte(',')
	}
	writeEntry(&b, entry{name, data})
	m.asideSize += b.Len()
	_, err = m.aside.Write(b.Bytes())
	return err
}

// writePaths writes the paths that the last part brought.
func (m *merger) writePaths() error {
	if m.shared.Paths == nil {
		return nil
	}
	for _, url := range slices.Sorted(maps.Keys(m.shared.Paths.Paths)) {
		item := m.shared.Paths.Paths[url]
		data, err := json.Marshal(&item)
		if err != nil {
			return fmt.Errorf("encode path %s: %w", url, err)
		}
		if err := m.writeMember(&m.first, url, data); err != nil {
			return err
		}
	}
	return nil
}

func (m *merger) writeMember(first *bool, name string, data []byte) error {
	var b bytes.Buffer
	if !*first {
		b.WriteByte(',')
	}
	*first = false
	writeEntry(&b, entry{name, data})
	return m.write(b.Bytes())
}

// finish writes the definitions and parameters behind the paths.
func (m *merger) finish() (*document, error) {
	if err := errors.Join(m.aside.Close(), m.write([]byte(`},"definitions":{`))); err != nil {
		return nil, fmt.Errorf("write OpenAPI v2 document: %w", err)
	}
	waiting, err := gzip.NewReader(m.definitions)
	if err != nil {
		return nil, fmt.Errorf("read definitions set aside: %w", err)
	}
	if _, err := io.Copy(writerFunc(m.write), waiting); err != nil {
		return nil, fmt.Errorf("write definitions: %w", err)
	}
	first := m.asideSize == 0
	if err := writeAll(m, &first, m.shared.Definitions); err != nil {
		return nil, err
	}
	if err := m.write([]byte(`},"parameters":{`)); err != nil {
		return nil, err
	}
	first = true
	if err := writeAll(m, &first, m.shared.Parameters); err != nil {
		return nil, err
	}
	if err := errors.Join(m.write([]byte("}}")), m.packed.Close()); err != nil {
		return nil, fmt.Errorf("write OpenAPI v2 document: %w", err)
	}
	return &document{etag: fmt.Sprintf(`"%X"`, m.hash.Sum(nil)), size: m.written, packed: bytes.Clone(m.out.Bytes())}, nil
}

func writeAll[T any](m *merger, first *bool, all map[string]T) error {
	for _, name := range slices.Sorted(maps.Keys(all)) {
		v := all[name]
		data, err := json.Marshal(&v)
		if err != nil {
			return fmt.Errorf("encode %s: %w", name, err)
		}
		if err := m.writeMember(first, name, data); err != nil {
			return err
		}
	}
	return nil
}

type writerFunc func([]byte) error

func (f writerFunc) Write(p []byte) (int, error) { return len(p), f(p) }
