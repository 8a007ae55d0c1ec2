package jsonscan

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
