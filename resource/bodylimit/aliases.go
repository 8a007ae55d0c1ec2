package bodylimit

import (
	"bytes"
	"errors"
	"fmt"
	"math/bits"

	decoder "sigs.k8s.io/yaml/goyaml.v2"
	successor "sigs.k8s.io/yaml/goyaml.v3"
)

// Aliases are some bytes long, and what they name may be as long as the document:
// three megabytes can be made to stand for hundreds of gigabytes of JSON. The
// decoder's own guard counts values, not bytes.
//
//   - Documents are measured before they are decoded: the text of a scalar is
//     shared by all its aliases, but what is resolved from it (a !!binary, a long
//     number) is made anew for each.
//   - The tree that is measured is that of the decoder's successor, since the
//     decoder does not export its own. The two read tokens with the same code. A
//     document that only the decoder can read is refused: its size is unknown.
//   - Most documents have no alias, which a look at their bytes tells. Only what
//     may have many is parsed twice.
const (
	// maxAliased is what all aliases of a document may stand for together, in bytes
	// besides those of the document itself: as much as a body may have.
	maxAliased = 3 << 20

	// valueSize is what a value takes besides its text, in bytes. A member of an
	// object with nothing in it takes more in memory, one of a list less.
	valueSize = 64
)

// ErrTooLarge is for aliases that stand for too much.
var ErrTooLarge = fmt.Errorf("the aliases of the YAML stand for more than %d bytes: send it without aliases, or as JSON", maxAliased)

// checkAliases returns ErrTooLarge if the aliases of a document stand for more than
// limit bytes, and another error if it has aliases that cannot be measured. What is
// no YAML passes: its decoder reports that. Of several documents it looks at the
// first, as decoders do.
func checkAliases(document []byte, limit int) error {
	if !mayExceed(document, limit) {
		return nil
	}
	var root successor.Node
	if err := successor.Unmarshal(document, &root); err != nil {
		if !readable(document) {
			return nil
		}
		return fmt.Errorf("the aliases of the YAML cannot be measured: %w", err)
	}
	m := measuring{limit: limit, named: map[*successor.Node]int{}}
	if m.size(&root); m.aliased > limit {
		return ErrTooLarge
	}
	return nil
}

// mayExceed reports whether aliases may stand for more than limit bytes, by a
// look at what may be one: an anchor comes before its aliases, so each of these
// at most doubles what there is.
func mayExceed(document []byte, limit int) bool {
	if bytes.HasPrefix(document, []byte("\xfe\xff")) || bytes.HasPrefix(document, []byte("\xff\xfe")) {
		return true // UTF-16
	}
	if marks(document, '&', 1) == 0 {
		return false
	}
	// A value is at least one byte of the document.
	doublings := max(1, bits.Len(uint(limit/(len(document)*(1+valueSize)))))
	return marks(document, '*', doublings) >= doublings
}

// marks counts, up to enough, where a name follows the sign of an anchor or alias.
func marks(document []byte, sign byte, enough int) (n int) {
	for n < enough {
		i := bytes.IndexByte(document, sign)
		if i < 0 || i+1 == len(document) {
			break
		}
		if document = document[i+1:]; named(document[0]) {
			n++
		}
	}
	return n
}

// named reports whether a name may begin with c.
func named(c byte) bool {
	return '0' <= c && c <= '9' || 'A' <= c && c <= 'Z' || 'a' <= c && c <= 'z' || c == '_' || c == '-'
}

// unread is decoded from nothing but null: a document that is read into one is
// parsed, and no alias is followed.
type unread int

// UnmarshalYAML implements decoder.Unmarshaler.
func (*unread) UnmarshalYAML(func(any) error) error { return nil }

// readable reports whether the decoder can parse a document.
func readable(document []byte) bool {
	var mistyped *decoder.TypeError
	err := decoder.Unmarshal(document, new(unread))
	return err == nil || errors.As(err, &mistyped)
}

// measuring adds up what the aliases of one document stand for. An alias inside
// of what another names counts for each.
type measuring struct {
	limit   int
	named   map[*successor.Node]int // sizes, in bytes
	aliased int                     // bytes so far; no more is added when they are over limit
}

// size is what a node stands for, in bytes. It goes as deep as the parser lets
// documents be: what aliases name comes before them, and is measured already.
func (m *measuring) size(n *successor.Node) int {
	if m.aliased > m.limit {
		return 0
	}
	if n.Kind == successor.AliasNode {
		size := m.named[n.Alias] // nothing within what it names: its decoder refuses that
		m.aliased += size
		return size
	}
	size := valueSize + len(n.Value)
	for _, child := range n.Content {
		size += m.size(child)
	}
	if n.Anchor != "" {
		m.named[n] = size
	}
	return size
}
