package rest

import (
	"bytes"
	"encoding/json"
	"slices"

	kjson "sigs.k8s.io/json"
	smd "sigs.k8s.io/structured-merge-diff/v6/schema"
	smdtyped "sigs.k8s.io/structured-merge-diff/v6/typed"
)

// ownedText is ownedByOne for an object of which head is decoded and content is
// text (see Draft): it returns fieldsV1 as encoding/json would write it.
func ownedText(root *smdtyped.TypedValue, head map[string]any, content []byte, resets []string) ([]byte, bool) {
	t := &ownerText{ownerWalk: ownerWalk{root.Schema()}, in: content}
	atom, ok := t.schema.Resolve(root.TypeRef())
	if !ok || atom.Map == nil || isAtomic(atom.Map.ElementRelationship) {
		return nil, false
	}
	meta, ok := ownedByOne(root, head, resets)
	if !ok {
		return nil, false
	}
	t.out = append(make([]byte, 0, len(content)/2+ownerSpace), '{')
	pending := t.headFields(meta)
	if pending == nil || !t.take('{') {
		return nil, false
	}
	ok = t.members(func(key []byte) bool {
		if pending.before(key) {
			t.separate()
			t.out = append(t.out, pending.text...)
			pending.text = nil
		}
		from := len(t.out)
		if t.separate(); !t.field(atom.Map, key, true) {
			return false
		}
		if slices.Contains(resets, string(key)) {
			t.out = t.out[:from]
		}
		return true
	})
	if pending.text != nil {
		t.separate()
		t.out = append(t.out, pending.text...)
	}
	return append(t.out, '}'), ok && t.at == len(t.in)
}

// ownerSpace is what a record is expected to take at least, in bytes; larger
// ones grow.
const ownerSpace = 256

// headText is the member of fieldsV1 for metadata; text nil is that it was
// written, or that there is none.
type headText struct{ text []byte }

// before reports whether it comes before the field and is not written yet.
func (h *headText) before(field []byte) bool {
	return h.text != nil && string(field) > "metadata"
}

// headFields encodes what is owned of the head; nil is that it cannot be.
func (t *ownerText) headFields(fields map[string]any) *headText {
	if len(fields) == 0 {
		return &headText{}
	}
	text, err := json.Marshal(fields)
	if err != nil {
		return nil
	}
	return &headText{text: text[1 : len(text)-1]}
}

// ownerText is ownerWalk along text. It stops where the text is not as a Draft's
// is.
type ownerText struct {
	ownerWalk
	in  []byte
	at  int
	out []byte
}

// separate puts a comma behind a member.
func (t *ownerText) separate() {
	if t.out[len(t.out)-1] != '{' {
		t.out = append(t.out, ',')
	}
}

func (t *ownerText) peek() byte {
	if t.at < len(t.in) {
		return t.in[t.at]
	}
	return 0
}

func (t *ownerText) take(c byte) bool {
	if t.peek() != c {
		return false
	}
	t.at++
	return true
}

// text consumes a text and returns what is between the quotes.
func (t *ownerText) text() ([]byte, bool) {
	if !t.take('"') {
		return nil, false
	}
	for start := t.at; ; t.at++ {
		n := bytes.IndexByte(t.in[t.at:], '"')
		if n < 0 {
			return nil, false
		}
		t.at += n
		slashes := 0
		for i := t.at - 1; i >= start && t.in[i] == '\\'; i-- {
			slashes++
		}
		if slashes%2 == 0 {
			t.at++
			return t.in[start : t.at-1], true
		}
	}
}

// members walks the members of an object whose brace was taken.
func (t *ownerText) members(each func(key []byte) bool) bool {
	if t.take('}') {
		return true
	}
	for {
		key, ok := t.text()
		if !ok || !t.take(':') || !each(key) {
			return false
		}
		if !t.take(',') {
			return t.take('}')
		}
	}
}

