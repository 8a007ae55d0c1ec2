package resource

import (
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"unicode/utf8"
)

// jsonScanner walks JSON text once, validating it. Positions are byte offsets.
type jsonScanner struct {
	data []byte
	pos  int
	// depth counts the objects and arrays that members and elements are in.
	depth int
	// texts holds the bytes of the texts that text returns.
	texts strings.Builder
}

// textsSpace is how many bytes are set aside for an object's texts at a time: a
// name, a namespace, a uid and a few labels.
const textsSpace = 128

// keep returns bytes as a text of its own. Texts of one object lie side by side:
// a dozen small allocations for each of many objects take twice the memory, and
// the garbage collector looks at every one.
func (s *jsonScanner) keep(raw []byte) string {
	if len(raw) == 0 {
		return ""
	}
	if s.texts.Cap()-s.texts.Len() < len(raw) {
		s.texts = strings.Builder{}
		s.texts.Grow(max(textsSpace, len(raw)))
	}
	start := s.texts.Len()
	s.texts.Write(raw)
	return s.texts.String()[start:]
}

// stands has the bytes that stand for themselves in a text.
var stands = func() (t [256]bool) {
	for c := range t {
		t[c] = c >= 0x20 && c != '"' && c != '\\'
	}
	return t
}()

func (s *jsonScanner) fail(what string) error {
	return fmt.Errorf("%s at byte %d", what, s.pos)
}

func (s *jsonScanner) space() {
	for s.pos < len(s.data) && isSpace(s.data[s.pos]) {
		s.pos++
	}
}

// take consumes the byte c, after white space.
func (s *jsonScanner) take(c byte) error {
	if s.pos < len(s.data) && s.data[s.pos] == c {
		s.pos++
		return nil
	}
	s.space()
	if s.pos >= len(s.data) || s.data[s.pos] != c {
		return s.fail(fmt.Sprintf("expected %q", c))
	}
	s.pos++
	return nil
}

func (s *jsonScanner) peek() byte {
	if s.pos < len(s.data) && s.data[s.pos] > ' ' {
		return s.data[s.pos]
	}
	s.space()
	if s.pos >= len(s.data) {
		return 0
	}
	return s.data[s.pos]
}

// str consumes a string and returns its raw text between the quotes and
// whether that holds escapes.
func (s *jsonScanner) str() (raw []byte, escaped bool, err error) {
	if err := s.take('"'); err != nil {
		return nil, false, err
	}
	start := s.pos
	for s.pos < len(s.data) {
		if stands[s.data[s.pos]] {
			s.pos++
			continue
		}
		switch c := s.data[s.pos]; {
		case c == '"':
			raw = s.data[start:s.pos]
			s.pos++
			return raw, escaped, nil
		case c == '\\':
			escaped = true
			if err := s.escape(); err != nil {
				return nil, false, err
			}
		default:
			return nil, false, s.fail("control character in string")
		}
	}
	return nil, false, s.fail("unterminated string")
}

func (s *jsonScanner) escape() error {
	if s.pos+1 >= len(s.data) {
		return s.fail("unterminated escape")
	}
	switch s.data[s.pos+1] {
	case '"', '\\', '/', 'b', 'f', 'n', 'r', 't':
		s.pos += 2
		return nil
	case 'u':
		if s.pos+6 > len(s.data) {
			return s.fail("short unicode escape")
		}
		if _, err := strconv.ParseUint(string(s.data[s.pos+2:s.pos+6]), 16, 16); err != nil {
			return s.fail("bad unicode escape")
		}
		s.pos += 6
		return nil
	}
	return s.fail("bad escape")
}

// text consumes a string and returns its value; invalid UTF-8 becomes U+FFFD,
// as in encoding/json.
func (s *jsonScanner) text() (string, error) {
	raw, err := s.unescaped()
	return s.keep(raw), err
}

// unescaped is text as bytes, which may be part of the data.
func (s *jsonScanner) unescaped() ([]byte, error) {
	start := s.pos
	raw, escaped, err := s.str()
	if err != nil || !escaped && utf8.Valid(raw) {
		return raw, err
	}
	var v string
	if err := json.Unmarshal(s.data[start:s.pos], &v); err != nil {
		return nil, err
	}
	return []byte(v), nil
}

// null consumes the literal null if it comes next.
func (s *jsonScanner) null() bool {
	s.space()
	if len(s.data)-s.pos >= 4 && string(s.data[s.pos:s.pos+4]) == "null" {
		s.pos += 4
		return true
	}
	return false
}

