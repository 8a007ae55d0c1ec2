package openapi

import (
	"cmp"
	"encoding/json"
	"fmt"
	"reflect"
	"strings"
	"sync"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/managedfields"
	generated "k8s.io/kube-aggregator/pkg/generated/openapi"
	"k8s.io/kube-openapi/pkg/validation/spec"

	"portico/resource/rest"
)

// schemas collects the components of one document, by model name.
type schemas struct{ byName map[string]*schemaType }

// Interfaces of Kubernetes' API types for schema generators.
type (
	modelNamer interface{ OpenAPIModelName() string }
	typed      interface {
		OpenAPISchemaType() []string
		OpenAPISchemaFormat() string
	}
	oneOfTyped interface{ OpenAPIV3OneOfTypes() []string }
	documented interface{ SwaggerDoc() map[string]string }
)

// add adds the schema of a struct type, and of the types of its fields, and returns its model name.
func (s *schemas) add(t reflect.Type) string {
	name := modelName(t)
	if _, done := s.byName[name]; done {
		return name
	}
	out := &schemaType{}
	s.byName[name] = out // before the fields: types may be recursive
	zero := reflect.New(t).Elem().Interface()
	docs := map[string]string{}
	if d, ok := zero.(documented); ok {
		docs = d.SwaggerDoc()
	} else if strings.HasPrefix(name, aggregatorModels) {
		docs = generatedDocs()[name]
	}
	out.Description = docs[""]
	if scalar := s.scalar(zero); scalar != nil {
		scalar.Description = out.Description
		*out = *scalar
		return name
	}
	out.Type = "object"
	switch t { // markers in comments
	case reflect.TypeFor[metav1.OwnerReference](), reflect.TypeFor[metav1.LabelSelector]():
		out.MapType = "atomic"
	}
	if t == reflect.TypeFor[metav1.FieldsV1]() || t.Kind() != reflect.Struct || noFields(t) {
		return name
	}
	out.Properties = map[string]*schemaType{}
	s.fields(t, docs, out)
	return name
}

// scalar returns the schema of a type that is encoded as one value, or nil.
func (s *schemas) scalar(zero any) *schemaType {
	if o, ok := zero.(oneOfTyped); ok {
		out := &schemaType{}
		for _, t := range o.OpenAPIV3OneOfTypes() {
			out.OneOf = append(out.OneOf, &schemaType{Type: t})
		}
		if t, ok := zero.(typed); ok {
			out.Format = t.OpenAPISchemaFormat()
		}
		return out
	}
	if t, ok := zero.(typed); ok && len(t.OpenAPISchemaType()) > 0 {
		return &schemaType{Type: t.OpenAPISchemaType()[0], Format: t.OpenAPISchemaFormat()}
	}
	return nil
}

// noFields reports whether a type encodes itself (raw extensions).
func noFields(t reflect.Type) bool {
	for i := range t.NumField() {
		if name, _, ok := jsonName(t.Field(i)); ok && name != "" || t.Field(i).Anonymous {
			return false
		}
	}
	return true
}

// fields adds the JSON members of a struct, including those of inlined structs.
func (s *schemas) fields(t reflect.Type, docs map[string]string, out *schemaType) {
	for i := range t.NumField() {
		f := t.Field(i)
		name, required, ok := jsonName(f)
		if !ok {
			continue
		}
		if name == "" { // inlined
			inner := f.Type
			if inner.Kind() == reflect.Pointer {
				inner = inner.Elem()
			}
			if d, ok := reflect.New(inner).Elem().Interface().(documented); ok {
				s.fields(inner, d.SwaggerDoc(), out)
			} else {
				s.fields(inner, nil, out)
			}
			continue
		}
		p := s.property(f.Type)
		if p.Ref != "" { // siblings of $ref are ignored
			p = &schemaType{AllOf: []*schemaType{{Ref: p.Ref}}}
		}
		p.Description = docs[name]
		p.PatchStrategy, p.PatchMergeKey = f.Tag.Get("patchStrategy"), f.Tag.Get("patchMergeKey")
		if list := f.Tag.Get("listType"); list != "" {
			p.ListType = list
			// Some fields have the tag patchMergeKey and no listMapKey.
			if key := cmp.Or(f.Tag.Get("listMapKey"), p.PatchMergeKey); key != "" && list == "map" {
				p.ListMapKeys = []string{key}
			}
		}
		setListType(t, name, p)
		out.Properties[name] = p
		if required {
			out.Required = append(out.Required, name)
		}
	}
}

