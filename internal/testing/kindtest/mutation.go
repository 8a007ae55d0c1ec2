// Package kindtest makes writes of built-in kinds for tests: valid objects, mutations of them with one empty field,
// and objects that a fuzzer changes.
//
// Runs in: tests.
package kindtest

import (
	"encoding/json"
	"fmt"
	"reflect"
	"strings"

	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
)

// Mutation is an object that differs from another in one field.
type Mutation struct {
	// Change says what was changed: a path and its new value.
	Change string
	// Body returns the object in JSON.
	Body func() []byte
}

type mutator struct {
	base map[string]any
	emit func(Mutation)
}

// isScalar reports whether a type is neither an object nor an array in JSON.
func isScalar(t reflect.Type) bool {
	switch t {
	case reflect.TypeFor[resource.Quantity](), reflect.TypeFor[intstr.IntOrString](), reflect.TypeFor[metav1.Time](), reflect.TypeFor[metav1.MicroTime](),
		reflect.TypeFor[metav1.Duration]():
		return true
	}
	switch t.Kind() {
	case reflect.String, reflect.Bool, reflect.Int, reflect.Int32, reflect.Int64, reflect.Uint32, reflect.Uint64:
		return true
	case reflect.Slice:
		return t.Elem().Kind() == reflect.Uint8
	}
	return false
}

func (m *mutator) set(path []any, v any) {
	value := Encoded(v)
	if len(value) > 80 {
		value = fmt.Appendf(value[:80], "... (%d bytes)", len(value))
	}
	m.emit(Mutation{Change: text(path) + " = " + string(value), Body: func() []byte { return Encoded(Put(clone(m.base), path, v)) }})
}

// Put returns at with v at path; what is missing on the way is made.
func Put(at any, path []any, v any) any {
	if len(path) == 0 {
		return v
	}
	switch key := path[0].(type) {
	case string:
		o, _ := at.(map[string]any)
		if o == nil {
			o = map[string]any{}
		}
		o[key] = Put(o[key], path[1:], v)
		return o
	case int:
		l, _ := at.([]any)
		if key == len(l) {
			l = append(l, nil)
		}
		l[key] = Put(l[key], path[1:], v)
		return l
	}
	panic("a path has strings and integers")
}

// Dig returns the value at path, nil if there is none.
func Dig(at any, path ...any) any {
	for _, p := range path {
		switch key := p.(type) {
		case string:
			o, _ := at.(map[string]any)
			at = o[key]
		case int:
			l, _ := at.([]any)
			if key >= len(l) {
				return nil
			}
			at = l[key]
		}
	}
	return at
}

func join(path []any, more ...any) []any {
	return append(append([]any{}, path...), more...)
}

func text(path []any) string {
	var b strings.Builder
	for _, p := range path {
		switch key := p.(type) {
		case string:
			if b.Len() > 0 {
				b.WriteByte('.')
			}
			if len(key) > 80 {
				key = key[:20] + "..."
			}
			b.WriteString(key)
		case int:
			fmt.Fprintf(&b, "[%d]", key)
		}
	}
	return b.String()
}

// clone returns a deep copy of a decoded JSON value.
func clone(v any) any {
	switch v := v.(type) {
	case map[string]any:
		out := make(map[string]any, len(v))
		for k, e := range v {
			out[k] = clone(e)
		}
		return out
	case []any:
		out := make([]any, len(v))
		for i, e := range v {
			out[i] = clone(e)
		}
		return out
	}
	return v
}

// Encoded returns v in JSON.
func Encoded(v any) []byte {
	data, err := json.Marshal(v)
	if err != nil {
		panic(err)
	}
	return data
}
