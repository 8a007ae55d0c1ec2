package prevalidate

import (
	"bytes"
	"sync"
	"unicode/utf8"

	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions"

	"portico/resource/jsonscan"
)

// Verdict is what is certain about an object. Each verdict includes those before it.
type Verdict uint8

const (
	// Unknown decides nothing: upstream's packages have to.
	Unknown Verdict = iota
	// LacksDefaults means that the bytes are well-formed JSON without duplicate keys,
	// and that coercing metadata and pruning change nothing and report nothing.
	// Defaults may be missing.
	LacksDefaults
	// Canonical means that no defaults are missing either.
	Canonical
	// Valid means that the schema and the rules of lists that are sets or maps find no
	// error in a new object. An update is then valid too, because ratcheting only
	// forgives. CEL rules are not included, nor are the rules for metadata of every
	// kind.
	Valid
)

// Origin is where bytes come from, which decides how metadata is coerced.
type Origin uint8

const (
	// Body is a request's body: a creationTimestamp of null counts as missing. Clients
	// that encode Go types send that.
	Body Origin = iota
	// Stored is what etcd holds or will hold: an object without a generation gets one
	// when it is read.
	Stored
)

// Schema checks objects by one compiled schema. Safe for concurrent use.
type Schema struct {
	root    *node
	walkers sync.Pool
}

// Compile compiles the schema of a definition, which must have passed the validation of
// definitions. The result shares parts of props.
func Compile(props *apiextensions.JSONSchemaProps) *Schema {
	s := &Schema{root: newCompiler().object(props)}
	s.walkers.New = func() any { return new(walker) }
	return s
}

// CheckForm returns the verdict on an object up to Canonical.
func (s *Schema) CheckForm(data []byte, from Origin) Verdict { return s.check(data, from, false) }

// Check returns the verdict on an object.
func (s *Schema) Check(data []byte, from Origin) Verdict { return s.check(data, from, true) }

func (s *Schema) check(data []byte, from Origin, validate bool) Verdict {
	w := s.walkers.Get().(*walker)
	defer s.walkers.Put(w)
	w.begin(data, from)
	defer w.end()
	switch {
	case !w.object(s.root):
		return Unknown
	case w.lacksDefaults:
		return LacksDefaults
	case !validate || !w.validate(s.root):
		return Canonical
	}
	return Valid
}

const (
	// maxDepth bounds the nesting of values. Real objects have a fraction of it;
	// deeper ones are left to upstream's packages.
	maxDepth = 64
	// manyKeys is the number of keys of one object up to which each is compared with
	// all before it, where they are not sorted.
	manyKeys = 32
	// maxWhole digits always fit 64 bits; float64 distinguishes any two numbers of
	// maxDigits digits.
	maxWhole  = 18
	maxDigits = 15
)

// span is a part of the text: offsets into Scanner.Data.
type span struct{ start, end int }

// walker walks the text of one object. The methods of the first walk return false at
// the first value that is not certainly canonical; then the walk ends.
type walker struct {
	jsonscan.Scanner
	from Origin
	// lacksDefaults is set when a field that has a default is missing.
	lacksDefaults bool
	// steps are those that are left of MaxSteps.
	steps int
	// keys are the keys, so far, of the objects around the next value.
	keys []span
	// elements are those, so far, of the sets and list maps around the next value.
	elements []element
}

func (w *walker) begin(data []byte, from Origin) {
	w.Reset(data)
	w.MaxDepth = maxDepth
	w.from, w.lacksDefaults, w.keys, w.elements = from, false, w.keys[:0], w.elements[:0]
}

// end drops the text.
func (w *walker) end() { w.Reset(nil) }

// ok reports whether there was no syntax error.
func (w *walker) ok() bool { return w.Err() == nil }

// of returns a part of the text.
func (w *walker) of(s span) []byte { return w.Data[s.start:s.end] }

// text consumes a string. It refuses surrogate escapes and invalid UTF-8, which
// decoders replace.
func (w *walker) text() (raw []byte, ok bool) {
	raw, escaped, ok := w.String()
	return raw, ok && utf8.Valid(raw) && !(escaped && hasSurrogate(raw))
}

// isText consumes a string and reports whether text would.
func (w *walker) isText() bool {
	_, ok := w.text()
	return ok
}

// hasSurrogate reports whether a string has a \u escape from D800 to DFFF.
func hasSurrogate(raw []byte) bool {
	for i := 0; i < len(raw); i++ {
		if raw[i] != '\\' {
			continue
		}
		i++
		if raw[i] == 'u' && (raw[i+1] == 'd' || raw[i+1] == 'D') && raw[i+2] >= '8' {
			return true
		}
	}
	return false
}

// ambiguous reports whether a string has an escape of a character that can also be
// written in another way.
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

// members consumes an object, for use with range: see jsonscan.Scanner.Members. It
// yields each key as it is written, and whether that has escapes. Duplicate and
// ambiguous keys end the loop: the caller checks ok.
func (w *walker) members(yield func(key []byte, escaped bool) bool) {
	first := len(w.keys)
	var last []byte
	sorted := true
	for key := range w.Members {
		if !utf8.Valid(key.Raw) || key.Escaped && ambiguous(key.Raw) {
			w.Fail(errUncertain)
			return
		}
		if sorted = sorted && (len(w.keys) == first || bytes.Compare(last, key.Raw) < 0); !sorted && w.known(first, key.Raw) {
			w.Fail(errUncertain)
			return
		}
		last = key.Raw
		w.keys = append(w.keys, span{key.Start + 1, key.Start + 1 + len(key.Raw)})
		if !yield(key.Raw, key.Escaped) {
			return
		}
	}
	w.keys = w.keys[:first]
}

// known reports whether a key is among those since first, or there are too many keys to
// compare.
func (w *walker) known(first int, key []byte) bool {
	if len(w.keys)-first > manyKeys {
		return true
	}
	for _, k := range w.keys[first:] {
		if bytes.Equal(w.of(k), key) {
			return true
		}
	}
	return false
}

// number consumes a number in the form in which an encoder writes it: an integer that
// fits 64 bits, or a fraction of at most maxDigits digits.
func (w *walker) number() bool {
	raw, integer, ok := w.Number()
	if !ok {
		return false
	}
	digits := bytes.TrimPrefix(raw, []byte("-"))
	if integer {
		return len(digits) <= maxWhole && string(raw) != "-0"
	}
	return !bytes.ContainsAny(digits, "eE") && len(digits)-1 <= maxDigits && digits[len(digits)-1] != '0'
}
