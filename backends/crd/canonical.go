package crd

import (
	"bytes"
	"slices"
	"strconv"
)

// canon rewrites JSON text, which the acceptor has found sound, as appendJSON
// would write what is decoded from it: without white space, keys in order. No
// value is made on the way: text is copied. Its methods return false where that
// cannot be done; decoding can.
type canon struct {
	in  []byte
	at  int
	out []byte
	// members are those of the objects around that were written so far.
	members []piece
	// spare is where members wait while they are put in order; content is a
	// draft's.
	spare, content []byte
}

// piece is a member in canon's output: its key without quotes, and its end.
// It begins with the quote before the key.
type piece struct{ key, keyEnd, end int }

// maxCanonDepth bounds the nesting; the acceptor takes less.
const maxCanonDepth = 100

func (c *canon) peek() byte {
	for c.at < len(c.in) {
		switch c.in[c.at] {
		case ' ', '\t', '\n', '\r':
			c.at++
		default:
			return c.in[c.at]
		}
	}
	return 0
}

func (c *canon) take(b byte) bool {
	if c.peek() != b {
		return false
	}
	c.at++
	return true
}

// value appends the next value.
func (c *canon) value(depth int) bool {
	if depth > maxCanonDepth {
		return false
	}
	switch c.peek() {
	case '{':
		return c.object(depth)
	case '[':
		return c.array(depth)
	case '"':
		return c.text()
	case 't':
		return c.word("true")
	case 'f':
		return c.word("false")
	case 'n':
		return c.word("null")
	}
	return c.number()
}

func (c *canon) word(word string) bool {
	if !bytes.HasPrefix(c.in[c.at:], []byte(word)) {
		return false
	}
	c.at += len(word)
	c.out = append(c.out, word...)
	return true
}

func (c *canon) array(depth int) bool {
	c.at++
	c.out = append(c.out, '[')
	for first := true; !c.take(']'); first = false {
		if !first {
			if !c.take(',') {
				return false
			}
			c.out = append(c.out, ',')
		}
		if !c.value(depth + 1) {
			return false
		}
	}
	c.out = append(c.out, ']')
	return true
}

func (c *canon) object(depth int) bool {
	c.at++
	c.out = append(c.out, '{')
	first, start, ordered := len(c.members), len(c.out), true
	for !c.take('}') {
		if len(c.members) > first {
			if !c.take(',') {
				return false
			}
			c.out = append(c.out, ',')
		}
		key, ok := c.key()
		if !ok || !c.value(depth+1) {
			return false
		}
		key.end = len(c.out)
		if n := len(c.members); n > first && ordered {
			ordered = bytes.Compare(c.keyOf(c.members[n-1]), c.keyOf(key)) < 0
		}
		c.members = append(c.members, key)
	}
	if !ordered && !c.sort(start, c.members[first:]) {
		return false
	}
	c.members = c.members[:first]
	c.out = append(c.out, '}')
	return true
}

func (c *canon) keyOf(p piece) []byte { return c.out[p.key:p.keyEnd] }

// sort puts the members written from start on in order; false is a key that is
// there twice.
func (c *canon) sort(start int, members []piece) bool {
	slices.SortFunc(members, func(a, b piece) int { return bytes.Compare(c.keyOf(a), c.keyOf(b)) })
	for i := range members[1:] {
		if bytes.Equal(c.keyOf(members[i]), c.keyOf(members[i+1])) {
			return false
		}
	}
	c.spare = append(c.spare[:0], c.out[start:]...)
	c.out = c.out[:start]
	for i, m := range members {
		if i > 0 {
			c.out = append(c.out, ',')
		}
		c.out = append(c.out, c.spare[m.key-1-start:m.end-start]...)
	}
	return true
}

// key appends a key and the colon. One that is not the same bytes in every
// writing of it is left to others.
func (c *canon) key() (piece, bool) {
	if c.peek() != '"' {
		return piece{}, false
	}
	n := plainLength(c.in[c.at+1:])
	end := c.at + 1 + n
	if end >= len(c.in) || c.in[end] != '"' {
		return piece{}, false
	}
	p := piece{key: len(c.out) + 1, keyEnd: len(c.out) + 1 + n}
	c.out = append(c.out, c.in[c.at:end+1]...)
	c.at = end + 1
	if !c.take(':') {
		return piece{}, false
	}
	c.out = append(c.out, ':')
	return p, true
}

// text appends a text.
func (c *canon) text() bool {
	start := c.at
	c.at += 1 + plainLength(c.in[c.at+1:])
	if c.at < len(c.in) && c.in[c.at] == '"' {
		c.at++
		c.out = append(c.out, c.in[start:c.at]...)
		return true
	}
	for ; c.at < len(c.in); c.at++ {
		switch c.in[c.at] {
		case '\\':
			c.at++
		case '"':
			c.at++
			text, ok := unquote(string(c.in[start:c.at]))
			if !ok {
				return false
			}
			var err error
			c.out, err = appendText(c.out, text)
			return err == nil
		}
	}
	return false
}

// plainLength is how many letters there are that stand for themselves wherever
// JSON is written.
func plainLength(text []byte) int {
	for i, b := range text {
		if b < ' ' || b >= 0x7f || b == '"' || b == '\\' || b == '<' || b == '>' || b == '&' {
			return i
		}
	}
	return len(text)
}

// number appends a number that is written as it was read.
func (c *canon) number() bool {
	start, fraction := c.at, false
	for ; c.at < len(c.in); c.at++ {
		b := c.in[c.at]
		if fraction = fraction || b == '.'; b != '-' && b != '.' && (b < '0' || b > '9') {
			break
		}
	}
	token := c.in[start:c.at]
	if fraction {
		f, err := strconv.ParseFloat(string(token), 64)
		before := len(c.out)
		if err == nil {
			c.out, err = appendOther(c.out, f)
		}
		return err == nil && bytes.Equal(c.out[before:], token)
	}
	n, err := strconv.ParseInt(string(token), 10, 64)
	before := len(c.out)
	c.out = strconv.AppendInt(c.out, n, 10)
	return err == nil && bytes.Equal(c.out[before:], token)
}
