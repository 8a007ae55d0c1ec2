package custom

import (
	"encoding/json"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"

	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
)

// chance is true once in n times.
func chance(r *rand.Rand, n int) bool { return r.IntN(n) == 0 }

func pick[T any](r *rand.Rand, from ...T) T { return from[r.IntN(len(from))] }

var madeNames = []string{"a", "b", "c", "name", "type", "value"}

// madeSchema makes the schema of a whole object.
func madeSchema(r *rand.Rand) *apiextensionsv1.JSONSchemaProps {
	p := &apiextensionsv1.JSONSchemaProps{Type: "object", Properties: map[string]apiextensionsv1.JSONSchemaProps{"spec": *madeNode(r, 3)}}
	if chance(r, 3) {
		p.Properties["status"] = *madeNode(r, 2)
	}
	if chance(r, 4) {
		p.Required = []string{"spec"}
	}
	if chance(r, 6) {
		p.Properties["metadata"] = apiextensionsv1.JSONSchemaProps{Type: "object", Properties: map[string]apiextensionsv1.JSONSchemaProps{
			"name": {Type: "string", MaxLength: new(int64(3))}}}
	}
	p.XPreserveUnknownFields = madeFlag(r, 8)
	return p
}

func madeFlag(r *rand.Rand, n int) *bool {
	if chance(r, n) {
		return new(true)
	}
	return nil
}

func madeNode(r *rand.Rand, depth int) *apiextensionsv1.JSONSchemaProps {
	p := &apiextensionsv1.JSONSchemaProps{Nullable: chance(r, 6)}
	kinds := []string{"string", "integer", "number", "boolean", "either", "unknown"}
	if depth > 0 {
		kinds = append(kinds, "object", "object", "object", "array", "array", "map", "resource")
	}
	switch kind := pick(r, kinds...); kind {
	case "either":
		p.XIntOrString = true
		if chance(r, 2) {
			p.AnyOf = []apiextensionsv1.JSONSchemaProps{{Type: "integer"}, {Type: "string"}}
		}
	case "unknown":
		p.XPreserveUnknownFields = new(true)
		p.Type = pick(r, "", "object")
	case "object", "resource":
		p.Type = "object"
		p.XPreserveUnknownFields = madeFlag(r, 5)
		if p.XEmbeddedResource = kind == "resource"; p.XEmbeddedResource {
			p.XPreserveUnknownFields = new(true)
		}
		p.Properties = map[string]apiextensionsv1.JSONSchemaProps{}
		for range 1 + r.IntN(4) {
			p.Properties[pick(r, madeNames...)] = *madeNode(r, depth-1)
		}
	case "array":
		p.Type = "array"
		p.Items = &apiextensionsv1.JSONSchemaPropsOrArray{Schema: madeNode(r, depth-1)}
		p.XPreserveUnknownFields = madeFlag(r, 6)
		switch keys := slices.Sorted(maps.Keys(p.Items.Schema.Properties)); {
		case chance(r, 3):
			p.XListType = new("set")
		case p.Items.Schema.Type == "object" && len(keys) > 0:
			p.XListType, p.XListMapKeys = new("map"), keys[:1+r.IntN(min(2, len(keys)))]
		}
	case "map":
		p.Type = "object"
		p.AdditionalProperties = &apiextensionsv1.JSONSchemaPropsOrBool{Allows: true}
		if !chance(r, 4) {
			p.AdditionalProperties.Schema = madeNode(r, depth-1)
		}
	default:
		p.Type = kind
	}
	madeRules(r, p)
	raw := map[string]string{"string": `"abc"`, "integer": "1", "number": "1.5", "boolean": "true", "object": "{}", "array": "[]"}[p.Type]
	if chance(r, 5) && raw != "" && !p.XEmbeddedResource {
		p.Default = &apiextensionsv1.JSON{Raw: []byte(raw)}
	}
	if chance(r, 4) {
		madeCombination(r, p)
	}
	return p
}

