package openapi

import (
	"reflect"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"portico/resource/rest"
)

// add describes one kind: its paths, its schema and its list's.
func (b *builder) add(k *rest.Kind) {
	model := b.model(k)
	base := "/apis/" + k.Group + "/" + b.version
	if k.Group == "" {
		base = "/api/" + b.version
	}
	collection := base + "/" + k.Resource
	if k.Namespaced {
		if b.verbs(k, "list") {
			b.path(collection, k).list("ForAllNamespaces", b.list(k, model))
		}
		collection = base + "/namespaces/{namespace}/" + k.Resource
	}
	b.collection(collection, k, model)
	if k.Review == nil {
		b.item(b.path(collection+"/{name}", k), model, k.PatchTypes(b.version), func(verb string) bool { return b.verbs(k, verb) })
	}
	for i := range k.Subresources {
		b.subresource(collection+"/{name}", k, model, &k.Subresources[i])
	}
}

func (b *builder) verbs(k *rest.Kind, verb string) bool {
	if k.Review != nil {
		return verb == "create"
	}
	return k.Verbs == nil || slices.Contains(k.Verbs, verb)
}

// collection describes the collection's path.
func (b *builder) collection(url string, k *rest.Kind, model string) {
	p := b.path(url, k)
	if b.verbs(k, "list") {
		p.list("", b.list(k, model))
	}
	if b.verbs(k, "create") {
		p.create(model)
	}
	if b.verbs(k, "deletecollection") {
		p.remove("deletecollection", slices.Concat(listParameters(), deleteParameters()), b.status())
	}
}

// item describes the path of one object, or of a view of it.
func (b *builder) item(p *path, model string, patches []string, has func(verb string) bool) {
	if has("get") {
		p.get(model)
	}
	if has("update") {
		p.update(model)
	}
	if has("patch") {
		p.patch(model, patches)
	}
	if has("delete") && p.sub == "" {
		answer := b.status()
		if p.kind.ReturnDeleted {
			answer = model
		}
		p.remove("delete", deleteParameters(), answer)
	}
}

func (b *builder) status() string { return b.meta(reflect.TypeFor[metav1.Status]()) }

// subresource describes a view or a call; connections are not described.
func (b *builder) subresource(parent string, k *rest.Kind, model string, sub *rest.Subresource) {
	if sub.Connect != nil {
		return
	}
	p := b.path(parent+"/"+sub.Name, k)
	p.sub = sub.Name
	if !sub.GVK.Empty() && sub.GVK != k.GVK(b.version) {
		model = b.foreign(k, sub)
		// Of custom resources all operations are about the custom resource
		// itself; clients look for them by its kind.
		if k.Schema == nil {
			p.gvk = gvk{Group: sub.GVK.Group, Kind: sub.GVK.Kind, Version: sub.GVK.Version}
		}
	}
	if sub.Create != nil {
		p.create(model)
		return
	}
	verbs := sub.Verbs
	if verbs == nil {
		verbs = []string{"get", "patch", "update"}
	}
	patches := sub.PatchTypes(k, b.version)
	if p.gvk.Kind == k.Kind {
		// kubectl looks at any one operation about a kind to learn how its
		// objects are patched: what only a view accepts must not be named.
		patches = intersection(patches, k.PatchTypes(b.version))
	}
	b.item(p, model, patches, func(verb string) bool { return slices.Contains(verbs, verb) })
}

func intersection(a, b []string) []string {
	return slices.DeleteFunc(slices.Clone(a), func(s string) bool { return !slices.Contains(b, s) })
}

// path describes one URL.
type path struct {
	b     *builder
	item  pathItem
	kind  *rest.Kind
	gvk   gvk
	tag   string
	scope string // "Namespaced" or ""
	sub   string // the subresource
}

func (b *builder) path(url string, k *rest.Kind) *path {
	item := b.paths[url]
	if item == nil {
		item = pathItem{}
		b.paths[url] = item
	}
	p := &path{b: b, item: item, kind: k, gvk: gvk{Group: k.Group, Kind: k.Kind, Version: b.version}}
	p.tag = camel(k.Group) + "_" + b.version
	if k.Group == "" {
		p.tag = "core_" + b.version
	}
	var shared []parameter
	if strings.Contains(url, "{name}") {
		shared = append(shared, parameter{Name: "name", In: "path", Required: true, Description: "name of the " + k.Kind, Schema: stringSchema()})
	}
	if strings.Contains(url, "{namespace}") {
		p.scope = "Namespaced"
		shared = append(shared, parameter{Name: "namespace", In: "path", Required: true, Description: "namespace of the object", Schema: stringSchema()})
	}
	item["parameters"] = append(shared, query("pretty", "string", "Whether to indent the output."))
	return p
}
