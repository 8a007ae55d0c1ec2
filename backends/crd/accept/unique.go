package accept

import "bytes"

const (
	// maxMapKeys bounds the keys that the elements of a list map are told apart
	// by.
	maxMapKeys = 4
	// manyElements is the number of elements of a set or map up to which each is
	// compared with all others.
	manyElements = 128
)

// element is what an element of a list is told apart by: the texts of its keys,
// or of the whole element. A key that is not there is an empty piece.
type element [maxMapKeys]span

// element finds out what the next element of a set or a map is told apart by.
// It consumes nothing.
func (w *walker) element(r *rules) (e element, a answer) {
	at := w.pos
	defer func() { w.pos = at }()
	if r.isSet {
		e[0], a = w.comparable()
		return e, a
	}
	if w.peek() != '{' {
		return e, unsure
	}
	a = yes
	w.pos++
	for w.peek() != '}' {
		if w.peek() == ',' {
			w.pos++
		}
		key, escaped := w.knownText()
		w.take(':')
		if escaped {
			a = unsure
		}
		i := indexOf(r.uniqueKeys, key)
		if i < 0 {
			w.skip()
			continue
		}
		var sure answer
		e[i], sure = w.comparable()
		a = min(a, sure)
	}
	return e, a
}

func indexOf(names []string, name []byte) int {
	for i, n := range names {
		if n == string(name) {
			return i
		}
	}
	return -1
}

// comparable consumes a value. It is sure of those that are the same only if
// they are written the same.
func (w *walker) comparable() (span, answer) {
	a := unsure
	w.space()
	start := w.pos
	switch c := w.data[w.pos]; {
	case c == '"':
		if _, escaped := w.knownText(); !escaped {
			a = yes
		}
	case c == '-' || c >= '0' && c <= '9':
		if text := w.word(); bytes.IndexByte(text, '.') < 0 {
			a = yes
		}
	case c == 't' || c == 'f':
		w.word()
		a = yes
	default:
		w.skip()
	}
	return span{start, w.pos}, a
}

// distinct reports whether all elements since first are different.
func (w *walker) distinct(first int) answer {
	elements := w.elements[first:]
	if len(elements) > manyElements {
		return unsure
	}
	for i, a := range elements {
		for _, b := range elements[:i] {
			if w.same(a, b) {
				return no
			}
		}
	}
	return yes
}

func (w *walker) same(a, b element) bool {
	for i := range a {
		if !bytes.Equal(w.of(a[i]), w.of(b[i])) {
			return false
		}
	}
	return true
}
