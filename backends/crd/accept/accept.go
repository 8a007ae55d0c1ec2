package accept

import (
	"sync"

	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions"
)

// Verdict is what is certain of an object's bytes. Each verdict includes those
// before it.
type Verdict uint8

const (
	// Unsure is no answer: ask upstream's packages.
	Unsure Verdict = iota
	// Lacking says that the bytes are well-formed JSON without duplicate keys,
	// and that coercing metadata and pruning leave the object as it is, without
	// an error or an unknown field to report. It may lack defaults.
	Lacking
	// Settled says that it lacks no defaults either.
	Settled
	// Valid says that the schema, the rules for lists that are sets or maps,
	// and those for embedded resources find no fault with a new object, and so
	// none with a change: what did not change is only ever forgiven. CEL rules
	// are not part of it, nor are the rules for metadata of the object
	// itself that hold for every kind.
	Valid
)

// Origin is where bytes come from, which decides what coercing does.
type Origin uint8

const (
	// Body is a request's: a creationTimestamp of null counts as none, which
	// is what clients made of Go types send.
	Body Origin = iota
	// Stored is what etcd holds, or shall hold: an object without a generation
	// gets one on reading.
	Stored
)

// Acceptor judges objects by one schema. Safe for concurrent use.
type Acceptor struct {
	root    *node
	walkers sync.Pool
}

// Compile makes the acceptor of a schema as a definition has it, which must
// have passed the validation of definitions. It keeps parts of props.
func Compile(props *apiextensions.JSONSchemaProps) *Acceptor {
	a := &Acceptor{root: newCompiler().spine(props)}
	a.walkers.New = func() any { return new(walker) }
	return a
}

// Shape judges the object's bytes, but not whether they are Valid.
func (a *Acceptor) Shape(data []byte, from Origin) Verdict { return a.walk(data, from, false) }

// Accept judges the object's bytes.
func (a *Acceptor) Accept(data []byte, from Origin) Verdict { return a.walk(data, from, true) }

func (a *Acceptor) walk(data []byte, from Origin, validate bool) Verdict {
	w := a.walkers.Get().(*walker)
	defer a.walkers.Put(w)
	w.begin(data, from)
	defer w.end()
	switch {
	case !w.object(a.root):
		return Unsure
	case w.lacking:
		return Lacking
	case !validate || w.judge(a.root) != yes:
		return Settled
	}
	return Valid
}
