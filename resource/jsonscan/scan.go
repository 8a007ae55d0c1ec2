// Package jsonscan reads JSON text token by token and makes values only of what
// the caller asks for. It is the one JSON scanner of the request path: the header
// of an object (resource.Parse) and the check of a custom resource by its bytes
// (backends/crd/prevalidate) are built on it. Everything else uses encoding/json or
// sigs.k8s.io/json.
//
// Syntax is that of RFC 8259, as encoding/json checks it. Duplicate keys and
// invalid UTF-8 are not errors here; callers that must refuse them compare keys
// and check [Scanner.String] themselves. FuzzScanner compares the scanner with
// encoding/json; BenchmarkSkip measures it.
//
// Runs in: gateway, core, crd.
package jsonscan

import (
	"encoding/json"
	"fmt"
	"strconv"
	"unicode/utf8"
)

// DefaultMaxDepth is how deep objects and arrays may be nested. It is the limit of
// encoding/json.
const DefaultMaxDepth = 10000

// Scanner reads one JSON text. Set it up with Reset. Each method first skips white
// space, then consumes one token or value. The first error is kept: methods return
// false from then on, loops end, and Err returns it. Not safe for concurrent use.
type Scanner struct {
	// Data is the text and Pos the offset of the next byte to read. A caller may
	// set Pos back to the start of a value that was read before.
	Data []byte
	Pos  int
	// MaxDepth bounds the nesting of objects and arrays.
	MaxDepth int
	depth    int
	err      error
}

// Reset starts the scanner at the beginning of data.
func (s *Scanner) Reset(data []byte) { *s = Scanner{Data: data, MaxDepth: DefaultMaxDepth} }

// Err returns the first error; nil if there was none.
func (s *Scanner) Err() error { return s.err }

// Fail records err unless there was an error before. It returns false.
func (s *Scanner) Fail(err error) bool {
	if s.err == nil {
		s.err = err
	}
	return false
}

func (s *Scanner) fail(what string) bool {
	return s.Fail(fmt.Errorf("%s at byte %d", what, s.Pos))
}

// Depth returns the number of objects and arrays around the next value.
func (s *Scanner) Depth() int { return s.depth }

// Peek returns the next byte that is not white space, without consuming it; 0 at
// the end of the text.
func (s *Scanner) Peek() byte {
	if s.Pos < len(s.Data) && s.Data[s.Pos] > ' ' {
		return s.Data[s.Pos]
	}
	return s.skipSpace()
}

// skipSpace is Peek where white space or the end comes next.
func (s *Scanner) skipSpace() byte {
	for s.Pos < len(s.Data) {
		switch c := s.Data[s.Pos]; c {
		case ' ', '\t', '\n', '\r':
			s.Pos++
		default:
			return c
		}
	}
	return 0
}

// Take consumes the byte c if it comes next, and reports whether it did.
func (s *Scanner) Take(c byte) bool {
	if s.Peek() != c || s.Pos == len(s.Data) {
		return false
	}
	s.Pos++
	return true
}

// expect consumes the byte c; it is an error if another one comes next.
func (s *Scanner) expect(c byte) bool {
	if s.Pos < len(s.Data) && s.Data[s.Pos] == c {
		s.Pos++
		return true
	}
	return s.Take(c) || s.fail("expected "+strconv.QuoteRune(rune(c)))
}

// End reports whether the text ends here, without an error. More text is an error.
func (s *Scanner) End() bool {
	if s.Peek(); s.err == nil && s.Pos != len(s.Data) {
		s.fail("trailing data")
	}
	return s.err == nil
}

// ordinary has the bytes that stand for themselves in a string.
var ordinary = func() (t [256]bool) {
	for c := range t {
		t[c] = c >= ' ' && c != '"' && c != '\\'
	}
	return t
}()

// String consumes a string. raw is the text between its quotes, part of Data;
// escaped reports whether that has escapes. Unquote makes the value of it.
func (s *Scanner) String() (raw []byte, escaped, ok bool) {
	if !s.expect('"') {
		return nil, false, false
	}
	start := s.Pos
	for {
		s.Pos += ordinaryLength(s.Data[s.Pos:])
		switch {
		case s.Pos == len(s.Data):
			return nil, false, s.fail("unterminated string")
		case s.Data[s.Pos] == '"':
			raw = s.Data[start:s.Pos]
			s.Pos++
			return raw, escaped, s.err == nil
		case s.Data[s.Pos] != '\\':
			return nil, false, s.fail("control character in string")
		}
		n := escapeLength(s.Data[s.Pos:])
		if n == 0 {
			return nil, false, s.fail("bad escape")
		}
		escaped = true
		s.Pos += n
	}
}

// ordinaryLength is the number of bytes at the beginning of text that stand for
// themselves in a string.
func ordinaryLength(text []byte) int {
	for i, c := range text {
		if !ordinary[c] {
			return i
		}
	}
	return len(text)
}

// escapeLength is the length of the escape that data begins with; 0 if it is none.
func escapeLength(data []byte) int {
	if len(data) < 2 {
		return 0
	}
	switch data[1] {
	case '"', '\\', '/', 'b', 'f', 'n', 'r', 't':
		return 2
	case 'u':
		if len(data) < 6 {
			return 0
		}
		if _, err := strconv.ParseUint(string(data[2:6]), 16, 16); err == nil {
			return 6
		}
	}
	return 0
}