// madeRules adds limits, not only those that fit the type.
func madeRules(r *rand.Rand, p *apiextensionsv1.JSONSchemaProps) {
	if len(p.Properties) > 0 && chance(r, 2) {
		p.Required = []string{pick(r, madeNames...)}
	}
	for _, limit := range []**int64{&p.MinLength, &p.MaxLength, &p.MinItems, &p.MaxItems, &p.MinProperties, &p.MaxProperties} {
		if chance(r, 8) {
			*limit = new(int64(r.IntN(5)))
		}
	}
	for _, limit := range []**float64{&p.Minimum, &p.Maximum, &p.MultipleOf} {
		if chance(r, 6) {
			*limit = new(pick(r, -2, 0, 0.5, 1, 1.5, 3, 10, 1e12, 1e30))
		}
	}
	p.ExclusiveMinimum, p.ExclusiveMaximum = chance(r, 3), chance(r, 3)
	if chance(r, 6) {
		p.Pattern = pick(r, "^[a-z]+$", "b", `^\d{1,3}$`, "^[^\\n]*$")
	}
	if chance(r, 5) {
		p.Format = pick(r, "date-time", "int32", "int64", "uri", "byte", "float", "double", "email", "made-up", "ipv4", "duration")
	}
	if chance(r, 6) {
		for range 1 + r.IntN(3) {
			p.Enum = append(p.Enum, apiextensionsv1.JSON{Raw: []byte(pick(r, `"abc"`, `"b"`, `"A"`, "1", "2.5", "true", "null"))})
		}
	}
}

// madeCombination adds allOf, anyOf, oneOf or not.
func madeCombination(r *rand.Rand, p *apiextensionsv1.JSONSchemaProps) {
	one := func() (n apiextensionsv1.JSONSchemaProps) {
		madeRules(r, &n)
		n.Format = ""
		for name := range p.Properties {
			if chance(r, 3) {
				n.Required = append(n.Required, name)
			}
			if chance(r, 4) {
				inner := apiextensionsv1.JSONSchemaProps{}
				madeRules(r, &inner)
				inner.Format, inner.Required = "", nil
				n.Properties = map[string]apiextensionsv1.JSONSchemaProps{name: inner}
			}
		}
		return n
	}
	switch r.IntN(5) {
	case 0:
		p.AllOf = append(p.AllOf, one())
	case 1:
		p.AnyOf = append(p.AnyOf, one(), one())
	case 2:
		p.OneOf = append(p.OneOf, one(), one())
	case 3:
		p.Not = new(one())
	case 4:
		for name := range p.Properties { // the form of oneOf that prevalidate supports
			p.OneOf = append(p.OneOf, apiextensionsv1.JSONSchemaProps{Required: []string{name}})
		}
	}
}

// madeObject makes the text of an object that mostly fits a schema.
func madeObject(r *rand.Rand, p *apiextensions.JSONSchemaProps) []byte {
	w := &maker{r: r, odd: pick(r, 1000, 100, 30, 10)}
	return []byte(w.object(p, 1))
}

// maker writes values. Once in odd times it writes an unexpected one.
type maker struct {
	r   *rand.Rand
	odd int
}

func (m *maker) strange() bool { return chance(m.r, m.odd) }

func (m *maker) value(p *apiextensions.JSONSchemaProps, depth int) string {
	if m.strange() || depth > 6 {
		return m.anything(depth)
	}
	if p.Nullable && chance(m.r, 6) {
		return "null"
	}
	if len(p.Enum) > 0 && !chance(m.r, 5) {
		text, _ := json.Marshal(pick(m.r, p.Enum...))
		return string(text)
	}
	switch {
	case p.XIntOrString:
		return pick(m.r, m.text(), m.number(false))
	case p.Type == "object":
		return m.object(p, depth)
	case p.Type == "array":
		return m.list(p, depth)
	case p.Type == "string":
		return m.text()
	case p.Type == "integer", p.Type == "number":
		return m.number(p.Type == "number")
	case p.Type == "boolean":
		return pick(m.r, "true", "false")
	}
	return m.anything(depth)
}

