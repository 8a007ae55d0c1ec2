package openapi

import (
	"reflect"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"portico/resource/rest"
)

const (
	mediaJSON     = "application/json"
	mediaYAML     = "application/yaml"
	mediaProtobuf = "application/vnd.kubernetes.protobuf"
)

// builder makes the document of one group/version.
type builder struct {
	version string
	doc     *document
	schemas *schemas
}

func newBuilder(version string) *builder {
	b := &builder{version: version, schemas: &schemas{byName: map[string]*schemaType{}}}
	b.doc = &document{
		OpenAPI: "3.0.0", Info: info{Title: "Kubernetes", Version: "unversioned"},
		Paths: map[string]pathItem{}, Components: components{Schemas: b.schemas.byName},
	}
	return b
}

// add describes one kind: its paths, its schema and its list's.
func (b *builder) add(k *rest.Kind) {
	id := k.GVK(b.version)
	example := k.Codec.StrategicMerge(id)
	model := ""
	if example != nil {
		model = b.schemas.add(reflect.TypeOf(example).Elem())
		b.tag(model, id)
	}
	base := "/apis/" + k.Group + "/" + b.version
	if k.Group == "" {
		base = "/api/" + b.version
	}
	collection := base + "/" + k.Resource
	if k.Namespaced {
		if b.verbs(k, "list") {
			b.path(collection, k).get("list", "list", "ForAllNamespaces", b.list(k, model))
		}
		collection = base + "/namespaces/{namespace}/" + k.Resource
	}
	b.collection(collection, k, model)
	if k.Review == nil {
		b.item(collection+"/{name}", k, model, "", nil)
	}
	for i := range k.Subresources {
		b.subresource(collection+"/{name}", k, model, &k.Subresources[i])
	}
}

// tag marks a model as the schema of a kind.
func (b *builder) tag(model string, id schema.GroupVersionKind) {
	s := b.schemas.byName[model]
	mark := gvk{Group: id.Group, Kind: id.Kind, Version: id.Version}
	if !slices.Contains(s.GVKs, mark) {
		s.GVKs = append(s.GVKs, mark)
	}
}

func (b *builder) verbs(k *rest.Kind, verb string) bool {
	if k.Review != nil {
		return verb == "create"
	}
	return k.Verbs == nil || slices.Contains(k.Verbs, verb)
}

// list makes the schema of the kind's list.
func (b *builder) list(k *rest.Kind, model string) string {
	if model == "" {
		return ""
	}
	name := strings.TrimSuffix(model, k.Kind) + k.List()
	if b.schemas.byName[name] == nil {
		meta := b.schemas.add(reflect.TypeFor[metav1.ListMeta]())
		b.schemas.byName[name] = &schemaType{
			Type: "object", Required: []string{"items"}, Description: k.List() + " is a list of " + k.Kind + ".",
			Properties: map[string]*schemaType{
				"apiVersion": {Type: "string"}, "kind": {Type: "string"},
				"metadata": {AllOf: []*schemaType{ref(meta)}},
				"items":    {Type: "array", Items: ref(model)},
			},
		}
		b.tag(name, k.GVK(b.version).GroupVersion().WithKind(k.List()))
	}
	return name
}

// collection describes the collection's path.
func (b *builder) collection(path string, k *rest.Kind, model string) {
	p := b.path(path, k)
	if b.verbs(k, "list") {
		p.get("list", "list", "", b.list(k, model))
	}
	if b.verbs(k, "create") {
		p.write("post", "create", "post", model, model)
	}
	if b.verbs(k, "deletecollection") {
		p.remove("deleteCollection", "deletecollection", append(listParameters(), deleteParameters()...))
	}
}

// item describes the path of one object, or of a view of it.
func (b *builder) item(path string, k *rest.Kind, model, suffix string, verbs []string) {
	has := func(verb string) bool {
		if verbs != nil {
			return slices.Contains(verbs, verb)
		}
		return b.verbs(k, verb)
	}
	p := b.path(path, k)
	p.suffix = suffix
	if has("get") {
		p.get("read", "get", "", model)
	}
	if has("update") {
		p.write("put", "replace", "put", model, model)
	}
	if has("patch") {
		p.patch(model, k.Codec.StrategicMerge(k.GVK(b.version)) != nil)
	}
	if has("delete") && suffix == "" {
		p.remove("delete", "delete", deleteParameters())
	}
}

func (b *builder) subresource(parent string, k *rest.Kind, model string, sub *rest.Subresource) {
	path, suffix := parent+"/"+sub.Name, strings.ToUpper(sub.Name[:1])+sub.Name[1:]
	switch {
	case sub.Strategy != nil:
		verbs := sub.Verbs
		if verbs == nil {
			verbs = []string{"get", "patch", "update"}
		}
		b.item(path, k, model, suffix, verbs)
	case sub.Create != nil:
		p := b.path(path, k)
		p.suffix = suffix
		if !sub.GVK.Empty() {
			p.gvk = gvk{Group: sub.GVK.Group, Kind: sub.GVK.Kind, Version: sub.GVK.Version}
			if example := k.Codec.StrategicMerge(sub.GVK); example != nil {
				model = b.schemas.add(reflect.TypeOf(example).Elem())
				b.tag(model, sub.GVK)
			}
		}
		p.write("post", "create", "post", model, model)
	}
}