// Unquote returns the value of a string that String returned. Invalid UTF-8
// becomes U+FFFD, as in encoding/json. The result may be raw itself.
func Unquote(raw []byte, escaped bool) []byte {
	if !escaped && utf8.Valid(raw) {
		return raw
	}
	quoted := append(append(append(make([]byte, 0, len(raw)+2), '"'), raw...), '"')
	var text string
	// The text between the quotes was checked: this cannot fail.
	_ = json.Unmarshal(quoted, &text)
	return []byte(text)
}

// Text consumes a string and returns its value, which may be part of Data; nil
// after an error.
func (s *Scanner) Text() []byte {
	raw, escaped, ok := s.String()
	if !ok {
		return nil
	}
	return Unquote(raw, escaped)
}

// Literal consumes true, false or null if that word comes next, and reports whether
// it did.
func (s *Scanner) Literal(word string) bool {
	s.Peek()
	if len(s.Data)-s.Pos < len(word) || string(s.Data[s.Pos:s.Pos+len(word)]) != word {
		return false
	}
	s.Pos += len(word)
	return true
}

// Number consumes a number and returns its text, part of Data. integer reports
// whether that has neither a fraction nor an exponent.
func (s *Scanner) Number() (raw []byte, integer, ok bool) {
	s.Peek()
	start := s.Pos
	s.sign('-', '-')
	first := s.Pos
	good := s.digits() > 0 && (s.Data[first] != '0' || s.Pos == first+1)
	whole := s.Pos
	if good && s.at('.') {
		s.Pos++
		good = s.digits() > 0
	}
	if good && (s.at('e') || s.at('E')) {
		s.Pos++
		s.sign('+', '-')
		good = s.digits() > 0
	}
	if !good {
		return nil, false, s.fail("bad number")
	}
	return s.Data[start:s.Pos], s.Pos == whole, s.err == nil
}

// sign consumes one of two bytes.
func (s *Scanner) sign(a, b byte) {
	if s.at(a) || s.at(b) {
		s.Pos++
	}
}

// at reports whether the next byte is c. White space is not skipped.
func (s *Scanner) at(c byte) bool { return s.Pos < len(s.Data) && s.Data[s.Pos] == c }

// digits consumes digits and returns how many there were.
func (s *Scanner) digits() int {
	start := s.Pos
	for s.Pos < len(s.Data) && s.Data[s.Pos] >= '0' && s.Data[s.Pos] <= '9' {
		s.Pos++
	}
	return s.Pos - start
}

// Key is the key of a member of an object.
type Key struct {
	// Raw is the text between the quotes, part of Scanner.Data, and Escaped
	// reports whether that has escapes.
	Raw     []byte
	Escaped bool
	// Start is the offset of the opening quote.
	Start int
}

// Text returns the key's value, which may be Raw.
func (k Key) Text() []byte { return Unquote(k.Raw, k.Escaped) }

// Members consumes an object, for use with range: the body of the loop runs with
// Pos at the first byte of a member's value and must consume that. A loop that is
// left early leaves the scanner inside the object.
func (s *Scanner) Members(yield func(Key) bool) {
	if !s.open('{') {
		return
	}
	if s.Take('}') {
		s.depth--
		return
	}
	for {
		key, ok := s.key()
		if !ok || !yield(key) || s.err != nil {
			return
		}
		if s.Take(',') {
			continue
		}
		if s.expect('}') {
			s.depth--
		}
		return
	}
}

// key consumes a key, the colon and the white space behind it.
func (s *Scanner) key() (Key, bool) {
	s.Peek()
	start := s.Pos
	raw, escaped, ok := s.String()
	if !ok || !s.expect(':') {
		return Key{}, false
	}
	s.Peek()
	return Key{raw, escaped, start}, true
}

// Elements consumes an array, for use with range: the body of the loop runs with
// Pos at the first byte of an element and must consume that. A loop that is left
// early leaves the scanner inside the array.
func (s *Scanner) Elements(yield func() bool) {
	if !s.open('[') {
		return
	}
	if s.Take(']') {
		s.depth--
		return
	}
	for {
		s.Peek()
		if !yield() || s.err != nil {
			return
		}
		if s.Take(',') {
			continue
		}
		if s.expect(']') {
			s.depth--
		}
		return
	}
}

// open consumes the bracket that begins an object or array.
func (s *Scanner) open(c byte) bool {
	if !s.expect(c) {
		return false
	}
	if s.depth >= s.MaxDepth {
		return s.fail("nesting too deep")
	}
	s.depth++
	return s.err == nil
}

// Skip consumes any value and reports whether that was possible.
func (s *Scanner) Skip() bool {
	switch s.Peek() {
	case '{':
		for range s.Members {
			s.Skip()
		}
		return s.err == nil
	case '[':
		for range s.Elements {
			s.Skip()
		}
		return s.err == nil
	}
	return s.Scalar()
}

// Scalar consumes a string, number, true, false or null.
func (s *Scanner) Scalar() bool {
	switch c := s.Peek(); {
	case c == '"':
		_, _, ok := s.String()
		return ok
	case c == '-' || c >= '0' && c <= '9':
		_, _, ok := s.Number()
		return ok
	}
	return s.Literal("true") || s.Literal("false") || s.Literal("null") || s.fail("expected a value")
}

// Null consumes null if it comes next, and reports whether it did.
func (s *Scanner) Null() bool { return s.Literal("null") }
