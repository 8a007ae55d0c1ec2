package openapi

import (
	"reflect"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func stringSchema() *schemaType { return &schemaType{Type: "string", UniqueItems: true} }

func query(name, kind, text string) parameter {
	return parameter{Name: name, In: "query", Description: text, Schema: &schemaType{Type: kind, UniqueItems: true}}
}

func getParameters() []parameter    { return parametersOf(metav1.GetOptions{}) }
func createParameters() []parameter { return parametersOf(metav1.CreateOptions{}) }
func updateParameters() []parameter { return parametersOf(metav1.UpdateOptions{}) }
func patchParameters() []parameter  { return parametersOf(metav1.PatchOptions{}) }
func deleteParameters() []parameter { return parametersOf(metav1.DeleteOptions{}) }

// listParameters leaves out the sharding of lists and watches, which no server
// here offers.
func listParameters() []parameter { return parametersOf(metav1.ListOptions{}, "shardSelector") }

// parametersOf describes the query parameters that are read into a struct of
// options, in its order. Members that are structs themselves have no form in a
// query.
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
		text := "string" // slices too: the parameter is repeated
		switch kind.Kind() {
		case reflect.Bool:
			text = "boolean"
		case reflect.Int64:
			text = "integer"
		}
		out = append(out, query(name, text, docs[name]))
	}
	return out
}
