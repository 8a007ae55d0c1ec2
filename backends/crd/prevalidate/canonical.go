package prevalidate

import (
	"bytes"
	"errors"
)

// errUncertain ends a walk of well-formed text that is not certainly canonical.
var errUncertain = errors.New("not certain")

// unknownFields is what pruning does to fields that a schema does not declare.
type unknownFields uint8

const (
	pruned unknownFields = iota
	// kept is inherited by the elements of lists.
	kept
)

// object consumes the whole text, which must be an object with apiVersion and kind.
func (w *walker) object(n *node) bool {
	if n.opaque {
		return false
	}
	var identity uint8
	var seen uint64
	for key, escaped := range w.members {
		f, known := n.field(key, escaped)
		seen |= f.bit
		var ok bool
		switch string(key) {
		case "apiVersion":
			identity++
			ok = w.groupVersion()
		case "kind":
			identity++
			ok = w.nonempty()
		case "metadata":
			ok = w.metadata(w.from == Stored)
		default:
			// Some decoders ignore the case of these two.
			ok = !bytes.EqualFold(key, []byte("apiVersion")) && !bytes.EqualFold(key, []byte("kind")) &&
				w.member(n, f, known, escaped, n.unknown(pruned))
		}
		if !ok {
			return false
		}
	}
	w.noteDefaults(n, seen)
	return identity == 2 && w.End()
}

// field returns a declared or required field. Names with escapes are not found.
func (n *node) field(key []byte, escaped bool) (f field, known bool) {
	if escaped || n.fields == nil {
		return field{}, false
	}
	f = n.fields[string(key)]
	return f, f.node != nil
}

// unknown returns what pruning does to unknown fields of a value; inherited is what it
// does in the value around.
func (n *node) unknown(inherited unknownFields) unknownFields {
	if n.preserve {
		return kept
	}
	return inherited
}

// member consumes the value of a field.
func (w *walker) member(n *node, f field, known, escaped bool, unknown unknownFields) bool {
	switch {
	case known:
		return w.value(f.node, pruned)
	case escaped && n.fields != nil:
		// It may be a declared field with escapes in its name.
		return false
	case n.open:
		return w.value(n.extra, pruned)
	case unknown == kept:
		return w.free()
	}
	return false
}

// value consumes a value that pruning does not change and that defaults only add
// fields to; n is nil where there is no schema.
func (w *walker) value(n *node, unknown unknownFields) bool {
	if n != nil && n.opaque {
		return false
	}
	switch w.Peek() {
	case '{':
		if n == nil {
			return w.Take('{') && w.Take('}')
		}
		return w.fields(n, n.unknown(unknown))
	case '[':
		return w.list(n, unknown)
	case 'n':
		return (n == nil || n.nullable) && w.Null()
	}
	return w.scalar()
}

// fields consumes an object.
func (w *walker) fields(n *node, unknown unknownFields) bool {
	var seen uint64
	for key, escaped := range w.members {
		f, known := n.field(key, escaped)
		seen |= f.bit
		var ok bool
		switch name := string(key); {
		case n.embedded && (name == "apiVersion" || name == "kind"):
			ok = w.isText()
		case n.embedded && name == "metadata":
			ok = w.metadata(false)
		default:
			ok = w.member(n, f, known, escaped, unknown)
		}
		if !ok {
			return false
		}
	}
	w.noteDefaults(n, seen)
	return w.ok()
}

// noteDefaults records whether a field with a default is missing from seen.
func (w *walker) noteDefaults(n *node, seen uint64) {
	w.lacksDefaults = w.lacksDefaults || seen&n.defaulted != n.defaulted
}

// list consumes a list.
func (w *walker) list(n *node, unknown unknownFields) bool {
	var items *node
	if n != nil {
		items, unknown = n.items, n.unknown(unknown)
	}
	for range w.Elements {
		if items == nil && unknown == kept {
			if !w.free() {
				return false
			}
		} else if !w.value(items, unknown) {
			return false
		}
	}
	return w.ok()
}

// free consumes any value.
func (w *walker) free() bool {
	switch w.Peek() {
	case '{':
		for range w.members {
			if !w.free() {
				return false
			}
		}
		return w.ok()
	case '[':
		for range w.Elements {
			if !w.free() {
				return false
			}
		}
		return w.ok()
	case 'n':
		return w.Null()
	}
	return w.scalar()
}

// scalar consumes a string, a number or a boolean.
func (w *walker) scalar() bool {
	switch c := w.Peek(); {
	case c == '"':
		return w.isText()
	case c == '-' || c >= '0' && c <= '9':
		return w.number()
	}
	return w.Literal("true") || w.Literal("false")
}

// groupVersion consumes an apiVersion, with or without a group.
func (w *walker) groupVersion() bool {
	text, ok := w.text()
	return ok && len(text) > 0 && text[len(text)-1] != '/' && bytes.Count(text, []byte("/")) <= 1
}

// nonempty consumes a string that is not empty.
func (w *walker) nonempty() bool {
	text, ok := w.text()
	return ok && len(text) > 0
}
