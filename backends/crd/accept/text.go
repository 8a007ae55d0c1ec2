package accept

import (
	"bytes"
	"unicode/utf8"
)

// maxDepth bounds the nesting that is walked. Upstream takes far more; real
// objects are a fraction of it.
const maxDepth = 64

// manyKeys is the number of keys of one object up to which each is compared
// with all before it, where they are not in order.
const manyKeys = 32

// span is a piece of the text.
type span struct{ start, end int }

// walker walks one text. Its methods consume white space in front of what they
// read, and return false at the first doubt; then where it stands is undefined.
type walker struct {
	data []byte
	pos  int
	from Origin
	// depth is the number of objects and lists around.
	depth int
	// lacking says that a field is not there that has a default.
	lacking bool
	// keys are those of the objects around that may have to be compared.
	keys []span
	// scratch holds texts without their escapes, elements the keys of list
	// elements.
	scratch  []byte
	elements []element
}

func (w *walker) begin(data []byte, from Origin) {
	w.data, w.pos, w.from, w.depth, w.lacking = data, 0, from, 0, false
	w.keys, w.elements = w.keys[:0], w.elements[:0]
}

// end lets go of the text.
func (w *walker) end() { w.data = nil }

func (w *walker) space() {
	for w.pos < len(w.data) {
		switch w.data[w.pos] {
		case ' ', '\n', '\t', '\r':
			w.pos++
		default:
			return
		}
	}
}

// peek returns the next byte that is not white space; 0 at the end.
func (w *walker) peek() byte {
	if w.pos < len(w.data) && w.data[w.pos] > ' ' {
		return w.data[w.pos]
	}
	w.space()
	if w.pos < len(w.data) {
		return w.data[w.pos]
	}
	return 0
}

// take consumes the byte c.
func (w *walker) take(c byte) bool {
	if w.peek() != c {
		return false
	}
	w.pos++
	return true
}

// literal consumes a word.
func (w *walker) literal(word string) bool {
	if len(w.data)-w.pos < len(word) || string(w.data[w.pos:w.pos+len(word)]) != word {
		return false
	}
	w.pos += len(word)
	return true
}

// plain has the bytes that stand for themselves in a text.
var plain = func() (t [256]bool) {
	for c := range t {
		t[c] = c >= 0x20 && c < utf8.RuneSelf && c != '"' && c != '\\'
	}
	return t
}()

// text consumes a text. Surrogate escapes, control characters and invalid
// UTF-8, which decoders replace, are doubts.
func (w *walker) text() (s span, escaped, ok bool) {
	if !w.take('"') {
		return s, false, false
	}
	start, wide := w.pos, false
	for w.pos < len(w.data) {
		c := w.data[w.pos]
		switch {
		case plain[c]:
			w.pos++
		case c == '"':
			s = span{start, w.pos}
			w.pos++
			return s, escaped, !wide || utf8.Valid(w.of(s))
		case c == '\\':
			escaped = true
			n := escapeLength(w.data[w.pos:])
			if n == 0 {
				return s, false, false
			}
			w.pos += n
		case c < 0x20:
			return s, false, false
		default:
			wide = true
			w.pos++
		}
	}
	return s, false, false
}

// of is a piece of the text.
func (w *walker) of(s span) []byte { return w.data[s.start:s.end] }

// escapeLength is the length of the escape at the beginning; 0: it is none, or
// one of a pair.
func escapeLength(data []byte) int {
	if len(data) < 2 {
		return 0
	}
	switch data[1] {
	case '"', '\\', '/', 'b', 'f', 'n', 'r', 't':
		return 2
	case 'u':
		if r, ok := hexRune(data[2:]); ok && (r < 0xd800 || r > 0xdfff) {
			return 6
		}
	}
	return 0
}

// hexRune reads four hexadecimal digits.
func hexRune(data []byte) (r rune, ok bool) {
	if len(data) < 4 {
		return 0, false
	}
	for _, c := range data[:4] {
		switch {
		case c >= '0' && c <= '9':
			r = r<<4 | rune(c-'0')
		case c >= 'a' && c <= 'f':
			r = r<<4 | rune(c-'a'+10)
		case c >= 'A' && c <= 'F':
			r = r<<4 | rune(c-'A'+10)
		default:
			return 0, false
		}
	}
	return r, true
}