// field walks the value of a field. With keep its member is written.
func (t *ownerText) field(m *smd.Map, key []byte, keep bool) bool {
	ref := m.ElementType
	if f, ok := m.FindField(string(key)); ok {
		ref = f.Type
	} else if ref == (smd.TypeRef{}) {
		return false
	}
	if keep {
		t.out = append(append(append(t.out, `"f:`...), key...), `":`...)
	}
	return t.value(ref, keep)
}

// value walks a value. With keep, what is owned of it is written.
func (t *ownerText) value(ref smd.TypeRef, keep bool) bool {
	atom, ok := t.schema.Resolve(ref)
	if !ok || atom == (smd.Atom{}) {
		return false
	}
	switch t.peek() {
	case '{':
		return t.mapping(atom.Map, keep)
	case '[':
		return t.list(atom.List, keep)
	case 'n':
		t.leaf(keep)
		return t.word("null")
	}
	return atom.Scalar != nil && t.scalar(*atom.Scalar, keep)
}

// leaf writes what is owned of a leaf.
func (t *ownerText) leaf(keep bool) {
	if keep {
		t.out = append(t.out, `{}`...)
	}
}

func (t *ownerText) word(word string) bool {
	if !bytes.HasPrefix(t.in[t.at:], []byte(word)) {
		return false
	}
	t.at += len(word)
	return true
}

func (t *ownerText) scalar(scalar smd.Scalar, keep bool) bool {
	t.leaf(keep)
	switch c := t.peek(); {
	case c == '"':
		_, ok := t.text()
		return ok && (scalar == smd.String || scalar == smd.Untyped)
	case c == 't':
		return t.word("true") && (scalar == smd.Boolean || scalar == smd.Untyped)
	case c == 'f':
		return t.word("false") && (scalar == smd.Boolean || scalar == smd.Untyped)
	case c == '-' || c >= '0' && c <= '9':
		for c := t.peek(); c == '-' || c == '.' || c >= '0' && c <= '9'; c = t.peek() {
			t.at++
		}
		return scalar == smd.Numeric || scalar == smd.Untyped
	}
	return false
}

func (t *ownerText) mapping(m *smd.Map, keep bool) bool {
	if m == nil {
		return false
	}
	t.at++
	parts := keep && t.peek() != '}' && !isAtomic(m.ElementRelationship)
	if !parts {
		t.leaf(keep)
		return t.members(func(key []byte) bool { return t.field(m, key, false) })
	}
	t.out = append(t.out, `{".":{}`...)
	ok := t.members(func(key []byte) bool {
		t.out = append(t.out, ',')
		return t.field(m, key, true)
	})
	t.out = append(t.out, '}')
	return ok
}

func (t *ownerText) list(l *smd.List, keep bool) bool {
	if l == nil {
		return false
	}
	if !isAtomic(l.ElementRelationship) {
		return t.named(l, keep)
	}
	t.leaf(keep)
	t.at++
	if t.take(']') {
		return true
	}
	for {
		if !t.value(l.ElementType, false) {
			return false
		}
		if !t.take(',') {
			return t.take(']')
		}
	}
}

// named walks a list whose items have names, in whose order they are owned:
// decoded, for that takes sorting.
func (t *ownerText) named(l *smd.List, keep bool) bool {
	start := t.at
	if !t.skip() {
		return false
	}
	var items []any
	if kjson.UnmarshalCaseSensitivePreserveInts(t.in[start:t.at], &items) != nil {
		return false
	}
	owned, ok := t.ownerWalk.list(l, items, keep)
	if !ok || !keep {
		return ok
	}
	text, err := json.Marshal(owned)
	t.out = append(t.out, text...)
	return err == nil
}

// skip consumes a list or an object.
func (t *ownerText) skip() bool {
	for depth := 0; t.at < len(t.in); {
		switch t.in[t.at] {
		case '"':
			if _, ok := t.text(); !ok {
				return false
			}
			continue
		case '{', '[':
			depth++
		case '}', ']':
			depth--
		}
		if t.at++; depth == 0 {
			return true
		}
	}
	return false
}
