package openapi

import (
	"maps"
	"reflect"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"portico/resource/rest"
)

// add describes a kind: its paths, its schema and that of its list.
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
	if !k.Virtual() || k.Computed {
		b.item(b.path(collection+"/{name}", k), model, k.PatchTypes(b.version), func(verb string) bool { return b.verbs(k, verb) })
	}
	for i := range k.Subresources {
		b.subresource(collection+"/{name}", k, model, &k.Subresources[i])
	}
}

func (b *builder) verbs(k *rest.Kind, verb string) bool {
	if k.Virtual() && !k.Computed {
		return verb == "create"
	}
	return k.Verbs == nil || slices.Contains(k.Verbs, verb)
}

// collection describes the path of the collection.
func (b *builder) collection(url string, k *rest.Kind, model string) {
	p := b.path(url, k)
	if b.verbs(k, "list") {
		p.list("", b.list(k, model))
	}
	if b.verbs(k, "create") {
		p.create(model)
	}
	if b.verbs(k, "deletecollection") {
		list := listParameters()
		if k.Schema == nil { // of custom resources kube-apiserver names all parameters
			list = listParameters("watch", "allowWatchBookmarks")
		}
		p.remove("deletecollection", slices.Concat(list, deleteParameters()), b.status())
	}
}

// item describes the path of an object or of a subresource.
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

