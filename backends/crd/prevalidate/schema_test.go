package prevalidate

import (
	"fmt"
	"strings"
	"testing"

	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"sigs.k8s.io/yaml"
)

// compiled compiles the schema of an object with that schema of spec.
func compiled(t testing.TB, spec string) *Schema {
	t.Helper()
	in, out := &apiextensionsv1.JSONSchemaProps{}, &apiextensions.JSONSchemaProps{}
	if err := yaml.Unmarshal([]byte("{type: object, properties: {spec: "+spec+"}}"), in); err != nil {
		t.Fatal(err)
	}
	if err := apiextensionsv1.Convert_v1_JSONSchemaProps_To_apiextensions_JSONSchemaProps(in, out, nil); err != nil {
		t.Fatal(err)
	}
	return Compile(out)
}

func object(metadata, spec string) []byte {
	return fmt.Appendf(nil, `{"apiVersion":"example.com/v1","kind":"Bakery","metadata":%s,"spec":%s}`, metadata, spec)
}

// Each line of values is a verdict and the values of spec that get it.
func TestCheckSpec(t *testing.T) {
	for schema, values := range map[string]string{
		`{type: string}`: `
			valid "" "a" "é" "\"\\\/\b\f\n\r\t" "\u003c\u00e9" "日本"
			canonical 1 true {} [1]
			unknown null "\ud83d\ude00" "\x" "a "\u12g4"`,
		`{type: string, nullable: true, minLength: 1}`:          `valid null "a"; canonical ""`,
		`{type: string, nullable: true, enum: [a]}`:             `valid "a"; canonical null "b" "A"`,
		`{type: string, minLength: 2, maxLength: 3}`:            `valid "aé" "日本語" "\u00e9\n"; canonical "é" "日本語日" "\n"`,
		`{type: string, pattern: '^[a-z"]+$'}`:                  `valid "a" "\"a"; canonical "" "A" "\\a"`,
		`{type: string, format: date-time}`:                     `valid "2024-05-01T05:00:00Z"; canonical "2024" "today"`,
		`{type: string, format: unheard-of}`:                    `valid "a"`,
		`{type: integer, minimum: 1, maximum: 5}`:               `valid 1 5; canonical 0 6 -1 1.5 "1"; unknown 1.0 1e0 01 -0 +1 99999999999999999999`,
		`{type: integer, minimum: 1, exclusiveMinimum: true}`:   `valid 2; canonical 1`,
		`{type: integer, maximum: 1.5}`:                         `canonical 1 2`,
		`{type: integer, format: int32}`:                        `valid 2147483647 -2147483648; canonical 2147483648 -2147483649`,
		`{type: integer, multipleOf: 5}`:                        `valid 0 5 -10 100000000000000; canonical 4 1000000000000000`,
		`{type: integer}`:                                       `valid 999999999999999; canonical 1000000000000000`,
		`{type: number}`:                                        `valid 999999999999999; canonical 999999999999999999`,
		`{type: integer, enum: [1, 2]}`:                         `canonical 1 3`,
		`{type: number, minimum: 1, maximum: 2}`:                `valid 1 2 1.25; canonical 0 0.25 2.5 3; unknown 1.0 1.50 .5 1. 1.2345678901234567`,
		`{type: number, multipleOf: 0.5}`:                       `canonical 1.5 1.25`,
		`{type: number, enum: [1.5]}`:                           `canonical 1.5 1`,
		`{type: boolean, enum: [true]}`:                         `canonical true false "true" 1; unknown True null`,
		`{x-kubernetes-int-or-string: true}`:                    `valid 1 "a"; canonical 1.5 true {}; unknown null`,
		`{type: object}`:                                        `valid {}; canonical [] "a"; unknown {"a":1}`,
		`{x-kubernetes-preserve-unknown-fields: true}`:          `valid {} [] 1 {"a":{"b":[1,null,{}]}} {"\"":1}; unknown {"a":1,"a":1} {"b":1,"a":1,"b":1} {"a":1.0} {"\u0061":1}`,
		`{type: object, additionalProperties: {type: integer}}`: `valid {"b":1,"a":2} {"a\n":1}; canonical {"a":"b"}; unknown {"a":null} {"a":1,"a":1} {"a\/":1}`,
		`{type: object, additionalProperties: true}`:            `valid {"a":1,"b":{},"c":[1,{}],"d":null}; unknown {"a":{"b":1}} {"a":[{"b":1}]}`,
		`{type: object, minProperties: 1, maxProperties: 2, additionalProperties: {type: integer}}`: `valid {"a":1}; canonical {} {"a":1,"b":1,"c":1}`,
		`{type: array, minItems: 1, maxItems: 2, items: {type: integer}}`:                           `valid [1] [1,1]; canonical [] [1,1,1] ["a"] {}; unknown [1,] [null]`,
		`{type: array, items: {type: object, properties: {a: {type: string}}}}`:                     `valid [{}] [{"a":"x"}]; unknown [{"b":1}]`,
		`{type: array, x-kubernetes-preserve-unknown-fields: true, items: {type: object, properties: {a: {type: string}}}}`: `
			valid [{"b":1}]
			canonical [{"a":1}]`,
		`{type: array, x-kubernetes-list-type: set, items: {x-kubernetes-int-or-string: true}}`: `valid [1,"1"] []; canonical [1,2,1] ["a","a"] ["a","b\n"]`,
		`{type: array, x-kubernetes-list-type: map, x-kubernetes-list-map-keys: [a, b], items: {type: object, properties: {a: {type: string}, b: {type: integer}, c: {type: string}}}}`: `
			valid [{"a":"x","b":1},{"b":2,"a":"x"}] [{"a":"x"},{"b":1},{}]
			canonical [{"a":"x","b":1},{"b":1,"a":"x","c":"y"}] [{},{}] [{"a":"x"},{"a":"x"}]`,
		`{type: object, required: [a], properties: {a: {type: string}, b: {type: integer, default: 1}}}`: `
			valid {"a":"x","b":2} {"b":2,"a":"x"}
			canonical {"b":2}
			lacks-defaults {"a":"x"} {}
			unknown {"a":"x","b":2,"c":3} {"a":"x","b":null} {"\u0061":"x","b":2}`,
		`{type: object, x-kubernetes-preserve-unknown-fields: true, properties: {a: {type: object, properties: {b: {type: string}}}}}`: `
			valid {"x":{"y":1},"a":{"b":"c"}}
			unknown {"a":{"x":1}} {"\"":1}`,
		`{type: object, properties: {a: {type: string}, b: {type: string}}, oneOf: [{required: [a]}, {required: [b]}]}`: `
			valid {"a":""} {"b":""}
			canonical {} {"a":"","b":""}`,
		`{type: object, properties: {a: {type: string}, b: {type: string}}, not: {required: [a]}, anyOf: [{required: [a]}, {required: [b]}]}`: `
			canonical {"b":""} {"a":""} {"a":"","b":""} {}`,
		`{type: object, properties: {a: {type: number}}, oneOf: [{required: [a]}, {properties: {a: {enum: [1.5]}}}]}`: `canonical {"a":1.5} {}`,
		`{type: integer, allOf: [{minimum: 1}, {maximum: 3}]}`:                                                        `valid 1 3; canonical 0 4`,
		`{type: object, additionalProperties: {type: integer}, allOf: [{additionalProperties: {minimum: 1}}]}`:        `canonical {"a":1} {"a":0}`,
		`{type: object, x-kubernetes-embedded-resource: true, x-kubernetes-preserve-unknown-fields: true}`: `
			canonical {"apiVersion":"v1","kind":"Pod","spec":{}} {} {"apiVersion":"v1","kind":"Pod","metadata":{"name":"a"}}
			unknown {"apiVersion":1,"kind":"Pod"} {"apiVersion":"v1","kind":"Pod","metadata":{"nam":"a"}} {"apiVersion":"v1","kind":"Pod","metadata":{"creationTimestamp":null}}`,
		`{type: object, x-kubernetes-embedded-resource: true, x-kubernetes-preserve-unknown-fields: true, properties: {metadata: {type: object, properties: {name: {type: string, default: a}}}}}`: `
			unknown {"apiVersion":"v1","kind":"Pod"}`,
	} {
		a := compiled(t, schema)
		for _, line := range strings.FieldsFunc(values, func(r rune) bool { return r == ';' || r == '\n' }) {
			fields := strings.Fields(line)
			for i := 1; i < len(fields); i++ {
				if got := a.Check(object(`{"name":"a"}`, fields[i]), Body); got.String() != fields[0] {
					t.Errorf("%s: %s is %v, not %s", schema, fields[i], got, fields[0])
				}
			}
		}
	}
}

