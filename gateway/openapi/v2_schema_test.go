package openapi

import (
	"encoding/json"
	"slices"
	"testing"

	"k8s.io/kube-openapi/pkg/validation/spec"
)

// Schemas are converted to what readers of v2 support; the source is not changed.
func TestSchemasOfV2(t *testing.T) {
	p := v2Schemas{has: func(name string) bool {
		return slices.Contains([]string{"Known", "example.com/a.Known", "example.com_2fa.Known"}, name)
	}}
	for name, tc := range map[string]struct{ in, want string }{
		"reference":             {`{"$ref":"#/components/schemas/Known"}`, `{"$ref":"#/definitions/Known"}`},
		"reference of v2":       {`{"$ref":"#/definitions/Known"}`, `{"$ref":"#/definitions/Known"}`},
		"escaped reference":     {`{"$ref":"#/components/schemas/example.com~1a.Known"}`, `{"$ref":"#/definitions/example.com_2fa.Known"}`},
		"escaped twice":         {`{"$ref":"#/components/schemas/example.com%2Fa.Known"}`, `{"$ref":"#/definitions/example.com_2fa.Known"}`},
		"escaped, dangling":     {`{"$ref":"#/components/schemas/Known~1"}`, `{}`},
		"wrapped reference":     {`{"description":"d","allOf":[{"$ref":"#/components/schemas/Known"}],"default":{}}`, `{"description":"d","$ref":"#/definitions/Known"}`},
		"dangling reference":    {`{"description":"d","$ref":"#/components/schemas/Unknown"}`, `{"description":"d"}`},
		"dangling, wrapped":     {`{"allOf":[{"$ref":"#/components/schemas/Unknown"}]}`, `{}`},
		"foreign reference":     {`{"$ref":"https://example.com/schema.json"}`, `{}`},
		"int or string type":    {`{"oneOf":[{"type":"integer"},{"type":"string"}]}`, `{"type":"string","format":"int-or-string"}`},
		"quantity":              {`{"oneOf":[{"type":"string"},{"type":"number"}]}`, `{"type":"string"}`},
		"choice of objects":     {`{"type":"object","oneOf":[{"required":["a"]},{"required":["b"]}],"properties":{"a":{"type":"string"}}}`, `{"type":"object","properties":{"a":{"type":"string"}}}`},
		"int or string of CRD":  {`{"x-kubernetes-int-or-string":true,"anyOf":[{"type":"integer"},{"type":"string"}]}`, `{"x-kubernetes-int-or-string":true}`},
		"nullable":              {`{"type":"object","required":["a","b"],"properties":{"a":{"type":"string","nullable":true},"b":{"type":"string"}}}`, `{"type":"object","required":["b"],"properties":{"a":{},"b":{"type":"string"}}}`},
		"preserved object":      {`{"type":"object","x-kubernetes-preserve-unknown-fields":true,"properties":{"a":{"type":"string"}}}`, `{"x-kubernetes-preserve-unknown-fields":true}`},
		"preserved array":       {`{"type":"array","x-kubernetes-preserve-unknown-fields":true,"items":{"type":"string"}}`, `{"x-kubernetes-preserve-unknown-fields":true}`},
		"array without items":   {`{"type":"array"}`, `{}`},
		"items of no array":     {`{"type":"string","items":{"type":"string"}}`, `{"type":"string"}`},
		"several types":         {`{"type":["string","null"]}`, `{}`},
		"unknown type":          {`{"type":"file"}`, `{}`},
		"map":                   {`{"type":"object","additionalProperties":{"allOf":[{"$ref":"#/components/schemas/Known"}]}}`, `{"type":"object","additionalProperties":{"$ref":"#/definitions/Known"}}`},
		"default inside":        {`{"type":"object","properties":{"a":{"type":"integer","default":3}}}`, `{"type":"object","properties":{"a":{"type":"integer"}}}`},
		"extensions stay":       {`{"type":"array","items":{"type":"string"},"x-kubernetes-list-type":"set"}`, `{"type":"array","items":{"type":"string"},"x-kubernetes-list-type":"set"}`},
		"patterns stay":         {`{"type":"string","pattern":"^a","maxLength":3,"enum":["a"]}`, `{"type":"string","pattern":"^a","maxLength":3,"enum":["a"]}`},
		"nested, kept readable": {`{"type":"array","items":{"type":"array"}}`, `{"type":"array","items":{}}`},
	} {
		t.Run(name, func(t *testing.T) {
			var in, want spec.Schema
			if err := json.Unmarshal([]byte(tc.in), &in); err != nil {
				t.Fatal(err)
			}
			if err := json.Unmarshal([]byte(tc.want), &want); err != nil {
				t.Fatal(err)
			}
			before, _ := json.Marshal(&in)
			made := p.schema(&in)
			got, _ := json.Marshal(&made)
			expected, _ := json.Marshal(&want)
			if string(got) != string(expected) {
				t.Errorf("%s, want %s", got, expected)
			}
			if after, _ := json.Marshal(&in); string(after) != string(before) {
				t.Errorf("the schema was changed to %s", after)
			}
			again := p.schema(&made)
			if twice, _ := json.Marshal(&again); string(twice) != string(got) {
				t.Errorf("converted twice: %s", twice)
			}
		})
	}
}

// The definition of a kind with unknown fields says which kind it is and nothing else; one without a kind keeps the
// extension.
func TestDefinitionOfUnknownFields(t *testing.T) {
	t.Parallel()
	const kinds = `"x-kubernetes-group-version-kind":[{"group":"example.com","kind":"Widget","version":"v1"}]`
	for in, want := range map[string]string{
		`{"type":"object","description":"d","x-kubernetes-preserve-unknown-fields":true,"properties":{"a":{"type":"string"}},"x-kubernetes-selectable-fields":[{"fieldPath":"spec.a"}],` + kinds + `}`: `{"type":"object",` + kinds + `,"x-kubernetes-selectable-fields":[{"fieldPath":"spec.a"}]}`,
		`{"type":"object","x-kubernetes-preserve-unknown-fields":true}`: `{"x-kubernetes-preserve-unknown-fields":true}`,
	} {
		var s spec.Schema
		if err := json.Unmarshal([]byte(in), &s); err != nil {
			t.Fatal(err)
		}
		made := v2Schemas{}.definitions(map[string]*spec.Schema{"w": &s})
		if got, err := json.Marshal(made["w"]); err != nil || string(got) != want {
			t.Errorf("%s, %v, want %s", got, err, want)
		}
	}
}
