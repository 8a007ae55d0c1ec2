package crd

import (
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	kjson "sigs.k8s.io/json"

	"portico/resource/jsonscan"
)

// decodeObject decodes a JSON object: integers are int64, other numbers float64.
// Strings may share one copy of data; see jsonscan.Decode.
func decodeObject(data []byte) (map[string]any, error) {
	if object, ok := quickDecode(data); ok {
		return object, nil
	}
	var object map[string]any
	err := kjson.UnmarshalCaseSensitivePreserveInts(data, &object)
	return object, err
}

// quickDecode is jsonscan.Decode for an object.
func quickDecode(data []byte) (map[string]any, bool) {
	value, ok := jsonscan.Decode(data)
	object, isObject := value.(map[string]any)
	return object, ok && isObject
}

// quickDecodeBody decodes a JSON body whose apiVersion and kind are want, and about
// which the general decoder has nothing to report. Otherwise it returns false.
func quickDecodeBody(data []byte, want schema.GroupVersionKind) (*unstructured.Unstructured, bool) {
	object, ok := quickDecode(data)
	if !ok || object["apiVersion"] != want.GroupVersion().String() || object["kind"] != want.Kind {
		return nil, false
	}
	for name := range object {
		// The general decoder ignores the case of these two.
		if name != "kind" && strings.EqualFold(name, "kind") || name != "apiVersion" && strings.EqualFold(name, "apiVersion") {
			return nil, false
		}
	}
	return &unstructured.Unstructured{Object: object}, true
}