func (m *maker) object(p *apiextensions.JSONSchemaProps, depth int) string {
	var members []string
	add := func(name, value string) { members = append(members, fmt.Sprintf("%q:%s", name, value)) }
	if depth == 1 || p.XEmbeddedResource && !m.strange() {
		add("apiVersion", `"example.com/v1"`)
		add("kind", `"Bakery"`)
		if chance(m.r, 2) {
			add("metadata", m.metadata())
		}
	}
	for _, name := range slices.Sorted(maps.Keys(p.Properties)) {
		prop := p.Properties[name]
		required := slices.Contains(p.Required, name) || prop.Default != nil
		if name != "metadata" && name != "apiVersion" && name != "kind" && (required && !m.strange() || !chance(m.r, 3)) {
			add(name, m.value(&prop, depth+1))
		}
	}
	if a := p.AdditionalProperties; a != nil && a.Schema != nil {
		for i := range m.r.IntN(4) {
			add(fmt.Sprintf("k%d", i), m.value(a.Schema, depth+1))
		}
	}
	if m.strange() || p.XPreserveUnknownFields != nil && chance(m.r, 2) {
		add(pick(m.r, madeNames...), m.anything(depth+1))
	}
	if len(members) > 0 && m.strange() {
		members = append(members, members[m.r.IntN(len(members))])
	}
	if chance(m.r, 3) {
		m.r.Shuffle(len(members), func(i, j int) { members[i], members[j] = members[j], members[i] })
	}
	return "{" + strings.Join(members, pick(m.r, ",", ",", " ,\n\t")) + "}"
}

func (m *maker) list(p *apiextensions.JSONSchemaProps, depth int) string {
	var elements []string
	for range m.r.IntN(4) {
		elements = append(elements, m.value(p.Items.Schema, depth+1))
	}
	return "[" + strings.Join(elements, ",") + "]"
}

func (m *maker) text() string {
	return pick(m.r, `"abc"`, `"b"`, `"A"`, `""`, `"12"`, `"1500m"`, `"a\nb"`, `"\u003cb\u003e"`, `"\"\\\/"`, `"é"`, `"日本語"`,
		`"2024-05-01T05:00:00Z"`, `"2024-05-01"`, `"https://example.com/x"`, `"YWJj"`, `"a@example.com"`, `"10.0.0.1"`, `"5m"`)
}

func (m *maker) number(fraction bool) string {
	if fraction && chance(m.r, 2) || m.strange() || chance(m.r, 20) {
		return pick(m.r, "0.0", "2.0", "1e17", "0.5", "1.5", "2.50", "1e3", "-0.25", "3.14159", "123456789012345.6", "0.30000000000000004")
	}
	return pick(m.r, "0", "1", "2", "3", "5", "10", "80", "240", "-1", "-0", "100000", "2147483648", "4294967296", "999999999999999999", "9223372036854775808")
}

func (m *maker) anything(depth int) string {
	inner := func() string {
		if depth > 4 {
			return "1"
		}
		return m.anything(depth + 1)
	}
	switch m.r.IntN(6) {
	case 0:
		return pick(m.r, "null", "true", "{}", "[]", `{"a":1,"a":2}`)
	case 1:
		return m.number(true)
	case 2:
		return "[" + inner() + "," + inner() + "]"
	case 3:
		return `{"a":` + inner() + `,"b":` + inner() + `}`
	}
	return m.text()
}

func (m *maker) metadata() string {
	all := []string{`"name":"a"`, `"namespace":"default"`, `"generation":1`, `"labels":{"a":"b"}`, `"annotations":{"x/y":"1\n2","z":""}`,
		`"creationTimestamp":"2024-05-01T05:00:00Z"`, `"finalizers":["a/b"]`, `"ownerReferences":[{"apiVersion":"v1","kind":"Pod","name":"x","uid":"y","controller":true}]`}
	if m.strange() || chance(m.r, 3) {
		all = append(all, `"creationTimestamp":null`, `"labels":{}`, `"generation":0`, `"deletionGracePeriodSeconds":0`, `"x":1`, `"ownerReferences":[{}]`)
	}
	m.r.Shuffle(len(all), func(i, j int) { all[i], all[j] = all[j], all[i] })
	return "{" + strings.Join(all[:m.r.IntN(len(all))], ",") + "}"
}