// members walks the members of an object; each is called with the scanner at
// the value and must consume it. key may be part of the data; start is where it
// begins.
func (s *jsonScanner) members(each func(key []byte, start int) error) error {
	if err := s.take('{'); err != nil {
		return err
	}
	s.depth++
	defer func() { s.depth-- }()
	if s.peek() == '}' {
		s.pos++
		return nil
	}
	for {
		s.space()
		start := s.pos
		key, err := s.unescaped()
		if err != nil {
			return err
		}
		if err := s.take(':'); err != nil {
			return err
		}
		s.space()
		if err := each(key, start); err != nil {
			return err
		}
		if s.peek() == ',' {
			s.pos++
			continue
		}
		return s.take('}')
	}
}

// elements walks the elements of an array.
func (s *jsonScanner) elements(each func() error) error {
	if err := s.take('['); err != nil {
		return err
	}
	s.depth++
	defer func() { s.depth-- }()
	if s.peek() == ']' {
		s.pos++
		return nil
	}
	for {
		if err := each(); err != nil {
			return err
		}
		if s.peek() == ',' {
			s.pos++
			continue
		}
		return s.take(']')
	}
}

// skip consumes any value, without recursion: stack holds what is open.
func (s *jsonScanner) skip() error {
	var stack []byte
	for {
		s.space()
		if s.pos >= len(s.data) {
			return s.fail("unexpected end")
		}
		switch c := s.data[s.pos]; c {
		case '{', '[':
			if s.depth+len(stack) >= maxDepth {
				return s.fail("nesting too deep")
			}
			s.pos++
			stack = append(stack, c)
			if s.peek() != closing(c) {
				if err := s.key(c); err != nil {
					return err
				}
				continue
			}
		default:
			if err := s.scalar(); err != nil {
				return err
			}
		}
		more, err := s.closeOrNext(&stack)
		if err != nil || !more {
			return err
		}
	}
}

// closeOrNext consumes the closing braces and the comma after a value. It
// reports whether another value follows.
func (s *jsonScanner) closeOrNext(stack *[]byte) (bool, error) {
	for len(*stack) > 0 {
		open := (*stack)[len(*stack)-1]
		switch s.peek() {
		case ',':
			s.pos++
			return true, s.key(open)
		case closing(open):
			s.pos++
			*stack = (*stack)[:len(*stack)-1]
		default:
			return false, s.fail("expected ',' or a closing bracket")
		}
	}
	return false, nil
}

// key consumes a member's key and colon inside an object.
func (s *jsonScanner) key(open byte) error {
	if open != '{' {
		return nil
	}
	if _, _, err := s.str(); err != nil {
		return err
	}
	return s.take(':')
}

func closing(open byte) byte {
	if open == '{' {
		return '}'
	}
	return ']'
}

// scalar consumes a string, number or literal.
func (s *jsonScanner) scalar() error {
	switch c := s.data[s.pos]; {
	case c == '"':
		_, _, err := s.str()
		return err
	case c == '-' || c >= '0' && c <= '9':
		return s.number()
	}
	for _, lit := range []string{"true", "false", "null"} {
		if len(s.data)-s.pos >= len(lit) && string(s.data[s.pos:s.pos+len(lit)]) == lit {
			s.pos += len(lit)
			return nil
		}
	}
	return s.fail("expected a value")
}

func (s *jsonScanner) number() error {
	if s.data[s.pos] == '-' {
		s.pos++
	}
	first := s.pos
	if s.digits() == 0 || s.data[first] == '0' && s.pos > first+1 {
		return s.fail("bad number")
	}
	if s.pos < len(s.data) && s.data[s.pos] == '.' {
		s.pos++
		if s.digits() == 0 {
			return s.fail("bad number")
		}
	}
	if s.pos < len(s.data) && (s.data[s.pos] == 'e' || s.data[s.pos] == 'E') {
		s.pos++
		if s.pos < len(s.data) && (s.data[s.pos] == '+' || s.data[s.pos] == '-') {
			s.pos++
		}
		if s.digits() == 0 {
			return s.fail("bad number")
		}
	}
	return nil
}

func (s *jsonScanner) digits() int {
	start := s.pos
	for s.pos < len(s.data) && s.data[s.pos] >= '0' && s.data[s.pos] <= '9' {
		s.pos++
	}
	return s.pos - start
}