func (v Verdict) String() string {
	return [...]string{"unknown", "lacks-defaults", "canonical", "valid"}[v]
}

func TestCheckMetadata(t *testing.T) {
	a := compiled(t, "{type: object}")
	for metadata, want := range map[string]struct{ body, stored Verdict }{
		`{"name":"a","generation":1}`: {Valid, Valid},
		`{"name":"a"}`:                {Valid, Unknown},
		`{}`:                          {Valid, Unknown},
		`{"creationTimestamp":null,"generation":1}`: {Valid, Unknown},
		`{"generation":1,"uid":"u","resourceVersion":"1","namespace":"n","generateName":"g","selfLink":"s","deletionGracePeriodSeconds":0,
			"creationTimestamp":"2024-02-28T23:59:59Z","deletionTimestamp":"2024-12-31T00:00:00Z","labels":{"a":""},"annotations":{"b":"\n"},"finalizers":["x"]}`: {Valid, Valid},
		`{"generation":1,"ownerReferences":[{"apiVersion":"v1","kind":"Pod","name":"a","uid":"","controller":true,"blockOwnerDeletion":false}]}`: {Valid, Valid},
		`{"generation":1,"ownerReferences":[{"apiVersion":"v1","kind":"Pod","name":"a"}]}`:                                                       {Unknown, Unknown},
		`{"generation":1,"ownerReferences":[{"apiVersion":"v1","kind":"Pod","name":"a","uid":"","controller":null}]}`:                            {Unknown, Unknown},
		`{"generation":1,"managedFields":[{"manager":"m","operation":"Update","apiVersion":"v1","time":"2024-05-01T05:00:00Z","fieldsType":"FieldsV1",
			"fieldsV1":{"f:a":{".":{},"k:{\"x\":1}":{}}},"subresource":"status"},{}]}`: {Valid, Valid},
		`{"generation":1,"managedFields":[{"manager":""}]}`:           {Unknown, Unknown},
		`{"generation":1,"managedFields":[{"fieldsV1":null}]}`:        {Unknown, Unknown},
		`{"generation":1,"managedFields":[{"fieldsV1":{"f:a":1}}]}`:   {Unknown, Unknown},
		`{"generation":1,"creationTimestamp":"2024-02-29T00:00:00Z"}`: {Unknown, Unknown},
		`{"generation":1,"creationTimestamp":"2024-04-31T00:00:00Z"}`: {Unknown, Unknown},
		`{"generation":1,"creationTimestamp":"2024-04-30T24:00:00Z"}`: {Unknown, Unknown},
		`{"generation":1,"creationTimestamp":"0001-01-01T00:00:00Z"}`: {Unknown, Unknown},
		`{"generation":1,"creationTimestamp":"2024-04-30 00:00:00Z"}`: {Unknown, Unknown},
		`{"generation":0}`:                       {Unknown, Unknown},
		`{"generation":1.5}`:                     {Unknown, Unknown},
		`{"generation":1,"labels":{}}`:           {Unknown, Unknown},
		`{"generation":1,"labels":{"a":1}}`:      {Unknown, Unknown},
		`{"generation":1,"labels":[]}`:           {Unknown, Unknown},
		`{"generation":1,"finalizers":[]}`:       {Unknown, Unknown},
		`{"generation":1,"name":""}`:             {Unknown, Unknown},
		`{"generation":1,"name":null}`:           {Unknown, Unknown},
		`{"generation":1,"clusterName":"a"}`:     {Unknown, Unknown},
		`{"generation":1,"name":"a","name":"a"}`: {Unknown, Unknown},
		`null`:                                   {Unknown, Unknown},
		`[]`:                                     {Unknown, Unknown},
	} {
		data := object(metadata, "{}")
		if body, stored := a.Check(data, Body), a.Check(data, Stored); body != want.body || stored != want.stored {
			t.Errorf("%s: %v as a body, %v as stored", metadata, body, stored)
		}
	}
}

