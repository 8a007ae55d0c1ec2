package custom

import (
	"bufio"
	"fmt"
	"math/rand/v2"
	"os"
	"strings"
	"testing"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"sigs.k8s.io/yaml"
)

// sample is a schema of package prevalidate's test data with values. usual are those about
// which that package decides anything.
type sample struct {
	schema      apiextensionsv1.JSONSchemaProps
	usual, rare []string
}

// samples reads the test data of package prevalidate.
func samples(t testing.TB) (all []*sample) {
	t.Helper()
	file, err := os.Open("../prevalidate/testdata/specs.txt")
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	for lines := bufio.NewScanner(file); lines.Scan(); {
		verdict, rest, _ := strings.Cut(lines.Text(), " ")
		switch verdict {
		case "", "#":
		case "schema":
			s := &sample{}
			if err := yaml.Unmarshal([]byte(rest), &s.schema); err != nil {
				t.Fatal(err)
			}
			all = append(all, s)
		case "unknown":
			all[len(all)-1].rare = strings.Fields(rest)
		default:
			s := all[len(all)-1]
			s.usual = append(s.usual, strings.Fields(rest)...)
		}
	}
	return all
}

// chance is true once in n times.
func chance(r *rand.Rand, n int) bool { return r.IntN(n) == 0 }

func pick[T any](r *rand.Rand, from ...T) T { return from[r.IntN(len(from))] }

// combined returns a schema with some samples as fields, items and values of maps, and the text
// of an object that mostly fits it.
func combined(r *rand.Rand, all []*sample) (*apiextensionsv1.JSONSchemaProps, []byte) {
	root := &apiextensionsv1.JSONSchemaProps{Type: "object", Properties: map[string]apiextensionsv1.JSONSchemaProps{}}
	members := []string{`"apiVersion":"example.com/v1"`, `"kind":"Bakery"`}
	if chance(r, 2) {
		members = append(members, `"metadata":`+madeMetadata(r))
	}
	for _, name := range []string{"spec", "status"}[:1+r.IntN(2)] {
		node, value := madeNode(r, all, 2)
		root.Properties[name] = node
		members = append(members, fmt.Sprintf("%q:%s", name, value))
	}
	if chance(r, 4) {
		root.Required = []string{"spec"}
	}
	if chance(r, 8) {
		root.XPreserveUnknownFields = new(true)
	}
	return root, []byte(joined(r, members))
}

// joined returns an object, sometimes with the members in another order or one of them twice.
func joined(r *rand.Rand, members []string) string {
	if len(members) > 0 && chance(r, 30) {
		members = append(members, pick(r, members...))
	}
	if chance(r, 3) {
		r.Shuffle(len(members), func(i, j int) { members[i], members[j] = members[j], members[i] })
	}
	return "{" + strings.Join(members, pick(r, ",", ",", " ,\n\t")) + "}"
}

// madeNode returns a schema of some samples, at most depth levels around them, and a value.
func madeNode(r *rand.Rand, all []*sample, depth int) (apiextensionsv1.JSONSchemaProps, string) {
	kind := r.IntN(6)
	if depth == 0 || kind == 0 {
		s := pick(r, all...)
		if len(s.rare) > 0 && (len(s.usual) == 0 || chance(r, 20)) {
			return s.schema, pick(r, s.rare...)
		}
		return s.schema, pick(r, s.usual...)
	}
	node := apiextensionsv1.JSONSchemaProps{Type: "object", Nullable: chance(r, 6), Properties: map[string]apiextensionsv1.JSONSchemaProps{}}
	if chance(r, 6) {
		node.XPreserveUnknownFields = new(true)
	}
	var members []string
	for _, name := range []string{"a", "b", "c", "d"}[:1+r.IntN(4)] {
		inner, value := madeNode(r, all, depth-1)
		node.Properties[name] = inner
		if chance(r, 4) {
			node.Required = append(node.Required, name)
		}
		if !chance(r, 8) {
			members = append(members, fmt.Sprintf("%q:%s", name, value))
		}
	}
	value := joined(r, members)
	switch kind {
	case 1:
		return apiextensionsv1.JSONSchemaProps{Type: "array", Items: &apiextensionsv1.JSONSchemaPropsOrArray{Schema: &node}}, "[" + value + "," + value + "]"
	case 2:
		return apiextensionsv1.JSONSchemaProps{Type: "object", AdditionalProperties: &apiextensionsv1.JSONSchemaPropsOrBool{Allows: true, Schema: &node}}, `{"k":` + value + `}`
	}
	return node, value
}

func madeMetadata(r *rand.Rand) string {
	all := []string{`"name":"a"`, `"namespace":"default"`, `"generation":1`, `"labels":{"a":"b"}`, `"annotations":{"x/y":"1\n2","z":""}`,
		`"creationTimestamp":"2024-05-01T05:00:00Z"`, `"finalizers":["a/b"]`, `"ownerReferences":[{"apiVersion":"v1","kind":"Pod","name":"x","uid":"y","controller":true}]`}
	if chance(r, 3) {
		all = append(all, `"creationTimestamp":null`, `"labels":{}`, `"generation":0`, `"deletionGracePeriodSeconds":0`, `"x":1`, `"ownerReferences":[{}]`)
	}
	r.Shuffle(len(all), func(i, j int) { all[i], all[j] = all[j], all[i] })
	return "{" + strings.Join(all[:r.IntN(len(all))], ",") + "}"
}
