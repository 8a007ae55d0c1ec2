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

// metadataDepth is how deep the fields of an object's own metadata are.
const metadataDepth = 2

// metadata consumes metadata that does not change when it is decoded into
// metav1.ObjectMeta and encoded again: no field is unknown, null, empty or of another
// type, and times are in UTC and whole seconds. With needsGeneration there must be a
// generation.
func (w *walker) metadata(needsGeneration bool) bool {
	if w.Peek() != '{' {
		return false
	}
	generation := false
	for key := range w.members {
		generation = generation || string(key) == "generation"
		if !w.metadataField(string(key)) {
			return false
		}
	}
	return w.ok() && (generation || !needsGeneration)
}

func (w *walker) metadataField(name string) bool {
	switch name {
	case "name", "generateName", "namespace", "selfLink", "uid", "resourceVersion":
		return w.nonempty()
	case "generation":
		return w.positive()
	case "creationTimestamp":
		return w.from == Body && w.Depth() == metadataDepth && w.Null() || w.time()
	case "deletionTimestamp":
		return w.time()
	case "deletionGracePeriodSeconds":
		return w.whole()
	case "labels", "annotations":
		return w.filled('{') && w.texts()
	case "finalizers":
		return w.filled('[') && w.elementsAre(w.isText)
	case "ownerReferences":
		return w.filled('[') && w.elementsAre(w.ownerReference)
	case "managedFields":
		return w.filled('[') && w.elementsAre(w.managedFields)
	}
	return false
}

// texts consumes an object of strings.
func (w *walker) texts() bool {
	for range w.members {
		if !w.isText() {
			return false
		}
	}
	return w.ok()
}

// elementsAre consumes a list, and each element with consume.
func (w *walker) elementsAre(consume func() bool) bool {
	for range w.Elements {
		if !consume() {
			return false
		}
	}
	return w.ok()
}

// ownerReference consumes an element of ownerReferences.
func (w *walker) ownerReference() bool {
	required := 0
	for key := range w.members {
		var ok bool
		switch string(key) {
		case "apiVersion", "kind", "name", "uid":
			required++
			ok = w.isText()
		case "controller", "blockOwnerDeletion":
			ok = w.Literal("true") || w.Literal("false")
		}
		if !ok {
			return false
		}
	}
	return w.ok() && required == 4
}

// managedFields consumes an element of managedFields.
func (w *walker) managedFields() bool {
	for key := range w.members {
		var ok bool
		switch string(key) {
		case "manager", "operation", "apiVersion", "fieldsType", "subresource":
			ok = w.nonempty()
		case "time":
			ok = w.time()
		case "fieldsV1":
			ok = w.Peek() == '{' && w.fieldSet()
		}
		if !ok {
			return false
		}
	}
	return w.ok()
}

// fieldSet consumes an object that contains nothing but such objects.
func (w *walker) fieldSet() bool {
	for range w.members {
		if !w.fieldSet() {
			return false
		}
	}
	return w.ok()
}

// filled reports whether a list or object that is not empty comes next. open is its
// opening bracket.
func (w *walker) filled(open byte) bool {
	if w.Peek() != open {
		return false
	}
	at := w.Pos
	w.Pos++
	c := w.Peek()
	w.Pos = at
	return c != open+2 // the closing bracket in ASCII
}

// whole consumes an integer.
func (w *walker) whole() bool {
	start := w.Pos
	return w.number() && bytes.IndexByte(w.Data[start:w.Pos], '.') < 0
}

// positive consumes an integer above 0.
func (w *walker) positive() bool {
	c := w.Peek()
	return c >= '1' && c <= '9' && w.whole()
}

// time consumes a time in the form of isTime.
func (w *walker) time() bool {
	text, ok := w.text()
	return ok && isTime(text)
}

// isTime reports whether text is a time in UTC and whole seconds. It accepts neither the
// 29th of February nor years before 1000, which include the zero time.
func isTime(t []byte) bool {
	const shape = "2000-00-00T00:00:00Z"
	if len(t) != len(shape) {
		return false
	}
	for i := range len(shape) {
		digit := t[i] >= '0' && t[i] <= '9'
		if shape[i] >= '0' && shape[i] <= '9' != digit || !digit && t[i] != shape[i] {
			return false
		}
	}
	two := func(i int) int { return int(t[i]-'0')*10 + int(t[i+1]-'0') }
	century, month, day := two(0), two(5), two(8)
	return century >= 10 && month >= 1 && month <= 12 && day >= 1 && day <= daysOf(month) &&
		two(11) <= 23 && two(14) <= 59 && two(17) <= 59
}

// daysOf returns the number of days that a month has in every year.
func daysOf(month int) int {
	switch month {
	case 2:
		return 28
	case 4, 6, 9, 11:
		return 30
	}
	return 31
}
