package accept

import "bytes"

// fate is what pruning does to fields that a schema does not name.
type fate uint8

const (
	// pruned: they go.
	pruned fate = iota
	// kept: they stay, which lists hand on to their elements.
	kept
)

// object consumes the whole text, which is an object of a kind.
func (w *walker) object(n *node) bool {
	if n.opaque {
		return false
	}
	var named uint8
	var seen uint64
	ok := w.members(func(key []byte, escaped bool) bool {
		f, known := n.field(key, escaped)
		seen |= f.bit
		switch string(key) {
		case "apiVersion":
			named++
			return w.groupVersion()
		case "kind":
			named++
			return w.nonempty()
		case "metadata":
			return w.metadata(w.from == Stored)
		}
		if bytes.EqualFold(key, []byte("apiVersion")) || bytes.EqualFold(key, []byte("kind")) {
			// Some decoders take these in other letters for the same.
			return false
		}
		return w.member(n, f, known, escaped, fateOf(n, pruned))
	})
	w.space()
	w.lack(n, seen)
	return ok && named == 2 && w.pos == len(w.data)
}

// field finds a property, or a name that is required. Names have no escapes.
func (n *node) field(key []byte, escaped bool) (f field, known bool) {
	if escaped || n.fields == nil {
		return field{}, false
	}
	f = n.fields[string(key)]
	return f, f.node != nil
}

func fateOf(n *node, f fate) fate {
	if n.preserve {
		return kept
	}
	return f
}

// member consumes the value of a field.
func (w *walker) member(n *node, f field, known, escaped bool, unknown fate) bool {
	switch {
	case known:
		return w.value(f.node, pruned)
	case escaped && n.fields != nil:
		// It may be a property, written in another way.
		return false
	case n.open:
		return w.value(n.extra, pruned)
	case unknown == kept:
		return w.free()
	}
	return false
}

// value consumes a value that pruning does not change, nor defaults but by
// adding fields; n is nil where there is no schema.
func (w *walker) value(n *node, unknown fate) bool {
	if n != nil && n.opaque {
		return false
	}
	switch w.peek() {
	case '{':
		if n == nil {
			return w.take('{') && w.take('}')
		}
		return w.fields(n, fateOf(n, unknown))
	case '[':
		return w.elementsOf(n, unknown)
	case 'n':
		return (n == nil || n.nullable) && w.literal("null")
	}
	return w.scalar()
}

// fields consumes an object.
func (w *walker) fields(n *node, unknown fate) bool {
	var seen uint64
	ok := w.members(func(key []byte, escaped bool) bool {
		f, known := n.field(key, escaped)
		seen |= f.bit
		if n.embedded {
			switch string(key) {
			case "apiVersion", "kind":
				_, _, ok := w.text()
				return ok
			case "metadata":
				return w.metadata(false)
			}
		}
		return w.member(n, f, known, escaped, unknown)
	})
	w.lack(n, seen)
	return ok
}

// lack notes defaults of fields that were not seen.
func (w *walker) lack(n *node, seen uint64) {
	w.lacking = w.lacking || seen&n.defaulted != n.defaulted
}

// elementsOf consumes a list.
func (w *walker) elementsOf(n *node, unknown fate) bool {
	var items *node
	if n != nil {
		items, unknown = n.items, fateOf(n, unknown)
	}
	return w.list(func() bool {
		if items == nil && unknown == kept {
			return w.free()
		}
		return w.value(items, unknown)
	})
}

// free consumes any value.
func (w *walker) free() bool {
	switch w.peek() {
	case '{':
		return w.members(func([]byte, bool) bool { return w.free() })
	case '[':
		return w.list(w.free)
	case 'n':
		return w.literal("null")
	}
	return w.scalar()
}

// scalar consumes a text, a number or a truth value.
func (w *walker) scalar() bool {
	switch c := w.peek(); {
	case c == '"':
		_, _, ok := w.text()
		return ok
	case c == 't':
		return w.literal("true")
	case c == 'f':
		return w.literal("false")
	case c == '-' || c >= '0' && c <= '9':
		return w.number()
	}
	return false
}

// groupVersion consumes the text of a version, with or without a group.
func (w *walker) groupVersion() bool {
	s, _, ok := w.text()
	text := w.of(s)
	return ok && len(text) > 0 && text[len(text)-1] != '/' && bytes.Count(text, []byte("/")) <= 1
}

// nonempty consumes a text that is not empty.
func (w *walker) nonempty() bool {
	s, _, ok := w.text()
	return ok && s.end > s.start
}