// subresource describes a subresource.
func (b *builder) subresource(parent string, k *rest.Kind, model string, sub *rest.Subresource) {
	if sub.Connect != nil {
		b.connection(parent+"/"+sub.Name, k, sub)
		return
	}
	p := b.path(parent+"/"+sub.Name, k)
	p.sub = sub.Name
	if !sub.GVK.Empty() && sub.GVK != k.GVK(b.version) {
		model = b.foreign(k, sub)
		// Operations on a custom resource have its kind, by which clients find them.
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
	b.item(p, model, sub.PatchTypes(k, b.version), func(verb string) bool { return slices.Contains(verbs, verb) })
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

// camel returns the form of a group in operation ids: rbacAuthorization of
// rbac.authorization.k8s.io.
func camel(group string) string {
	var out strings.Builder
	for i, part := range strings.FieldsFunc(strings.TrimSuffix(group, ".k8s.io"), func(r rune) bool { return r == '.' || r == '-' }) {
		if i > 0 {
			part = title(part)
		}
		out.WriteString(part)
	}
	return out.String()
}

func title(s string) string {
	if s == "" {
		return ""
	}
	return strings.ToUpper(s[:1]) + s[1:]
}

// operation returns the description of a method: verb is that of the operation id, action that of the
// extension.
func (p *path) operation(verb, action, ending string) *operation {
	group := camel(p.kind.Group)
	if group == "" {
		group = "core"
	}
	id, scope := p.gvk, p.scope
	if action == "deletecollection" {
		scope = "Collection" + scope
	}
	return &operation{
		Tags: []string{p.tag}, Description: p.describe(verb, action),
		OperationID: verb + title(group) + title(p.b.version) + scope + p.kind.Kind + title(p.sub) + ending,
		Action:      action, GVK: &id,
		Responses: map[string]response{"401": {Description: "Unauthorized"}},
	}
}

// describe returns the description of an operation.
func (p *path) describe(verb, action string) string {
	of := ""
	if p.sub != "" {
		of = p.sub + " of "
	}
	switch action {
	case "list":
		return "list objects of kind " + p.kind.Kind
	case "deletecollection":
		return "delete collection of " + p.kind.Kind
	case "post", "delete":
		return verb + " " + of + article(p.kind.Kind) + p.kind.Kind
	case "patch":
		verb = "partially update"
	}
	return verb + " " + of + "the specified " + p.kind.Kind
}

// article returns the article of a kind.
func article(kind string) string {
	switch {
	case strings.HasSuffix(kind, "s") && !strings.HasSuffix(kind, "ss"):
		return "" // a plural
	case strings.ContainsAny(kind[:1], "AEIOU"):
		return "an "
	}
	return "a "
}

func (p *path) list(ending, model string) {
	op := p.operation("list", "list", ending)
	op.Parameters = listParameters()
	answer := p.answer("OK", model)
	for encoding, m := range maps.Clone(answer.Content) {
		if encoding != mediaYAML && p.kind.Schema == nil { // watches have no YAML
			answer.Content[encoding+";stream=watch"] = m
		}
	}
	op.Responses["200"] = answer
	p.item["get"] = op
}

func (p *path) get(model string) {
	op := p.operation("read", "get", "")
	if p.kind.Schema != nil { // as above
		op.Parameters = parametersOf(metav1.GetOptions{})
	}
	op.Responses["200"] = p.answer("OK", model)
	p.item["get"] = op
}

func (p *path) create(model string) {
	op := p.operation("create", "post", "")
	op.Parameters = createParameters()
	op.RequestBody = p.body(model, true)
	op.Responses["200"] = p.answer("OK", model)
	op.Responses["201"] = p.answer("Created", model)
	op.Responses["202"] = p.answer("Accepted", model)
	p.item["post"] = op
}

func (p *path) update(model string) {
	op := p.operation("replace", "put", "")
	op.Parameters = updateParameters()
	op.RequestBody = p.body(model, true)
	op.Responses["200"] = p.answer("OK", model)
	op.Responses["201"] = p.answer("Created", model)
	p.item["put"] = op
}

func (p *path) patch(model string, types []string) {
	op := p.operation("patch", "patch", "")
	op.Parameters = patchParameters()
	op.RequestBody = &body{Required: true, Content: map[string]media{}}
	patch := ref(p.b.schemas.add(reflect.TypeFor[metav1.Patch]()))
	for _, t := range types {
		op.RequestBody.Content[t] = media{Schema: patch}
	}
	op.Responses["200"] = p.answer("OK", model)
	op.Responses["201"] = p.answer("Created", model)
	p.item["patch"] = op
}

func (p *path) remove(action string, parameters []parameter, model string) {
	op := p.operation("delete", action, "")
	op.Parameters = parameters
	op.RequestBody = p.body(p.b.meta(reflect.TypeFor[metav1.DeleteOptions]()), false)
	op.Responses["200"] = p.answer("OK", model)
	if action == "delete" {
		op.Responses["202"] = p.answer("Accepted", model)
	}
	p.item["delete"] = op
}

// content returns a model in every encoding of the kind.
func (p *path) content(model string) map[string]media {
	content := map[string]media{mediaJSON: {maybeRef(model)}, mediaYAML: {maybeRef(model)}}
	if p.kind.Schema == nil {
		content[mediaProtobuf] = media{maybeRef(model)}
	}
	return content
}

// body describes a request body; of Go types in any encoding, as Content-Type is optional.
func (p *path) body(model string, required bool) *body {
	if p.kind.Schema == nil {
		return &body{Required: required, Content: map[string]media{"*/*": {maybeRef(model)}}}
	}
	return &body{Required: required, Content: p.content(model)}
}

func (p *path) answer(text, model string) response {
	return response{Description: text, Content: p.content(model)}
}

func maybeRef(model string) *schemaType {
	if model == "" {
		return &schemaType{Type: "object"}
	}
	return ref(model)
}

func stringSchema() *schemaType { return &schemaType{Type: "string", UniqueItems: true} }

func query(name, kind, text string) parameter {
	return parameter{Name: name, In: "query", Description: text, Schema: &schemaType{Type: kind, UniqueItems: true}}
}

func createParameters() []parameter { return parametersOf(metav1.CreateOptions{}) }
func updateParameters() []parameter { return parametersOf(metav1.UpdateOptions{}) }
func patchParameters() []parameter  { return parametersOf(metav1.PatchOptions{}) }
func deleteParameters() []parameter { return parametersOf(metav1.DeleteOptions{}) }

// listParameters omits the sharding of lists and watches, which is not implemented.
func listParameters(without ...string) []parameter {
	return parametersOf(metav1.ListOptions{}, append(without, "shardSelector")...)
}

// parametersOf describes the query parameters of a struct of options, in its order. Members that are
// structs are no parameters.
func parametersOf(options documented, without ...string) []parameter {
	var out []parameter
	docs := options.SwaggerDoc()
	t := reflect.TypeOf(options)
	for i := range t.NumField() {
		f := t.Field(i)
		name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		kind := f.Type
		if kind.Kind() == reflect.Pointer {
			kind = kind.Elem()
		}
		if name == "" || kind.Kind() == reflect.Struct || slices.Contains(without, name) {
			continue
		}
		if kind.Kind() == reflect.Slice { // the parameter is repeated
			kind = kind.Elem()
		}
		text := "string"
		switch kind.Kind() {
		case reflect.Bool:
			text = "boolean"
		case reflect.Int32, reflect.Int64:
			text = "integer"
		}
		out = append(out, query(name, text, docs[name]))
	}
	return out
}
