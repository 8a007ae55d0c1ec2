package prevalidate

import (
	"sync"

	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions"
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
