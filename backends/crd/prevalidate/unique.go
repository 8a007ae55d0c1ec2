package prevalidate

import "bytes"

const (
	// maxMapKeys bounds the keys of the elements of a list map.
	maxMapKeys = 4
	// manyElements is the number of elements of a set or map up to which each is
	// compared with all others.
	manyElements = 128
)

// element is the text that must be unique among the elements of a list: the values
// of an element's keys, or the whole element. A missing key is an empty span.
type element [maxMapKeys]span

// element returns that text of the next element, without consuming it.
func (w *walker) element(r *rules) (e element, a answer) {
	at := w.Pos
	defer func() { w.Pos = at }()
	if r.isSet {
		e[0], a = w.comparable()
		return e, a
	}
	if w.Peek() != '{' {
		return e, unsure
	}
	a = yes
	for key := range w.Members {
		if key.Escaped {
			a = unsure
		}
		i := indexOf(r.uniqueKeys, key.Raw)
		if i < 0 {
			w.Skip()
			continue
		}
		var certain answer
		e[i], certain = w.comparable()
		a = min(a, certain)
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

// comparable consumes a value. The answer is yes if two such values are equal only
// when their texts are.
func (w *walker) comparable() (span, answer) {
	a := unsure
	first := w.Peek()
	start := w.Pos
	switch {
	case first == '"':
		if _, escaped, _ := w.String(); !escaped {
			a = yes
		}
	case first == '-' || first >= '0' && first <= '9':
		if _, integer, _ := w.Number(); integer {
			a = yes
		}
	case first == 't' || first == 'f':
		w.Skip()
		a = yes
	default:
		w.Skip()
	}
	return span{start, w.Pos}, a
}

// distinct validates that all elements since first are different.
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
