package openapi

import (
	"reflect"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func query(name, kind, text string) parameter {
	return parameter{Name: name, In: "query", Description: text, Schema: schemaType{Type: kind, UniqueItems: true}}
}

func createParameters() []parameter { return parametersOf(metav1.CreateOptions{}) }
func updateParameters() []parameter { return parametersOf(metav1.UpdateOptions{}) }
func patchParameters() []parameter  { return parametersOf(metav1.PatchOptions{}) }
func deleteParameters() []parameter { return parametersOf(metav1.DeleteOptions{}) }

func listParameters(without ...string) []parameter {
	return parametersOf(metav1.ListOptions{}, without...)
}

type documented interface{ SwaggerDoc() map[string]string }

// parametersOf describes the query parameters of a struct of options, in its order. Members that are
// structs are no parameters.
func parametersOf(options documented, without ...string) []parameter {
	var out []parameter
	docs := options.SwaggerDoc()
	t := reflect.TypeOf(options)
	for i := range t.NumField() {
		f := t.Field(i)
		name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		kind := f.Type
		if kind.Kind() == reflect.Pointer {
			kind = kind.Elem()
		}
		if name == "" || kind.Kind() == reflect.Struct || slices.Contains(without, name) {
			continue
		}
		if kind.Kind() == reflect.Slice { // the parameter is repeated
			kind = kind.Elem()
		}
		text := "string"
		switch kind.Kind() {
		case reflect.Bool:
			text = "boolean"
		case reflect.Int32, reflect.Int64:
			text = "integer"
		}
		out = append(out, query(name, text, docs[name]))
	}
	return out
}
