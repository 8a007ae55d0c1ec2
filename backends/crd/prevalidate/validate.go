package prevalidate

import "portico/resource/jsonscan"

// answer is whether a value is valid by a schema. The lowest of several is their
// conjunction.
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

// The methods below are the second walk: the text was walked before, so that its
// syntax is right. They consume the value that they validate.

// validate validates the whole text.
func (w *walker) validate(n *node) answer {
	w.Pos, w.elements = 0, w.elements[:0]
	return w.valid(n)
}

// valid validates a value by a schema; nil is valid for everything.
func (w *walker) valid(n *node) answer {
	if n == nil {
		w.Skip()
		return yes
	}
	if n.blurred {
		w.Skip()
		return unsure
	}
	first := w.Peek()
	start := w.Pos
	if first == 'n' {
		w.Null()
		return n.validNull()
	}
	result := w.validByKind(n, first)
	if n.rules == nil || result == no {
		return result
	}
	end := w.Pos
	result = min(result, w.validByJunctors(n.rules, start))
	w.Pos = end
	return result
}

// validNull validates null, of which only the kind counts.
func (n *node) validNull() answer {
	switch {
	case n.rules != nil && n.enum != nil:
		return unsure
	case n.nullable || n.kinds == anything:
		return yes
	}
	return no
}

func (w *walker) validByKind(n *node, first byte) answer {
	switch first {
	case '{':
		return w.validObject(n)
	case '[':
		return w.validList(n)
	case '"':
		return w.validText(n)
	case 't', 'f':
		value := w.Literal("true") || !w.Literal("false")
		if n.kinds&aBool == 0 {
			return no
		}
		return answerOf(n.rules == nil || n.enum == nil || n.enum.bools>>bit(value)&1 == 1)
	}
	return w.validNumber(n)
}

// validByJunctors validates the value at start by allOf, anyOf, oneOf and not.
func (w *walker) validByJunctors(r *rules, start int) answer {
	all := yes
	for _, n := range r.allOf {
		w.Pos = start
		all = min(all, w.valid(n))
	}
	if len(r.anyOf) > 0 {
		best := no
		for _, n := range r.anyOf {
			w.Pos = start
			best = max(best, w.valid(n))
		}
		all = min(all, best)
	}
	if len(r.oneOf) > 0 {
		all = min(all, w.exactlyOne(r.oneOf, start))
	}
	if r.not != nil {
		w.Pos = start
		all = min(all, yes-w.valid(r.not))
	}
	return all
}

func (w *walker) exactlyOne(of []*node, start int) answer {
	var counts [yes + 1]int
	for _, n := range of {
		w.Pos = start
		counts[w.valid(n)]++
	}
	switch {
	case counts[yes] > 1 || counts[yes]+counts[unsure] == 0:
		return no
	case counts[unsure] > 0:
		return unsure
	}
	return yes
}

func (w *walker) validObject(n *node) answer {
	if n.kinds&anObject == 0 {
		w.Skip()
		return no
	}
	all, count, seen, identity := yes, int64(0), uint64(0), 0
	for key := range w.Members {
		count++
		f, known := n.field(key.Raw, key.Escaped)
		if seen |= f.bit; key.Escaped && n.fields != nil {
			all = min(all, unsure)
		}
		if n.embedded {
			a, required := w.validIdentity(key)
			if all = min(all, a); required {
				identity++
			}
		}
		value := f.node
		if !known {
			value = n.extra
		}
		all = min(all, w.valid(value))
	}
	if seen&n.required != n.required || n.embedded && identity != 2 {
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

func (w *walker) validList(n *node) answer {
	if n.kinds&anArray == 0 {
		w.Skip()
		return no
	}
	all, count, first := yes, int64(0), len(w.elements)
	unique := n.rules != nil && (n.isSet || len(n.uniqueKeys) > 0)
	for range w.Elements {
		count++
		if unique {
			e, a := w.element(n.rules)
			all = min(all, a)
			w.elements = append(w.elements, e)
		}
		all = min(all, w.valid(n.items))
	}
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

// unquoted consumes a string and returns its value.
func (w *walker) unquoted() []byte {
	raw, escaped, _ := w.String()
	return jsonscan.Unquote(raw, escaped)
}
