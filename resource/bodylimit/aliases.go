package bodylimit

import (
	"bytes"
	"errors"
	"fmt"

	decoder "sigs.k8s.io/yaml/goyaml.v2"
	successor "sigs.k8s.io/yaml/goyaml.v3"
)

// A YAML alias has a few bytes and may stand for as many as the document has, so three
// megabytes can expand to hundreds of gigabytes of JSON. The decoder's own guard counts
// values, not bytes.
//
//   - Documents are measured before they are decoded. The text of a scalar is shared by
//     its aliases, but values resolved from it (a !!binary, a long number) are copied.
//   - The tree is that of the decoder's successor, because the decoder does not export its
//     own. Both use the same tokenizer. A document that only the decoder can parse is
//     refused: its size is unknown.
//   - Most documents have no alias, which a scan of their bytes shows. Only documents that
//     may have one are parsed twice.
const (
	// maxAliased bounds what all aliases of a document stand for, in bytes without the
	// document itself: the limit of a body.
	maxAliased = 3 << 20

	// valueSize is the size of a value without its text, in bytes. An empty member of an
	// object takes more memory, one of a list less.
	valueSize = 64
)

// ErrTooLarge reports aliases that stand for too much.
var ErrTooLarge = fmt.Errorf("the aliases of the YAML stand for more than %d bytes: send it without aliases, or as JSON", maxAliased)

// checkAliases returns ErrTooLarge if the aliases of a document stand for more than limit
// bytes, and another error if they cannot be measured. Invalid YAML passes: its decoder
// reports it. Of several documents it measures the first, as decoders read only that.
func checkAliases(document []byte, limit int) error {
	if bytes.IndexByte(document, '&') < 0 || bytes.IndexByte(document, '*') < 0 {
		return nil // neither an anchor nor an alias, in UTF-16 too
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

// unread can be decoded from null only: decoding into it parses the document and follows
// no alias.
type unread int

// UnmarshalYAML implements decoder.Unmarshaler.
func (*unread) UnmarshalYAML(func(any) error) error { return nil }

// readable reports whether the decoder can parse a document.
func readable(document []byte) bool {
	var mistyped *decoder.TypeError
	err := decoder.Unmarshal(document, new(unread))
	return err == nil || errors.As(err, &mistyped)
}

// measuring adds up what the aliases of a document stand for. An alias within an anchored
// value counts for each alias of that value.
type measuring struct {
	limit   int
	named   map[*successor.Node]int // sizes, in bytes
	aliased int                     // bytes so far; not increased beyond limit
}

// size returns what a node stands for, in bytes. The parser bounds the depth: an alias
// refers to a node before it, which is measured already.
func (m *measuring) size(n *successor.Node) int {
	if m.aliased > m.limit {
		return 0
	}
	if n.Kind == successor.AliasNode {
		size := m.named[n.Alias] // 0 within its own anchor, which its decoder refuses
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
