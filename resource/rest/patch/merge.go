package patch

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
)

// Documents are patched as decoded values: objects, arrays, strings, booleans, nil, and
// json.Number, which keeps the text of numbers that a patch does not change. Each
// is decoded once; patch libraries decode level by level, and so decode the innermost
// values once for every level above.

// maxDepth is how deep a patched document may be nested. It is the limit of decoders.
const maxDepth = 10000

var errTooDeep = fmt.Errorf("the result is nested more than %d levels deep", maxDepth)

// decodeValue decodes one JSON document.
func decodeValue(data []byte) (any, error) {
	d := json.NewDecoder(bytes.NewReader(data))
	d.UseNumber()
	var v any
	if err := d.Decode(&v); err != nil {
		return nil, err
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return nil, errors.New("trailing data")
	}
	return v, nil
}

// encodeValue encodes a value. It fails if the value is nested too deep.
func encodeValue(v any) ([]byte, error) {
	if !within(v, maxDepth) {
		return nil, errTooDeep
	}
	return json.Marshal(v)
}

// within reports whether a value is nested at most depth levels deep.
func within(v any, depth int) bool {
	switch v := v.(type) {
	case map[string]any:
		for _, member := range v {
			if depth == 0 || !within(member, depth-1) {
				return false
			}
		}
		return depth > 0
	case []any:
		for _, element := range v {
			if depth == 0 || !within(element, depth-1) {
				return false
			}
		}
		return depth > 0
	}
	return true
}

// mergeObject merges a patch into an object (RFC 7386): null removes a member.
// Both become part of the result.
func mergeObject(object, patch map[string]any) {
	for name, v := range patch {
		if v == nil {
			delete(object, name)
			continue
		}
		current, isObject := object[name].(map[string]any)
		change, changes := v.(map[string]any)
		switch {
		case isObject && changes:
			mergeObject(current, change)
		case isObject:
			object[name] = v
		default:
			object[name] = pruneNulls(v)
		}
	}
}

// pruneNulls removes the members that are null, at any depth: they would remove members
// that are not there. Null elements of arrays are values.
func pruneNulls(v any) any {
	switch v := v.(type) {
	case map[string]any:
		for name, member := range v {
			if member == nil {
				delete(v, name)
			} else {
				pruneNulls(member)
			}
		}
	case []any:
		for _, element := range v {
			pruneNulls(element)
		}
	}
	return v
}
