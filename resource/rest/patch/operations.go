package patch

import (
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strconv"
	"strings"

	jsonpatch "gopkg.in/evanphx/json-patch.v4"
)

// Bounds of a JSON patch (docs/wire.md 0.2).
const (
	// MaxOperations bounds the operations.
	MaxOperations = 10000
	// maxCopied bounds the bytes that "copy" may add to the object.
	maxCopied = 3 << 20
	// maxShifted bounds the array elements, of 16 bytes each, that insertions and removals
	// move. Nothing else costs more than the sizes of patch and object allow.
	maxShifted = 64 << 20
)

var (
	errNoSuchPath = errors.New("no such path")
	errTestFailed = errors.New("the value differs")
	errShifts     = fmt.Errorf("the operations move more than %d elements of arrays", maxShifted)
)

// patched is a document to which the operations of a JSON patch (RFC 6902) are applied.
// Beyond the RFC, and as in kube-apiserver, negative indexes count from the end, "replace"
// in an object may add a member, and a missing member is null to "test" and "copy".
type patched struct {
	root           any
	copied, shifts int64
}

// applyOperations applies a patch. Errors are *jsonpatch.AccumulatedCopySizeError
// and errShifts for a patch that is too expensive, others for one that cannot be applied to
// the document.
func applyOperations(document []byte, patch jsonpatch.Patch) ([]byte, error) {
	root, err := decodeValue(document)
	if err != nil {
		return nil, err
	}
	o := &patched{root: root}
	for i, operation := range patch {
		if err := o.apply(operation); err != nil {
			return nil, fmt.Errorf("operation %d: %w", i, err)
		}
	}
	return encodeValue(o.root)
}

func (o *patched) apply(operation jsonpatch.Operation) error {
	path, err := operation.Path()
	if err != nil {
		return err
	}
	value, err := operationValue(operation)
	if err != nil {
		return err
	}
	switch kind := operation.Kind(); kind {
	case "add":
		err = o.add(path, value)
	case "remove":
		err = o.remove(path)
	case "replace":
		err = o.replace(path, value)
	case "test":
		err = o.test(path, value)
	case "move", "copy":
		err = o.transfer(operation, path, kind == "move")
	default:
		return fmt.Errorf("unknown kind %q", kind)
	}
	if err != nil {
		return fmt.Errorf("%s %q: %w", operation.Kind(), path, err)
	}
	return nil
}

// operationValue returns the operation's value; nil if it has none.
func operationValue(operation jsonpatch.Operation) (any, error) {
	raw := operation["value"]
	if raw == nil {
		return nil, nil
	}
	return decodeValue(*raw)
}

// target is a member of an object or an element of an array.
type target struct {
	object map[string]any
	name   string

	// array is the array that has the element; set replaces it in its parent.
	array []any
	set   func([]any)
}

// find returns the target of a pointer, which need not exist.
func (o *patched) find(pointer string) (target, error) {
	parts := strings.Split(pointer, "/")
	if len(parts) < 2 {
		return target{}, errNoSuchPath
	}
	at, set := o.root, func(v []any) { o.root = v }
	for _, part := range parts[1 : len(parts)-1] {
		part = unescapePointer(part)
		switch in := at.(type) {
		case map[string]any:
			at, set = in[part], func(v []any) { in[part] = v }
		case []any:
			i, err := index(part, len(in))
			if err != nil {
				return target{}, err
			}
			at, set = in[i], func(v []any) { in[i] = v }
		default:
			return target{}, errNoSuchPath
		}
	}
	last := unescapePointer(parts[len(parts)-1])
	switch in := at.(type) {
	case map[string]any:
		return target{object: in, name: last}, nil
	case []any:
		return target{array: in, name: last, set: set}, nil
	}
	return target{}, errNoSuchPath
}

func unescapePointer(part string) string {
	return strings.ReplaceAll(strings.ReplaceAll(part, "~1", "/"), "~0", "~")
}

// index parses an array index below n.
func index(text string, n int) (int, error) {
	i, err := strconv.Atoi(text)
	switch {
	case err != nil:
		return 0, fmt.Errorf("%q is not an index", text)
	case i >= n || i < -n:
		return 0, fmt.Errorf("index %d is out of range of the array of %d", i, n)
	case i < 0:
		i += n
	}
	return i, nil
}

// get returns the target's value; nil for a missing member.
func (p target) get() (any, error) {
	if p.object != nil {
		return p.object[p.name], nil
	}
	i, err := index(p.name, len(p.array))
	if err != nil {
		return nil, err
	}
	return p.array[i], nil
}

func (o *patched) add(pointer string, value any) error {
	p, err := o.find(pointer)
	switch {
	case err != nil:
		return err
	case p.object != nil:
		p.object[p.name] = value
		return nil
	case p.name == "-":
		p.set(append(p.array, value))
		return nil
	}
	i, err := index(p.name, len(p.array)+1)
	if err == nil {
		err = o.shift(len(p.array) - i)
	}
	if err == nil {
		p.set(slices.Insert(p.array, i, value))
	}
	return err
}

func (o *patched) remove(pointer string) error {
	p, err := o.find(pointer)
	if err != nil {
		return err
	}
	if p.object != nil {
		if _, ok := p.object[p.name]; !ok {
			return errNoSuchPath
		}
		delete(p.object, p.name)
		return nil
	}
	i, err := index(p.name, len(p.array))
	if err == nil {
		err = o.shift(len(p.array) - i)
	}
	if err == nil {
		p.set(slices.Delete(p.array, i, i+1))
	}
	return err
}

// shift counts elements that are moved within an array.
func (o *patched) shift(n int) error {
	if o.shifts += int64(n); o.shifts > maxShifted {
		return errShifts
	}
	return nil
}

func (o *patched) replace(pointer string, value any) error {
	if pointer == "" {
		switch value.(type) {
		case map[string]any, []any:
			o.root = value
			return nil
		}
		return errors.New("a document must be an object or an array")
	}
	p, err := o.find(pointer)
	if err != nil {
		return err
	}
	if p.object != nil {
		p.object[p.name] = value
		return nil
	}
	i, err := index(p.name, len(p.array))
	if err == nil {
		p.array[i] = value
	}
	return err
}

func (o *patched) test(pointer string, value any) error {
	current := o.root
	if pointer != "" {
		p, err := o.find(pointer)
		if err != nil {
			return err
		}
		if current, err = p.get(); err != nil {
			return err
		}
	}
	if !reflect.DeepEqual(current, value) {
		return errTestFailed
	}
	return nil
}

// transfer applies "move" and "copy".
func (o *patched) transfer(operation jsonpatch.Operation, to string, move bool) error {
	from, err := operation.From()
	if err != nil {
		return err
	}
	p, err := o.find(from)
	if err != nil {
		return fmt.Errorf("from %q: %w", from, err)
	}
	value, err := p.get()
	if err == nil && move {
		err = o.remove(from)
	}
	if err != nil {
		return fmt.Errorf("from %q: %w", from, err)
	}
	if move {
		return o.add(to, value)
	}
	if value != nil {
		if value, err = o.duplicate(value); err != nil {
			return err
		}
	}
	return o.add(to, value)
}

// duplicate returns a deep copy.
func (o *patched) duplicate(value any) (any, error) {
	if !within(value, maxDepth) {
		return nil, errTooDeep
	}
	data, err := json.Marshal(value)
	if err != nil {
		return nil, err
	}
	if o.copied += int64(len(data)); o.copied > maxCopied {
		return nil, jsonpatch.NewAccumulatedCopySizeError(maxCopied, o.copied)
	}
	return decodeValue(data)
}
