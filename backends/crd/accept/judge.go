package accept

import "bytes"

// answer is whether a schema is content with a value. The lowest of several is
// their conjunction.
type answer uint8

const (
	no answer = iota
	unsure
	yes
)

func answerOf(ok bool) answer {
	if ok {
		return yes
	}
	return no
}

// The methods below read a text that was walked before, so that nothing in it
// is malformed. They consume the value that they judge.

// judge judges the whole text.
func (w *walker) judge(n *node) answer {
	w.pos, w.elements = 0, w.elements[:0]
	return w.judged(n)
}

// judged judges a value by a schema; nil is content with everything.
func (w *walker) judged(n *node) answer {
	if n == nil {
		w.skip()
		return yes
	}
	if n.blurred {
		w.skip()
		return unsure
	}
	first := w.peek()
	start := w.pos
	if first == 'n' {
		w.pos += len("null")
		return n.judgeNull()
	}
	own := w.judgeItself(n, first)
	if n.rules == nil || own == no {
		return own
	}
	end := w.pos
	own = min(own, w.junctors(n.rules, start))
	w.pos = end
	return own
}

// judgeNull is the answer to null, which nothing but its kind is asked of.
func (n *node) judgeNull() answer {
	switch {
	case n.rules != nil && n.enum != nil:
		return unsure
	case n.nullable || n.kinds == anything:
		return yes
	}
	return no
}

func (w *walker) judgeItself(n *node, first byte) answer {
	switch first {
	case '{':
		return w.judgeObject(n)
	case '[':
		return w.judgeList(n)
	case '"':
		return w.judgeText(n)
	case 't', 'f':
		value := w.literal("true") || !w.literal("false")
		if n.kinds&aBool == 0 {
			return no
		}
		return answerOf(n.rules == nil || n.enum == nil || n.enum.bools>>bit(value)&1 == 1)
	}
	return w.judgeNumber(n)
}

// junctors judges the value at start by the schemas that it is also held to.
func (w *walker) junctors(r *rules, start int) answer {
	all := yes
	for _, n := range r.allOf {
		w.pos = start
		all = min(all, w.judged(n))
	}
	if len(r.anyOf) > 0 {
		best := no
		for _, n := range r.anyOf {
			w.pos = start
			best = max(best, w.judged(n))
		}
		all = min(all, best)
	}
	if len(r.oneOf) > 0 {
		all = min(all, w.exactlyOne(r.oneOf, start))
	}
	if r.not != nil {
		w.pos = start
		all = min(all, yes-w.judged(r.not))
	}
	return all
}

func (w *walker) exactlyOne(of []*node, start int) answer {
	var counts [yes + 1]int
	for _, n := range of {
		w.pos = start
		counts[w.judged(n)]++
	}
	switch {
	case counts[yes] > 1 || counts[yes]+counts[unsure] == 0:
		return no
	case counts[unsure] > 0:
		return unsure
	}
	return yes
}

// judgeObject judges an object.
func (w *walker) judgeObject(n *node) answer {
	if n.kinds&anObject == 0 {
		w.skip()
		return no
	}
	all, count, seen, named := yes, int64(0), uint64(0), 0
	w.pos++
	for ; w.peek() != '}'; count++ {
		if w.peek() == ',' {
			w.pos++
		}
		key, escaped := w.knownText()
		w.take(':')
		f, known := n.field(key, escaped)
		if seen |= f.bit; escaped && n.fields != nil {
			all = min(all, unsure)
		}
		if n.embedded {
			a, is := w.judgeIdentity(key)
			if all = min(all, a); is {
				named++
			}
		}
		value := f.node
		if !known {
			value = n.extra
		}
		all = min(all, w.judged(value))
	}
	w.pos++
	if seen&n.required != n.required || n.embedded && named != 2 {
		return no
	}
	if r := n.rules; r != nil && (r.minProperties != nil && count < *r.minProperties || r.maxProperties != nil && count > *r.maxProperties) {
		return no
	}
	if n.rules != nil && n.enum != nil {
		return min(all, unsure)
	}
	return all
}

// judgeList judges a list.
func (w *walker) judgeList(n *node) answer {
	if n.kinds&anArray == 0 {
		w.skip()
		return no
	}
	all, count, first := yes, int64(0), len(w.elements)
	unique := n.rules != nil && (n.isSet || len(n.uniqueKeys) > 0)
	w.pos++
	for ; w.peek() != ']'; count++ {
		if w.peek() == ',' {
			w.pos++
			w.space()
		}
		if unique {
			e, a := w.element(n.rules)
			all = min(all, a)
			w.elements = append(w.elements, e)
		}
		all = min(all, w.judged(n.items))
	}
	w.pos++
	if unique {
		all = min(all, w.distinct(first))
		w.elements = w.elements[:first]
	}
	if r := n.rules; r != nil && (r.minItems != nil && count < *r.minItems || r.maxItems != nil && count > *r.maxItems) {
		return no
	}
	if n.rules != nil && n.enum != nil {
		return min(all, unsure)
	}
	return all
}

// knownText consumes a text that was walked before.
func (w *walker) knownText() (raw []byte, escaped bool) {
	w.space()
	w.pos++
	start := w.pos
	for {
		i := bytes.IndexByte(w.data[w.pos:], '"')
		piece := w.data[w.pos : w.pos+i]
		at := bytes.IndexByte(piece, '\\')
		if at < 0 {
			w.pos += i + 1
			return w.data[start : w.pos-1], escaped
		}
		escaped = true
		w.pos += at + 2
	}
}

// skip consumes a value.
func (w *walker) skip() {
	depth := 0
	for {
		switch w.peek() {
		case '"':
			w.knownText()
		case '{', '[':
			depth++
			w.pos++
			continue
		case '}', ']':
			depth--
			w.pos++
		case ',', ':':
			w.pos++
			continue
		default:
			w.word()
		}
		if depth == 0 {
			return
		}
	}
}

// word consumes a number or a literal.
func (w *walker) word() []byte {
	start := w.pos
	for w.pos < len(w.data) {
		switch w.data[w.pos] {
		case ',', ']', '}', ' ', '\n', '\t', '\r':
			return w.data[start:w.pos]
		}
		w.pos++
	}
	return w.data[start:]
}
