package bodylimit

import (
	"bytes"
	"unicode/utf8"
)

// countYAML counts the values of YAML and the elements of its lists: each stands
// behind an indicator of its own, one of ": - , ? [ {". Where a document has few of
// these altogether, or is unusual, they all count; else not those in text.
func countYAML(data []byte) (values, items int) {
	values, items = countIndicators(data)
	if values <= exactFrom || unusual(data) {
		return values, items
	}
	return scanYAML(data)
}

func scanYAML(data []byte) (values, items int) {
	s := yamlScanner{data: data, indent: -1, keyAllowed: true}
	if s.scan(); s.pos < len(data) {
		// The rest is what the scanner does not know: all of it counts.
		values, items = countIndicators(data[s.pos:])
	}
	return s.values + values, s.items + items
}

// countIndicators counts what may be an indicator, in text or not.
func countIndicators(data []byte) (values, items int) {
	for _, c := range data {
		switch c {
		case ',', '-', '[':
			items++
			values++
		case ':', '?', '{':
			values++
		}
	}
	return values, items
}

// unusual reports whether a document has what yamlScanner does not know anywhere:
// another encoding than UTF-8, or line breaks other than line feeds.
func unusual(data []byte) bool {
	for _, sign := range []string{"\x00", "\r", "\u0085", "\u2028", "\u2029", "\ufeff"} {
		if bytes.Contains(data, []byte(sign)) {
			return true
		}
	}
	return !utf8.Valid(data)
}

// yamlScanner finds the tokens of a YAML document by the rules of libyaml's
// scanner, which decoders of YAML in Go are translations of. It keeps nothing of
// them but their number, and stops where it finds what is rare or wrong.
type yamlScanner struct {
	data []byte
	pos  int
	// column is that of columnAt, in characters.
	line, column, columnAt int
	// indent is the column of the innermost block collection; outer are those
	// around it.
	indent int
	outer  []int
	// flow says of each flow collection around pos whether it is a list.
	flow []bool
	// keyAllowed says that a block collection may begin at the next token; key is
	// the latest token, outside of flow collections, that may be a key.
	keyAllowed, begun bool
	key               struct {
		possible          bool
		line, column, pos int
	}
	values, items int
}

// scan goes on until the end of the document, or to what it does not know.
func (s *yamlScanner) scan() {
	for s.values <= MaxValues && max(len(s.outer), len(s.flow)) < maxNested && s.skipSpace() {
		if !s.token() {
			return
		}
		s.begun = true
	}
}

// maxNested is how deep the scanner follows collections: as deep as decoders go.
const maxNested = 10_000

// peek returns a byte from pos on; a line feed at the end.
func (s *yamlScanner) peek(n int) byte {
	if s.pos+n < len(s.data) {
		return s.data[s.pos+n]
	}
	return '\n'
}

func isBlank(c byte) bool { return c == ' ' || c == '\t' || c == '\n' }

// at returns the column of pos.
func (s *yamlScanner) at() int {
	s.column += utf8.RuneCount(s.data[s.columnAt:s.pos])
	s.columnAt = s.pos
	return s.column
}

// newline goes behind the line feed at pos.
func (s *yamlScanner) newline() {
	s.pos++
	s.line++
	s.column, s.columnAt = 0, s.pos
}

// skipSpace goes to the next token and reports whether there is one.
func (s *yamlScanner) skipSpace() bool {
	for s.pos < len(s.data) {
		switch c := s.data[s.pos]; {
		case c == ' ', c == '\t' && (len(s.flow) > 0 || !s.keyAllowed):
			s.pos++
		case c == '#':
			s.toLineEnd()
		case c == '\n':
			s.newline()
			s.keyAllowed = s.keyAllowed || len(s.flow) == 0
		default:
			return true
		}
	}
	return false
}

func (s *yamlScanner) toLineEnd() {
	if n := bytes.IndexByte(s.data[s.pos:], '\n'); n >= 0 {
		s.pos += n
	} else {
		s.pos = len(s.data)
	}
}

// token goes behind the token at pos; false: it does not know it.
func (s *yamlScanner) token() bool {
	block := len(s.flow) == 0
	if block {
		s.unroll(s.at())
		if s.column == 0 && s.documentMark() {
			return s.firstDocument()
		}
	}
	next := s.peek(1)
	switch c := s.data[s.pos]; {
	case c == '[', c == '{':
		s.mayBeKey()
		s.flow = append(s.flow, c == '[')
		s.count(c == '[')
	case c == ']', c == '}':
		if block {
			return false
		}
		s.flow = s.flow[:len(s.flow)-1]
		s.keyAllowed = false
	case c == ',':
		if block {
			return false
		}
		s.count(s.flow[len(s.flow)-1])
	case c == '-' && isBlank(next):
		return s.entry(block, true)
	case c == '?' && (!block || isBlank(next)):
		return s.entry(block, false)
	case c == ':' && (!block || isBlank(next)):
		return s.value(block)
	case c == '*', c == '&':
		return s.anchor()
	case c == '\'', c == '"':
		return s.quoted(c)
	case (c == '|' || c == '>') && block:
		return s.blockScalar()
	case bytes.IndexByte([]byte("!|>%@`\t"), c) >= 0:
		return false
	default:
		return s.plain(block)
	}
	s.pos++
	return true
}

// documentMark reports whether "---" or "..." is at pos, or "%".
func (s *yamlScanner) documentMark() bool {
	rest := s.data[s.pos:]
	return rest[0] == '%' || (bytes.HasPrefix(rest, []byte("---")) || bytes.HasPrefix(rest, []byte("..."))) && isBlank(s.peek(3))
}

