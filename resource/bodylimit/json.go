package bodylimit

import (
	"bytes"
	"fmt"
)

// maxArrays is the depth to which countJSON distinguishes arrays from objects, the limit
// of decoders. Deeper levels count as arrays.
const maxArrays = 10_000

// countJSON counts the values of JSON and the elements of its arrays. If a body has fewer
// commas and brackets than there may be values, also within strings, it counts those at a
// tenth of the cost.
func countJSON(data []byte) (values, items int) {
	few := bytes.Count(data, []byte(",")) + bytes.Count(data, []byte("{")) + bytes.Count(data, []byte("["))
	if few <= exactFrom {
		return few, few
	}
	return countJSONExactly(data)
}

// exactFrom is the count from which on strings are skipped.
const exactFrom = 2000

// countJSONExactly is countJSON without the contents of strings.
func countJSONExactly(data []byte) (values, items int) {
	var arrays nesting
	for i := 0; i < len(data); i++ {
		switch data[i] {
		case '"':
			if i = endOfString(data, i+1); i < 0 {
				return values, items
			}
		case ',':
			values++
			if arrays.innermost() {
				items++
			}
		case '{':
			values++
			arrays.open(false)
		case '[':
			values++
			items++
			arrays.open(true)
		case '}', ']':
			arrays.close()
		}
	}
	return values, items
}

// errNested reports JSON or YAML of too many values that no decoder would read.
var errNested = fmt.Errorf("the body is nested more than %d levels deep", maxArrays)

// tooDeep reports whether JSON or YAML of brackets is nested deeper than decoders read.
func tooDeep(data []byte) bool {
	depth := 0
	for i := 0; i < len(data) && depth <= maxArrays; i++ {
		switch data[i] {
		case '"':
			if i = endOfString(data, i+1); i < 0 {
				return false
			}
		case '{', '[':
			depth++
		case '}', ']':
			depth = max(0, depth-1)
		}
	}
	return depth > maxArrays
}

// endOfString returns the end of a string that begins before i; -1 if there is none.
func endOfString(data []byte, i int) int {
	for i < len(data) {
		n := bytes.IndexByte(data[i:], '"')
		if n < 0 {
			return -1
		}
		escapes := 0
		for end := i + n; end-escapes > i && data[end-escapes-1] == '\\'; {
			escapes++
		}
		if i += n; escapes%2 == 0 {
			return i
		}
		i++
	}
	return -1
}

// nesting records for each enclosing level whether it is an array.
type nesting struct {
	depth  int
	arrays [maxArrays/64 + 1]uint64
}

func (n *nesting) open(array bool) {
	if n.depth < maxArrays {
		word, bit := &n.arrays[n.depth/64], uint64(1)<<(n.depth%64)
		if *word &^= bit; array {
			*word |= bit
		}
	}
	n.depth++
}

func (n *nesting) close() { n.depth = max(0, n.depth-1) }

// innermost reports whether the innermost level is an array.
func (n *nesting) innermost() bool {
	i := n.depth - 1
	return i >= maxArrays || i >= 0 && n.arrays[i/64]&(1<<(i%64)) != 0
}
