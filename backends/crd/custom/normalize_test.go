package custom

import (
	"encoding/json"
	"fmt"
	"testing"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/defaulting"
	"sigs.k8s.io/yaml"
)

// The counted size is at least the size that defaults add.
func TestCountOfDefaults(t *testing.T) {
	var props apiextensionsv1.JSONSchemaProps
	if err := yaml.Unmarshal([]byte(`
type: object
properties:
  a: {type: string, default: abc}
  b: {type: object, default: {}, properties: {c: {type: integer, default: 1}, d: {type: string, nullable: true, default: e}}}
  l: {type: array, items: {type: object, default: {}, properties: {m: {type: string, default: n}}}}
  o: {type: object, additionalProperties: {type: object, default: {x: y}, properties: {x: {type: string}, z: {type: boolean, default: true}}}}
`), &props); err != nil {
		t.Fatal(err)
	}
	structural := subjectOf(t, &apiextensionsv1.CustomResourceValidation{OpenAPIV3Schema: &props}).structural
	for _, text := range []string{`{}`, `{"a":null}`, `{"b":{"d":null}}`, `{"b":null}`, `{"l":[{},null,{"m":"x"}]}`, `{"o":{"p":{},"q":null}}`, `{"a":"x","b":{"c":1,"d":"x"}}`} {
		object, err := decodeObject([]byte(text))
		if err != nil {
			t.Fatal(err)
		}
		count := defaultCount{left: maxDefaults, steps: maxDefaultSteps}
		if !count.within(object, *structural) {
			t.Fatal("the limit is exceeded")
		}
		before, _ := json.Marshal(object)
		defaulting.Default(object, structural)
		after, _ := json.Marshal(object)
		added, counted := len(after)-len(before), maxDefaults-count.left
		if counted < added || (counted == 0) != (added == 0) {
			t.Errorf("%s: counted %d bytes, added %d: %s", text, counted, added, fmt.Sprint(string(after)))
		}
	}
}