// key consumes the key of a member and the colon. One with an escape that could
// be written otherwise is a doubt: keys are compared as they are written.
func (w *walker) key() (s span, escaped, ok bool) {
	s, escaped, ok = w.text()
	if !ok || escaped && ambiguous(w.of(s)) {
		return s, escaped, false
	}
	return s, escaped, w.take(':')
}

// ambiguous reports whether a text has an escape of what need not be one.
func ambiguous(raw []byte) bool {
	for i := 0; i < len(raw); i++ {
		if raw[i] == '\\' {
			i++
			if raw[i] == 'u' || raw[i] == '/' {
				return true
			}
		}
	}
	return false
}

// members walks the members of an object; each must consume the value. A key
// that is there twice is a doubt.
func (w *walker) members(each func(key []byte, escaped bool) bool) bool {
	return w.open('{') && (w.take('}') || w.eachMember(each)) && w.close()
}

func (w *walker) eachMember(each func(key []byte, escaped bool) bool) bool {
	first := len(w.keys)
	var last []byte
	ordered := true
	for {
		key, escaped, ok := w.key()
		if !ok {
			return false
		}
		raw := w.of(key)
		if ordered = ordered && (len(w.keys) == first || bytes.Compare(last, raw) < 0); !ordered && w.known(first, raw) {
			return false
		}
		last = raw
		w.keys = append(w.keys, key)
		if !each(raw, escaped) {
			return false
		}
		switch w.peek() {
		case ',':
			w.pos++
		case '}':
			w.pos++
			w.keys = w.keys[:first]
			return true
		default:
			return false
		}
	}
}

// known reports whether a key is among those since first, or that cannot be
// told cheaply.
func (w *walker) known(first int, key []byte) bool {
	if len(w.keys)-first > manyKeys {
		return true
	}
	for _, k := range w.keys[first:] {
		if bytes.Equal(w.data[k.start:k.end], key) {
			return true
		}
	}
	return false
}

// list walks the elements of a list; each must consume one.
func (w *walker) list(each func() bool) bool {
	return w.open('[') && (w.take(']') || w.eachElement(each)) && w.close()
}

func (w *walker) eachElement(each func() bool) bool {
	for {
		if !each() {
			return false
		}
		switch w.peek() {
		case ',':
			w.pos++
		case ']':
			w.pos++
			return true
		default:
			return false
		}
	}
}

func (w *walker) open(c byte) bool {
	w.depth++
	return w.depth <= maxDepth && w.take(c)
}

func (w *walker) close() bool {
	w.depth--
	return true
}

// number consumes a number that is the same after it was read and written: a
// whole one that fits 64 bits, or one with a fraction that few enough digits
// make exact.
func (w *walker) number() bool {
	negative := w.data[w.pos] == '-'
	if negative {
		w.pos++
	}
	first := w.pos
	whole := w.digits()
	if whole == 0 || whole > 1 && w.data[first] == '0' {
		return false
	}
	if w.at('.') {
		w.pos++
		n := w.digits()
		return n > 0 && whole+n <= maxDigits && w.data[w.pos-1] != '0' && !w.at('e') && !w.at('E')
	}
	zero := w.data[first] == '0'
	return whole <= maxWhole && !(negative && zero) && !w.at('e') && !w.at('E')
}

// at reports whether the next byte is c, white space not skipped.
func (w *walker) at(c byte) bool { return w.pos < len(w.data) && w.data[w.pos] == c }

const (
	// maxWhole digits fit 64 bits, whatever they are; as many as maxDigits are
	// told apart by a float64.
	maxWhole  = 18
	maxDigits = 15
)

func (w *walker) digits() int {
	start := w.pos
	for w.pos < len(w.data) && w.data[w.pos] >= '0' && w.data[w.pos] <= '9' {
		w.pos++
	}
	return w.pos - start
}