// jsonName returns the name of a JSON member ("" of an inlined struct) and whether it is always
// encoded.
func jsonName(f reflect.StructField) (name string, required, ok bool) {
	tag, has := f.Tag.Lookup("json")
	if !f.IsExported() || tag == "-" || !has && !f.Anonymous {
		return "", false, false
	}
	name, options, _ := strings.Cut(tag, ",")
	if name == "" && !f.Anonymous && !strings.Contains(options, "inline") {
		return "", false, false
	}
	optional := strings.Contains(options, "omitempty") || strings.Contains(options, "omitzero") || f.Type.Kind() == reflect.Pointer
	// metadata and status are optional in objects; the status of a condition is required.
	part := f.Type.Kind() == reflect.Struct && (name == "metadata" || name == "status")
	return name, !optional && !part, true
}

// setListType sets the list types of metadata, which are markers in comments.
func setListType(t reflect.Type, field string, p *schemaType) {
	if t.PkgPath() != reflect.TypeFor[metav1.ObjectMeta]().PkgPath() || p.Type != "array" {
		return
	}
	switch field {
	case "ownerReferences":
		p.ListType, p.ListMapKeys = "map", []string{"uid"}
	case "finalizers":
		p.ListType = "set"
	default:
		p.ListType = "atomic"
	}
}

// property returns the schema of the type of a field.
func (s *schemas) property(t reflect.Type) *schemaType {
	switch t.Kind() {
	case reflect.Pointer:
		return s.property(t.Elem())
	case reflect.Struct:
		return ref(s.add(t))
	case reflect.Slice, reflect.Array:
		if t.Elem().Kind() == reflect.Uint8 {
			return &schemaType{Type: "string", Format: "byte"}
		}
		return &schemaType{Type: "array", Items: s.property(t.Elem())}
	case reflect.Map:
		return &schemaType{Type: "object", AdditionalProperties: s.property(t.Elem())}
	case reflect.String:
		return &schemaType{Type: "string"}
	case reflect.Bool:
		return &schemaType{Type: "boolean"}
	case reflect.Int64:
		return &schemaType{Type: "integer", Format: "int64"}
	case reflect.Int, reflect.Int32, reflect.Int16, reflect.Int8, reflect.Uint32, reflect.Uint16, reflect.Uint8:
		return &schemaType{Type: "integer", Format: "int32"}
	case reflect.Float32, reflect.Float64:
		return &schemaType{Type: "number", Format: "double"}
	}
	return &schemaType{Type: "object"}
}

// modelName returns the component name of a type: its own, or one derived from its package path.
func modelName(t reflect.Type) string {
	if n, ok := reflect.New(t).Elem().Interface().(modelNamer); ok {
		return n.OpenAPIModelName()
	}
	host, rest, _ := strings.Cut(t.PkgPath(), "/")
	parts := strings.Split(host, ".")
	for i, j := 0, len(parts)-1; i < j; i, j = i+1, j-1 {
		parts[i], parts[j] = parts[j], parts[i]
	}
	return strings.Join(parts, ".") + "." + strings.ReplaceAll(rest, "/", ".") + "." + t.Name()
}

// aggregatorModels is the prefix of the models of APIService. Its types have no SwaggerDoc: their
// descriptions are in generated definitions only.
const aggregatorModels = "io.k8s.kube-aggregator.pkg.apis.apiregistration."

// generatedDocs are the descriptions of these models by model name and field; "" is the type.
var generatedDocs = sync.OnceValue(func() map[string]map[string]string {
	out := map[string]map[string]string{}
	for name, d := range generated.GetOpenAPIDefinitions(func(string) spec.Ref { return spec.Ref{} }) {
		if !strings.HasPrefix(name, aggregatorModels) {
			continue
		}
		docs := map[string]string{"": d.Schema.Description}
		for field, s := range d.Schema.Properties {
			docs[field] = s.Description
		}
		out[name] = docs
	}
	return out
})

// Ownership returns the type converter for managed fields of a kind with a Go type, from the schemas
// of its OpenAPI document. It is built at the first call.
func Ownership(k *rest.Kind) func() (managedfields.TypeConverter, error) {
	return sync.OnceValues(func() (managedfields.TypeConverter, error) {
		models := map[string]*spec.Schema{}
		for _, version := range k.Versions {
			b := newBuilder(version)
			b.model(k)
			for name, s := range b.schemas.byName {
				data, err := json.Marshal(s)
				if err != nil {
					return nil, fmt.Errorf("encode schema of %s: %w", name, err)
				}
				model := &spec.Schema{}
				if err := json.Unmarshal(data, model); err != nil {
					return nil, fmt.Errorf("decode schema of %s: %w", name, err)
				}
				models[name] = model
			}
		}
		return managedfields.NewTypeConverter(models, false)
	})
}
