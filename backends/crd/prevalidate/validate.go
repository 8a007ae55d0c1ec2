package prevalidate

import (
	"bytes"
	"math"
	"slices"
	"strconv"
	"unicode/utf8"

	"k8s.io/kube-openapi/pkg/validation/strfmt"

	"portico/resource/jsonscan"
)

const (
	// maxMapKeys bounds the keys of the elements of a list map.
	maxMapKeys = 4
	// manyElements is the number of elements of a set or map up to which each is
	// compared with all others.
	manyElements = 128
)

// The methods below are the second walk, of a text that the first walk has passed. They
// consume the value that they validate, and report whether it is certainly valid. Where
// they return false the position is undefined.

// validate validates the whole text.
func (w *walker) validate(n *node) bool {
	w.Pos, w.steps, w.elements = 0, MaxSteps, w.elements[:0]
	return w.valid(n)
}

// valid validates a value by a schema; everything is valid by nil.
func (w *walker) valid(n *node) bool {
	if n == nil {
		return w.Skip()
	}
	w.steps -= ValueSteps
	if n.unverified || w.steps < 0 {
		return false
	}
	first, start := w.Peek(), w.Pos
	if first == 'n' {
		return w.Null() && (n.rules == nil || n.enum == nil) && (n.nullable || n.types == anyType)
	}
	if !w.validByType(n, first) {
		return false
	}
	if n.rules == nil {
		return true
	}
	end := w.Pos
	at := func(n *node) bool { w.Pos = start; return w.valid(n) }
	for _, n := range n.allOf {
		if !at(n) {
			return false
		}
	}
	if len(n.anyOf) > 0 && !slices.ContainsFunc(n.anyOf, at) {
		return false
	}
	w.Pos = end
	return true
}

func (w *walker) validByType(n *node, first byte) bool {
	switch first {
	case '{':
		return w.validObject(n)
	case '[':
		return w.validList(n)
	case '"':
		return w.validString(n)
	case 't', 'f':
		return w.Skip() && n.types&booleanType != 0 && (n.rules == nil || n.enum == nil)
	}
	return w.validNumber(n)
}

func (w *walker) validObject(n *node) bool {
	if n.types&objectType == 0 || n.rules != nil && n.enum != nil {
		return false
	}
	count, seen := int64(0), uint64(0)
	for key := range w.Members {
		count++
		if key.Escaped && n.fields != nil {
			return false
		}
		f, known := n.field(key.Raw, key.Escaped)
		seen |= f.bit
		value := f.node
		if !known {
			value = n.extra
		}
		if !w.valid(value) {
			return false
		}
	}
	return seen&n.required == n.required && exactlyOne(n.oneOf, seen) && (n.rules == nil || within(count, n.minProperties, n.maxProperties))
}

// exactlyOne reports whether exactly one of the sets was seen; true if there are none.
func exactlyOne(sets []uint64, seen uint64) bool {
	count := 0
	for _, set := range sets {
		if seen&set == set {
			count++
		}
	}
	return count == 1 || len(sets) == 0
}

func within(n int64, least, most *int64) bool {
	return (least == nil || n >= *least) && (most == nil || n <= *most)
}

func (w *walker) validList(n *node) bool {
	if n.types&arrayType == 0 || n.rules != nil && n.enum != nil {
		return false
	}
	first, count := len(w.elements), int64(0)
	defer func() { w.elements = w.elements[:first] }()
	unique := n.rules != nil && (n.isSet || len(n.mapKeys) > 0)
	for range w.Elements {
		count++
		if unique {
			e, ok := w.element(n.rules)
			if !ok {
				return false
			}
			w.elements = append(w.elements, e)
		}
		if !w.valid(n.items) {
			return false
		}
	}
	return n.rules == nil || within(count, n.minItems, n.maxItems) && (!unique || w.distinct(first))
}

func (w *walker) validString(n *node) bool {
	raw, escaped, _ := w.String()
	if n.types&stringType == 0 {
		return false
	}
	r := n.rules
	if r == nil {
		return true
	}
	text := jsonscan.Unquote(raw, escaped)
	w.steps -= PatternSteps(r.instructions, len(text))
	if r.format != "" {
		w.steps -= FormatSteps * len(text)
	}
	if w.steps < 0 {
		return false
	}
	switch {
	case r.enum != nil && !r.enum[string(text)],
		(r.minLength != nil || r.maxLength != nil) && !within(int64(utf8.RuneCount(text)), r.minLength, r.maxLength),
		r.pattern != nil && !r.pattern.Match(text):
		return false
	}
	return r.format == "" || r.format == "date-time" && isTime(text) || strfmt.Default.Validates(r.format, string(text))
}

func (w *walker) validNumber(n *node) bool {
	text, integer, _ := w.Number()
	want := integerType
	if !integer {
		want = fractionType
	}
	if n.types&want == 0 || len(text) > maxDigits {
		return false
	}
	r := n.rules
	if r == nil {
		return true
	}
	if r.enum != nil || r.numbers == nil {
		return r.enum == nil
	}
	value, err := strconv.ParseFloat(string(text), 64)
	return err == nil && r.numbers.allow(value)
}

func (l *limits) allow(value float64) bool {
	switch {
	case l.int32 && (value < math.MinInt32 || value > math.MaxInt32),
		value < l.minimum, value == l.minimum && l.exclusiveMinimum,
		value > l.maximum, value == l.maximum && l.exclusiveMaximum,
		l.multipleOf != 0 && math.Mod(value, l.multipleOf) != 0:
		return false
	}
	return true
}

// element is the text that must be unique among the elements of a list: the values of
// the element's keys, or the whole element. A missing key is an empty span.
type element [maxMapKeys]span

// element returns that text of the next element, without consuming it. It reports
// whether two elements are equal only if their texts are.
func (w *walker) element(r *rules) (e element, ok bool) {
	at := w.Pos
	defer func() { w.Pos = at }()
	if r.isSet {
		e[0], ok = w.comparable()
		return e, ok
	}
	if w.Peek() != '{' {
		return e, false
	}
	for key := range w.Members {
		i := slices.Index(r.mapKeys, string(key.Raw))
		if key.Escaped {
			return e, false
		} else if i < 0 {
			w.Skip()
		} else if e[i], ok = w.comparable(); !ok {
			return e, false
		}
	}
	return e, true
}

// comparable consumes a value. It reports whether such values are equal only if their
// texts are: strings without escapes, integers and booleans.
func (w *walker) comparable() (value span, ok bool) {
	first, start := w.Peek(), w.Pos
	switch {
	case first == '"':
		_, escaped, _ := w.String()
		ok = !escaped
	case first == '-' || first >= '0' && first <= '9':
		_, ok, _ = w.Number()
	case first == 't' || first == 'f':
		ok = w.Skip()
	}
	return span{start, w.Pos}, ok
}

// distinct reports whether all elements since first are different.
func (w *walker) distinct(first int) bool {
	elements := w.elements[first:]
	if len(elements) > manyElements {
		return false
	}
	for i, a := range elements {
		for _, b := range elements[:i] {
			if w.same(a, b) {
				return false
			}
		}
	}
	return true
}

func (w *walker) same(a, b element) bool {
	for i := range a {
		if !bytes.Equal(w.of(a[i]), w.of(b[i])) {
			return false
		}
	}
	return true
}