// firstDocument goes behind a mark if it begins the first document.
func (s *yamlScanner) firstDocument() bool {
	if s.begun || s.data[s.pos] != '-' {
		return false
	}
	s.pos += len("---")
	s.keyAllowed = false
	return true
}

func (s *yamlScanner) count(item bool) {
	s.values++
	if item {
		s.items++
	}
}

// roll begins a block collection at a column, unless one is there; unroll ends
// those that are further to the right.
func (s *yamlScanner) roll(column int) {
	if s.indent < column {
		s.outer = append(s.outer, s.indent)
		s.indent = column
	}
}

func (s *yamlScanner) unroll(column int) {
	for s.indent > column {
		s.indent = s.outer[len(s.outer)-1]
		s.outer = s.outer[:len(s.outer)-1]
	}
}

// mayBeKey takes the token at pos down as one that may be a key.
func (s *yamlScanner) mayBeKey() {
	if len(s.flow) > 0 {
		return
	}
	if s.keyAllowed {
		s.key.possible, s.key.line, s.key.column, s.key.pos = true, s.line, s.at(), s.pos
	}
	s.keyAllowed = false
}

// entry is "-" or "?".
func (s *yamlScanner) entry(block, item bool) bool {
	if block {
		if !s.keyAllowed {
			return false
		}
		s.roll(s.at())
		s.key.possible = false
	}
	s.count(item)
	s.pos++
	return true
}

// maxKey is how long a key may be, in characters; bytes are no fewer.
const maxKey = 1024

// value is ":".
func (s *yamlScanner) value(block bool) bool {
	// In a flow map, entries are counted by what is between them.
	if block || s.flow[len(s.flow)-1] {
		s.count(false)
	}
	if block {
		simple := s.key.possible && s.key.line == s.line
		switch {
		case simple && s.pos-s.key.pos > maxKey, !simple && !s.keyAllowed:
			return false
		case simple:
			s.roll(s.key.column)
		default:
			s.roll(s.at())
		}
		s.key.possible, s.keyAllowed = false, !simple
	}
	s.pos++
	return true
}

// anchor is an anchor or an alias.
func (s *yamlScanner) anchor() bool {
	s.mayBeKey()
	start := s.pos
	for s.pos++; s.pos < len(s.data) && named(s.data[s.pos]); s.pos++ {
	}
	return s.pos > start+1 && (isBlank(s.peek(0)) || bytes.IndexByte([]byte("?:,]}"), s.peek(0)) >= 0)
}

// quoted is a scalar in quotes.
func (s *yamlScanner) quoted(quote byte) bool {
	s.mayBeKey()
	for s.pos++; s.pos < len(s.data); {
		switch c := s.data[s.pos]; {
		case c == quote && quote == '\'' && s.peek(1) == quote, c == '\\' && quote == '"' && s.peek(1) != '\n':
			s.pos += 2
		case c == quote:
			s.pos++
			return true
		case c == '\n':
			s.newline()
			if s.pos < len(s.data) && s.documentMark() {
				return false
			}
		default:
			s.pos++
		}
	}
	return false
}

// plain is a scalar without quotes, of one line or more.
func (s *yamlScanner) plain(block bool) bool {
	s.mayBeKey()
	indent := s.indent + 1
	for {
		for s.pos < len(s.data) && !isBlank(s.data[s.pos]) && !s.endsPlain(block) {
			s.pos++
		}
		if !isBlank(s.peek(0)) || s.pos == len(s.data) {
			return true
		}
		broken := false
		for s.pos < len(s.data) && isBlank(s.data[s.pos]) {
			switch {
			case s.data[s.pos] == '\n':
				s.newline()
				broken = true
			case broken && s.data[s.pos] == '\t':
				return false
			default:
				s.pos++
			}
		}
		// A line that begins less far to the right is not part of it.
		s.keyAllowed = s.keyAllowed || broken && block
		switch {
		case s.pos == len(s.data), s.data[s.pos] == '#', block && s.at() < indent:
			return true
		case s.column == 0 && s.columnAt == s.pos && s.documentMark():
			return false
		case !isBlank(s.data[s.pos]) && !s.endsPlain(block):
			s.keyAllowed = false // it goes on
		default:
			return true
		}
	}
}

// endsPlain reports whether the byte at pos, no blank, is behind a plain scalar.
func (s *yamlScanner) endsPlain(block bool) bool {
	c := s.data[s.pos]
	return c == ':' && isBlank(s.peek(1)) || !block && bytes.IndexByte([]byte(",?[]{}"), c) >= 0
}

// blockScalar is a scalar behind "|" or ">".
func (s *yamlScanner) blockScalar() bool {
	s.key.possible, s.keyAllowed = false, true
	header := s.data[s.pos:]
	if n := bytes.IndexByte(header, '\n'); n >= 0 {
		header = header[:n]
	}
	if digits := bytes.IndexAny(header, "0123456789"); digits >= 0 && digits < 3 {
		return false // an indent of its own
	}
	s.toLineEnd()
	indent := 0
	for s.pos < len(s.data) {
		s.newline()
		start := s.pos
		for s.peek(0) == ' ' && s.pos < len(s.data) && (indent == 0 || s.pos-start < indent) {
			s.pos++
		}
		column := s.pos - start
		switch {
		case s.pos == len(s.data):
			return true
		case s.data[s.pos] == '\n':
			if indent == 0 && column > s.indent+1 {
				return false // a blank line that may be what sets the indent
			}
			continue
		case s.data[s.pos] == '\t' && (indent == 0 || column < indent):
			return false
		case indent == 0:
			indent = max(column, s.indent+1, 1)
		}
		if column < indent {
			return true
		}
		s.toLineEnd()
	}
	return true
}
