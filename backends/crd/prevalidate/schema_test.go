package prevalidate

import (
	"fmt"
	"os"
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

// Every value of spec in the test data gets its verdict.
func TestCheckSpec(t *testing.T) {
	data, err := os.ReadFile("testdata/specs.txt")
	if err != nil {
		t.Fatal(err)
	}
	var schema *Schema
	var text string
	for line := range strings.Lines(string(data)) {
		fields := strings.Fields(line)
		switch {
		case len(fields) == 0 || fields[0] == "#":
		case fields[0] == "schema":
			text = strings.TrimPrefix(line, "schema ")
			schema = compiled(t, text)
		default:
			for _, value := range fields[1:] {
				if got := schema.Check(object(`{"name":"a"}`, value), Body); got.String() != fields[0] {
					t.Errorf("%s: %s is %v, not %s", text, value, got, fields[0])
				}
			}
		}
	}
	if schema == nil {
		t.Error("the test data has no schema")
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
