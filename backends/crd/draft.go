package crd

import (
	"bytes"
	"fmt"
	"slices"
	"sync"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"portico/backends/crd/accept"
	"portico/resource"
	"portico/resource/rest"
)

// draft implements rest.Strategy.Draft: nearly every new object goes from bytes
// to bytes. Only its metadata is decoded; the rest is put in the order in which
// it is stored. Left out are kinds with CEL rules or a scale view, which look at
// values, and versions that are stored in another one.
func (c *custom) draft(body []byte) rest.Draft {
	codec := c.kind.Codec.(*codec)
	if codec.gvk != codec.storage || c.version.Subresources != nil && c.version.Subresources.Scale != nil {
		return nil
	}
	s, checks, errs := c.checks()
	if errs != nil || checks.rules != nil || s.acceptor().Accept(body, accept.Body) != accept.Valid {
		return nil
	}
	d := c.server.drafts.read(body)
	if d == nil {
		return nil
	}
	if c.hasStatus() && d.has("status") {
		d.Close()
		return nil
	}
	d.codec = codec
	return d
}

// draft implements rest.Draft.
type draft struct {
	codec *codec
	head  *unstructured.Unstructured
	// content is the canon's memory.
	content []byte
	canon   *canon
	from    *drafter
	// fields are the members of content, in order.
	fields []draftField
}

// draftField is a member of a draft's content; at and end are where it stands.
type draftField struct {
	name    string
	at, end int
}

var _ rest.Draft = (*draft)(nil)

// Head implements rest.Draft.
func (d *draft) Head() *unstructured.Unstructured { return d.head }

// Content implements rest.Draft.
func (d *draft) Content() []byte { return d.content }

// Close implements rest.Draft.
func (d *draft) Close() {
	d.from.recycle(d.canon)
	d.canon, d.content = nil, nil
}

func (d *draft) has(name string) bool {
	return slices.ContainsFunc(d.fields, func(f draftField) bool { return f.name == name })
}

// Encode implements rest.Draft. That the bytes can be served as they are is
// known: nothing was added to what was accepted but metadata of ours.
func (d *draft) Encode() (*resource.Object, error) {
	data := append(make([]byte, 0, len(d.content)+encodeSpace/2), '{')
	rest := d.fields
	var err error
	for _, name := range []string{"apiVersion", "kind", "metadata"} {
		for len(rest) > 0 && rest[0].name < name {
			data = append(append(data, d.content[rest[0].at:rest[0].end]...), ',')
			rest = rest[1:]
		}
		data = append(append(append(data, '"'), name...), `":`...)
		if data, err = appendJSON(data, d.head.Object[name]); err != nil {
			return nil, fmt.Errorf("encode %s: %w", d.codec.gvk.Kind, err)
		}
		data = append(data, ',')
	}
	for _, f := range rest {
		data = append(append(data, d.content[f.at:f.end]...), ',')
	}
	data[len(data)-1] = '}'
	o, err := resource.Parse(data)
	if err == nil {
		o.Exact(d.codec.id, func(*resource.Object) bool { return true })
	}
	return o, err
}

// drafter makes drafts. Safe for concurrent use.
type drafter struct{ canons sync.Pool }

// maxKeptCanon is the largest buffer, in bytes, that is kept for the next draft.
const maxKeptCanon = 256 << 10

func newDrafter() *drafter {
	return &drafter{canons: sync.Pool{New: func() any { return new(canon) }}}
}

// read makes a draft of a body that was accepted; nil is one with something
// that is rare.
func (p *drafter) read(body []byte) *draft {
	c := p.canons.Get().(*canon)
	c.in, c.at, c.out, c.members = body, 0, c.out[:0], c.members[:0]
	members, ok := c.outermost()
	c.in = nil
	if ok {
		if d := c.draft(members); d != nil {
			d.from = p
			return d
		}
	}
	p.recycle(c)
	return nil
}

// recycle takes a canon back that nobody uses any more.
func (p *drafter) recycle(c *canon) {
	if max(cap(c.out), cap(c.spare), cap(c.content)) <= maxKeptCanon {
		p.canons.Put(c)
	}
}

// outermost rewrites the members of the whole object, in order.
func (c *canon) outermost() ([]piece, bool) {
	if !c.take('{') {
		return nil, false
	}
	members := make([]piece, 0, 8)
	for !c.take('}') {
		if len(members) > 0 && !c.take(',') {
			return nil, false
		}
		key, ok := c.key()
		if !ok || !c.value(1) {
			return nil, false
		}
		key.end = len(c.out)
		members = append(members, key)
	}
	slices.SortFunc(members, func(a, b piece) int { return bytes.Compare(c.keyOf(a), c.keyOf(b)) })
	return members, c.peek() == 0 && c.at == len(c.in)
}

// draft takes the head out of the rewritten members.
func (c *canon) draft(members []piece) *draft {
	d := &draft{head: &unstructured.Unstructured{Object: make(map[string]any, 3)}, canon: c}
	content := append(c.content[:0], '{')
	for _, m := range members {
		switch name := string(c.keyOf(m)); name {
		case "apiVersion", "kind", "metadata":
			value, ok := parseValue(c.out[m.keyEnd+len(`":`) : m.end])
			if !ok {
				return nil
			}
			d.head.Object[name] = value
		default:
			if len(d.fields) > 0 {
				content = append(content, ',')
			}
			at := len(content)
			content = append(content, c.out[m.key-1:m.end]...)
			d.fields = append(d.fields, draftField{name, at, len(content)})
		}
	}
	c.content = append(content, '}')
	d.content = c.content
	meta, ok := d.head.Object["metadata"].(map[string]any)
	if !ok {
		return nil
	}
	if meta["creationTimestamp"] == nil {
		delete(meta, "creationTimestamp")
	}
	return d
}
