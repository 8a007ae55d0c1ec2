// Package bodylimit bounds the memory of a decoded body. It counts the values of the
// encoded body without decoding it: two bytes of JSON, YAML, CBOR or protobuf can become a Go
// struct of a kilobyte, and three megabytes of them more memory than a process may take.
//
// Decisions:
//
//   - All media types have the same bound and error: [ErrTooMany].
//   - Counting allocates nothing and reads each byte a fixed number of times. A count may
//     be too high, never too low.
//   - Counting does not check whether a body is well-formed: its decoder does.
//   - A YAML alias counts as what it stands for (aliases.go).
//
// Runs in: gateway, core, crd.
package bodylimit

import (
	"errors"
	"fmt"
	"mime"
	"strings"
)

const (
	// MaxValues bounds the values of a body: members of objects, elements of arrays, objects
	// and arrays. That many take 80 MB in a custom resource. The largest
	// CustomResourceDefinitions in use have 50,000.
	MaxValues = 200_000
	// MaxItems bounds the elements of all arrays of a body for a Go type: each may be a
	// struct of two kilobytes, from two bytes of the body. The largest
	// CustomResourceDefinitions in use have 5,000.
	MaxItems = 30_000
)

// Errors of Measure. All but ErrTooDeep and errNested are answered 413.
var (
	ErrTooMany      = fmt.Errorf("the body has more than %d values", MaxValues)
	ErrTooManyItems = fmt.Errorf("the arrays of the body have more than %d elements in all", MaxItems)
)

// TooLarge reports whether a smaller body would avoid err, which is answered 413.
func TooLarge(err error) bool {
	return errors.Is(err, ErrTooMany) || errors.Is(err, ErrTooManyItems) || errors.Is(err, ErrTooLarge) || errors.Is(err, errLongAsJSON)
}

// Target is the type that a body is decoded into.
type Target int

const (
	// Maps is a tree of maps and slices, as for custom resources.
	Maps Target = iota
	// Structs is a Go type.
	Structs
)

// Size counts the contents of a body. The numbers are upper bounds.
type Size struct {
	Bytes, Values, Items int
	Target               Target
}

// Memory returns the approximate memory of a request with a body of this size, in bytes:
// the measured peak of the heap, with all copies until the response is sent.
func (s Size) Memory() int64 {
	memory := 8*int64(s.Bytes) + 400*int64(s.Values)
	if s.Target == Structs {
		memory += 2000 * int64(s.Items)
	}
	return memory
}

// Measure counts the values of a body of a media type; "" is JSON, and types of patches
// are JSON, YAML or CBOR by their suffix. Of other types only the bytes are known. Errors:
// ErrTooMany, ErrTooManyItems, ErrTooLarge (aliases), ErrTooDeep (protobuf), errNested,
// errLongAsJSON (CBOR), or that aliases cannot be measured.
func Measure(data []byte, mediaType string, target Target) (Size, error) {
	size := Size{Bytes: len(data), Target: target}
	var err error
	switch formOf(mediaType) {
	case formJSON:
		size.Values, size.Items = countJSON(data)
	case formYAML:
		size.Values, size.Items = countYAML(data)
		if err = size.within(); err == nil {
			err = checkAliases(data, maxAliased)
		} else {
			err = fmt.Errorf("%w, where each of \":-,?[{\" in YAML counts as one: send it as JSON", err)
		}
	case formProtobuf:
		// Elements are counted as fields, so the bound of fields applies.
		size.Values, err = countProtobuf(data)
		size.Items = size.Values * MaxItems / MaxValues
	case formCBOR:
		var json int
		size.Values, size.Items, json = countCBOR(data)
		if size.Bytes = max(size.Bytes, json); json > maxJSON && size.within() == nil {
			err = errLongAsJSON
		}
	}
	if err == nil {
		err = size.within()
	}
	if form := formOf(mediaType); errors.Is(err, ErrTooMany) && (form == formJSON || form == formYAML) && tooDeep(data) {
		err = errNested
	}
	return size, err
}

// within returns the error of an exceeded bound.
func (s Size) within() error {
	switch {
	case s.Values > MaxValues:
		return ErrTooMany
	case s.Target == Structs && s.Items > MaxItems:
		return ErrTooManyItems
	}
	return nil
}

// form is the encoding of a body.
type form int

const (
	formOther form = iota
	formJSON
	formYAML
	formProtobuf
	formCBOR
)

func formOf(mediaType string) form {
	if strings.Contains(mediaType, ";") {
		if bare, _, err := mime.ParseMediaType(mediaType); err == nil {
			mediaType = bare
		}
	}
	switch {
	case mediaType == "", mediaType == "application/json", strings.HasSuffix(mediaType, "+json"):
		return formJSON
	case mediaType == "application/yaml", strings.HasSuffix(mediaType, "+yaml"):
		return formYAML
	case mediaType == "application/vnd.kubernetes.protobuf":
		return formProtobuf
	case mediaType == "application/cbor", strings.HasSuffix(mediaType, "+cbor"):
		return formCBOR
	}
	return formOther
}