func TestCheckWhole(t *testing.T) {
	a := compiled(t, "{x-kubernetes-preserve-unknown-fields: true}")
	for text, want := range map[string]Verdict{
		" {\n\t\"kind\" : \"A\" ,\r\"apiVersion\":\"v1\" , \"spec\" : [ 1 , { \"a\" : true } ] } ": Valid,
		`{"kind":"A","apiVersion":"v1"}`:  Valid,
		`{"kind":"A","apiVersion":"v1"}x`: Unknown,
		`{"kind":"A","apiVersion":"v1"`:   Unknown,
		`{"kind":"A"}`:                    Unknown,
		`{"kind":"","apiVersion":"v1"}`:   Unknown,
		`{"kind":"A","apiVersion":"/"}`:   Unknown, `{"kind":"A","apiVersion":"a/b/c"}`: Unknown,
		`{"kind":1,"apiVersion":"v1"}`:                                        Unknown,
		`{"kind":"A","apiVersion":"v1","spec":"` + "\xff" + `"}`:              Unknown,
		`{"kind":"A","apiVersion":"v1","spec":"` + "\x01" + `"}`:              Unknown,
		`{"kind":"A","apiVersion":"v1","spec":tru}`:                           Unknown,
		`{"kind":"A","apiVersion":"v1","spec":}`:                              Unknown,
		`{"kind":"A","apiVersion":"v1","spec":"`:                              Unknown,
		`{"kind":"A","apiVersion":"v1","spec":"\`:                             Unknown,
		`{"kind":"A","apiVersion":"v1","spec":"\u00`:                          Unknown,
		`{"kind":"A","apiVersion":"v1","spec":-`:                              Unknown,
		`{"kind":"A","apiVersion":"v1","other":1}`:                            Unknown,
		`{"kind":"A","apiVersion":"v1","spec":` + nested(maxDepth-1) + `}`:    Valid,
		`{"kind":"A","apiVersion":"v1","spec":` + nested(maxDepth) + `}`:      Unknown,
		`{"kind":"A","apiVersion":"v1","spec":` + unordered(manyKeys) + `}`:   Valid,
		`{"kind":"A","apiVersion":"v1","spec":` + unordered(manyKeys+2) + `}`: Unknown,
		``: Unknown, `{`: Unknown, `[]`: Unknown, `null`: Unknown,
	} {
		if got := a.Check([]byte(text), Body); got != want {
			t.Errorf("%s is %v", text, got)
		}
	}
	// A preserved field that decoders might take for apiVersion or kind is Unknown.
	a = Compile(&apiextensions.JSONSchemaProps{Type: "object", XPreserveUnknownFields: new(true)})
	for name, want := range map[string]Verdict{"other": Valid, "Kind": Unknown, "apiversion": Unknown} {
		if got := a.Check([]byte(`{"`+name+`":"B","apiVersion":"v1","kind":"A"}`), Body); got != want {
			t.Errorf("an object with a field %s is %v", name, got)
		}
	}
}

// nested returns a list in n-1 lists.
func nested(n int) string { return strings.Repeat("[", n) + strings.Repeat("]", n) }

// unordered returns an object of n keys, of which the last sorts first.
func unordered(n int) string {
	var b strings.Builder
	b.WriteByte('{')
	for i := range n - 1 {
		fmt.Fprintf(&b, `"k%03d":1,`, i)
	}
	return b.String() + `"a":1}`
}

// A schema that requires more than maxBits names does not decide validity.
func TestManyRequired(t *testing.T) {
	names := make([]string, maxBits+1)
	for i := range names {
		names[i] = fmt.Sprintf("n%03d", i)
	}
	some := `{"` + strings.Join(names[:maxBits], `":1,"`) + `":1}`
	for n, want := range map[int]Verdict{maxBits: Valid, maxBits + 1: Canonical} {
		a := compiled(t, fmt.Sprintf("{type: object, x-kubernetes-preserve-unknown-fields: true, anyOf: [{required: [%s]}]}", strings.Join(names[:n], ", ")))
		if got := a.Check(object("{}", some), Body); got != want {
			t.Errorf("%d of %d names: %v", maxBits, n, got)
		}
	}
}

// Sets of more than manyElements elements are not decided.
func TestManyElements(t *testing.T) {
	a := compiled(t, "{type: array, x-kubernetes-list-type: set, items: {type: integer}}")
	list := "[0"
	for i := range manyElements - 1 {
		list += fmt.Sprintf(",%d", i+1)
	}
	for more, want := range map[string]Verdict{"]": Valid, ",-1]": Canonical} {
		if got := a.Check(object("{}", list+more), Body); got != want {
			t.Errorf("a set of %d elements and %s is %v, want %v", manyElements, more, got, want)
		}
	}
}
