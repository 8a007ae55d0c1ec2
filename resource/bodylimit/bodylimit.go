// Package bodylimit bounds what a body costs once it is decoded. It counts the
// values of a body in its encoded form, without decoding it: two bytes of JSON,
// YAML or protobuf become a Go struct of a kilobyte, and three megabytes of them
// more memory than a process may take.
//
// Decisions that shaped it:
//
//   - One bound for all media types, and one error: [ErrTooMany].
//   - Counting allocates nothing and goes over each byte a fixed number of times.
//     A count may be too high, never too low.
//   - The count need not know whether a body is well-formed: its decoder reports
//     that.
//   - An alias of YAML counts as what it stands for (aliases.go).
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
	// MaxValues is how many values a body may have: members of objects, elements
	// of arrays, objects and arrays. So many take 80 MB in a custom resource. The
	// largest CustomResourceDefinitions in use have 50,000.
	MaxValues = 200_000
	// MaxItems is how many elements the arrays of a body for a Go type may have in
	// all: each may be a struct of two kilobytes, from two bytes of the body. The
	// largest CustomResourceDefinitions in use have 5,000.
	MaxItems = 30_000
)

// Errors of Measure. All but ErrTooDeep are for a 413.
var (
	ErrTooMany      = fmt.Errorf("the body has more than %d values", MaxValues)
	ErrTooManyItems = fmt.Errorf("the arrays of the body have more than %d elements in all", MaxItems)
)

// TooLarge reports whether err says that a body is beyond a bound that a smaller
// body would meet, which is a 413.
func TooLarge(err error) bool {
	return errors.Is(err, ErrTooMany) || errors.Is(err, ErrTooManyItems) || errors.Is(err, ErrTooLarge)
}

// Target is what a body is decoded into.
type Target int

const (
	// Maps is a tree of maps and slices, as of custom resources.
	Maps Target = iota
	// Structs is a Go type.
	Structs
)

// Size is how much there is in a body. The numbers are upper bounds.
type Size struct {
	Bytes, Values, Items int
	Target               Target
}

// Memory is how much a request for which a body of that size is decoded takes, in
// bytes, about: measured as the heap in use at most, with everything that is made
// of the body until the answer is sent.
func (s Size) Memory() int64 {
	memory := 8*int64(s.Bytes) + 400*int64(s.Values)
	if s.Target == Structs {
		memory += 2000 * int64(s.Items)
	}
	return memory
}

// Measure counts the values of a body of a media type. "" is JSON; types of patches
// are JSON or YAML by their suffix. Of a type that is neither JSON, YAML nor
// protobuf only the bytes are known. Errors: ErrTooMany, ErrTooManyItems,
// ErrTooLarge (aliases), ErrTooDeep (protobuf), or that aliases cannot be measured.
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
		// Elements are not told from other fields: a bound on fields is one on them.
		size.Values, err = countProtobuf(data)
		size.Items = size.Values * MaxItems / MaxValues
	}
	if err == nil {
		err = size.within()
	}
	return size, err
}

// within returns the error for what is beyond its bound.
func (s Size) within() error {
	switch {
	case s.Values > MaxValues:
		return ErrTooMany
	case s.Target == Structs && s.Items > MaxItems:
		return ErrTooManyItems
	}
	return nil
}

// form is how a body is encoded.
type form int

const (
	formOther form = iota
	formJSON
	formYAML
	formProtobuf
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
	}
	return formOther
}
