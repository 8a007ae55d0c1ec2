// Package kindtest makes writes of built-in kinds for tests: valid objects, each of them with one field changed or empty,
// and objects that a fuzzer changes.
//
// Runs in: tests.
package kindtest

import (
	"encoding/json"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
)

// maxAbsent bounds how many levels of fields are added where a document has none.
const maxAbsent = 3

// Mutation is an object that differs from another in one field.
type Mutation struct {
	// Change says what was changed: a path and its new value.
	Change string
	// Body returns the object in JSON.
	Body func() []byte
}

// Each calls emit with base and with objects that differ from base in one field. typ is the
// Go type of base: every field of it is set to values that are usual, wrong, empty and too
// large, and to the constants of its type; every field of base is removed. Metadata of base
// itself is not changed. The order is random.
func Each(t testing.TB, base map[string]any, typ reflect.Type, emit func(Mutation)) {
	t.Helper()
	m := &mutator{base: base, constants: constantsOf(t), emit: emit}
	emit(Mutation{Change: "unchanged", Body: func() []byte { return Encoded(base) }})
	m.visit(nil, typ, base, 0)
}

type mutator struct {
	base map[string]any
	// constants returns the values of the constants of a named string type.
	constants func(t reflect.Type) []string
	emit      func(Mutation)
}

// visit emits the mutations at and below path. v is the value there, nil if there is none.
func (m *mutator) visit(path []any, t reflect.Type, v any, absent int) {
	for t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	if v == nil {
		if absent++; absent > maxAbsent {
			return
		}
	} else if len(path) > 0 {
		m.remove(path)
	}
	if samples := scalars(t); samples != nil {
		for _, s := range samples {
			m.set(path, s)
		}
		for _, s := range m.constants(t) {
			m.set(path, s)
		}
		return
	}
	switch t.Kind() {
	case reflect.Struct:
		m.visitStruct(path, t, v, absent)
	case reflect.Slice:
		m.visitSlice(path, t, v, absent)
	case reflect.Map:
		m.visitMap(path, t, v, absent)
	}
}

func (m *mutator) visitStruct(path []any, t reflect.Type, v any, absent int) {
	have, _ := v.(map[string]any)
	if len(path) > 0 {
		m.set(path, map[string]any{})
	}
	for i := range t.NumField() {
		f := t.Field(i)
		name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		switch {
		case f.Type == reflect.TypeFor[metav1.TypeMeta]():
		case f.Type == reflect.TypeFor[metav1.ObjectMeta]():
			if len(path) > 0 {
				m.visitMap(join(path, "metadata", "labels"), reflect.TypeFor[map[string]string](), Dig(have, "metadata", "labels"), absent)
			}
		case name == "" && f.Anonymous:
			m.visitStruct(path, f.Type, v, absent)
		case name == "" || name == "-":
		default:
			m.visit(join(path, name), f.Type, have[name], absent)
		}
	}
}

func (m *mutator) visitSlice(path []any, t reflect.Type, v any, absent int) {
	have, _ := v.([]any)
	m.set(path, []any{})
	if len(have) == 0 {
		m.visit(join(path, 0), t.Elem(), nil, absent-1)
		return
	}
	m.set(path, append(Clone(have).([]any), Clone(have[0])))
	for i, e := range have {
		m.visit(join(path, i), t.Elem(), e, absent)
	}
	m.visit(join(path, len(have)), t.Elem(), nil, absent-1)
}

func (m *mutator) visitMap(path []any, t reflect.Type, v any, absent int) {
	have, _ := v.(map[string]any)
	m.set(path, map[string]any{})
	for key, e := range have {
		m.visit(join(path, key), t.Elem(), e, absent)
	}
	for _, key := range []string{"a", "example.com/a", "A b!", "cpu", "memory", "ephemeral-storage", "storage", "pods", strings.Repeat("k", 300)} {
		if _, ok := have[key]; ok {
			continue
		}
		elem := t.Elem()
		if s := scalars(elem); s != nil {
			m.set(join(path, key), s[len(s)-1])
		} else {
			m.visit(join(path, key), elem, nil, absent)
		}
	}
}

// scalars returns values of a type, the last one the most usual; nil for types that are objects
// or arrays in JSON.
func scalars(t reflect.Type) []any {
	switch t {
	case reflect.TypeFor[resource.Quantity]():
		return []any{"", "-1", "0", "1m", "1500m", "3Gi", "999999999999999999", "1"}
	case reflect.TypeFor[intstr.IntOrString]():
		return []any{-1, 0, 70000, "", "http", "A b!", "-5%", "150%", "50%", 1}
	case reflect.TypeFor[metav1.Time]():
		return []any{nil, "2020-01-01T00:00:00Z"}
	case reflect.TypeFor[metav1.MicroTime]():
		return []any{nil, "2020-01-01T00:00:00.000000Z"}
	case reflect.TypeFor[metav1.Duration]():
		return []any{"-1s", "1s"}
	}
	switch t.Kind() {
	case reflect.String:
		return []any{"", "A b!", "-a", "/", "../a", "a/b", "example.com/a", "10.0.0.1", "10.0.0.0/8", "fd00::1", strings.Repeat("a", 64), strings.Repeat("a", 300), "x"}
	case reflect.Bool:
		return []any{false, true}
	case reflect.Int, reflect.Int32, reflect.Int64, reflect.Uint32, reflect.Uint64:
		return []any{-1, 0, 70000, 2_000_000_000, 1}
	case reflect.Slice:
		if t.Elem().Kind() == reflect.Uint8 {
			return []any{"", "eA=="}
		}
	}
	return nil
}

func (m *mutator) set(path []any, v any) {
	value := Encoded(v)
	if len(value) > 80 {
		value = fmt.Appendf(value[:80], "... (%d bytes)", len(value))
	}
	m.emit(Mutation{Change: text(path) + " = " + string(value), Body: func() []byte { return Encoded(Put(Clone(m.base), path, v)) }})
}

func (m *mutator) remove(path []any) {
	m.emit(Mutation{Change: text(path) + " removed", Body: func() []byte {
		doc := Clone(m.base)
		parent := Dig(doc, path[:len(path)-1]...)
		switch last := path[len(path)-1].(type) {
		case string:
			delete(parent.(map[string]any), last)
		case int:
			all := parent.([]any)
			doc = Put(doc, path[:len(path)-1], slices.Delete(slices.Clone(all), last, last+1))
		}
		return Encoded(doc)
	}})
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

// Clone returns a deep copy of a decoded JSON value.
func Clone(v any) any {
	switch v := v.(type) {
	case map[string]any:
		out := make(map[string]any, len(v))
		for k, e := range v {
			out[k] = Clone(e)
		}
		return out
	case []any:
		out := make([]any, len(v))
		for i, e := range v {
			out[i] = Clone(e)
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
