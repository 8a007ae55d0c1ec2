package kindtest

import (
	"reflect"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// EachEmpty calls emit with objects that differ from base in one field, which is empty as its Go type allows: [], {}, "", 0
// or false, or null where base has it. Fields that base lacks are set where base has the object that they are in. typ is the
// Go type of base, whose own metadata is not changed.
func EachEmpty(base map[string]any, typ reflect.Type, emit func(Mutation)) {
	m := &mutator{base: base, emit: emit}
	m.visitEmpty(nil, typ, base)
}

func (m *mutator) visitEmpty(path []any, t reflect.Type, v any) {
	for t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	if len(path) > 0 && v != nil {
		m.set(path, nil)
	}
	if e := emptyOf(t); len(path) > 0 && e != nil {
		m.set(path, e)
	}
	switch {
	case v == nil || isScalar(t):
	case t.Kind() == reflect.Struct:
		m.visitEmptyFields(path, t, v)
	case t.Kind() == reflect.Slice:
		for i, e := range v.([]any) {
			m.visitEmpty(join(path, i), t.Elem(), e)
		}
	case t.Kind() == reflect.Map:
		for key, e := range v.(map[string]any) {
			m.visitEmpty(join(path, key), t.Elem(), e)
		}
	}
}

func (m *mutator) visitEmptyFields(path []any, t reflect.Type, v any) {
	have, _ := v.(map[string]any)
	for i := range t.NumField() {
		f := t.Field(i)
		name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		switch {
		case f.Type == reflect.TypeFor[metav1.TypeMeta](), f.Type == reflect.TypeFor[metav1.ObjectMeta]() && len(path) == 0:
		case name == "" && f.Anonymous:
			m.visitEmptyFields(path, f.Type, v)
		case name != "" && name != "-":
			m.visitEmpty(join(path, name), f.Type, have[name])
		}
	}
}

// emptyOf returns the empty value of a type in JSON, or nil if the type has only null.
func emptyOf(t reflect.Type) any {
	if isScalar(t) {
		switch t.Kind() {
		case reflect.Bool:
			return false
		case reflect.Int, reflect.Int32, reflect.Int64, reflect.Uint32, reflect.Uint64:
			return 0
		case reflect.String, reflect.Slice:
			return ""
		}
		return nil
	}
	switch t.Kind() {
	case reflect.Struct, reflect.Map:
		return map[string]any{}
	case reflect.Slice:
		return []any{}
	}
	return nil
}
