package openapi

import (
	"reflect"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/kube-openapi/pkg/util"

	"portico/resource/rest"
)

// add describes a kind: its paths, its schema and that of its list.
func (b *builder) add(k *rest.Kind) {
	model := b.model(k)
	base := "/apis/" + k.Group + "/" + b.version
	if k.Group == "" {
		base = "/api/" + b.version
	}
	collection := "/" + k.Resource
	if k.Namespaced {
		if b.verbs(k, "list") {
			b.path(base+collection, k).list("ForAllNamespaces", b.list(k, model))
			b.watch(base+"/watch"+collection, k, "watchlist", "ListForAllNamespaces")
		}
		collection = "/namespaces/{namespace}" + collection
	}
	b.watch(base+"/watch"+collection, k, "watchlist", "List")
	b.watch(base+"/watch"+collection+"/{name}", k, "watch", "")
	collection = base + collection
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

// watch describes an old path of watches; action is watch or watchlist. kube-apiserver describes none
// of custom resources.
func (b *builder) watch(url string, k *rest.Kind, action, ending string) {
	if k.Schema != nil || !b.verbs(k, "watch") {
		return
	}
	p := b.path(url, k)
	op := p.operation("watch", action, ending)
	op.Parameters = append(op.Parameters, listParameters()...)
	op.Responses["200"] = response{Description: "OK", Content: p.streamed(b.scoped(metav1.WatchEvent{}, k))}
	p.operations["get"] = op
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

func (b *builder) status() string { return b.models.add(metav1.Status{}, metaKind(metav1.Status{})) }

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

// metaKind returns the kind of a type that is not of a group.
func metaKind(namer util.OpenAPIModelNamer) schema.GroupVersionKind {
	return schema.GroupVersionKind{Version: "v1", Kind: reflect.TypeOf(namer).Name()}
}

// scoped adds a type that is a kind of every group, as in kube-apiserver's scheme.
func (b *builder) scoped(namer util.OpenAPIModelNamer, k *rest.Kind) string {
	id := metaKind(namer)
	if k.Schema != nil {
		return b.models.add(namer, id)
	}
	return b.models.add(namer, id, k.GVK(b.version).GroupVersion().WithKind(id.Kind))
}

// path describes one URL.
type path struct {
	b          *builder
	operations operations
	kind       *rest.Kind
	gvk        gvk
	tag        string
	scope      string // "Namespaced" or ""
	sub        string // the subresource
	// parameters are those of every operation.
	parameters []parameter
}

func (b *builder) path(url string, k *rest.Kind) *path {
	ops := b.paths[url]
	if ops == nil {
		ops = operations{}
		b.paths[url] = ops
	}
	p := &path{b: b, operations: ops, kind: k, gvk: gvk{Group: k.Group, Kind: k.Kind, Version: b.version}}
	p.tag = camel(k.Group) + "_" + b.version
	if k.Group == "" {
		p.tag = "core_" + b.version
	}
	if strings.Contains(url, "{namespace}") {
		p.scope = "Namespaced"
		p.parameters = append(p.parameters, parameter{Name: "namespace", In: "path", Required: true, Description: "object name and auth scope, such as for teams and projects", Schema: stringSchema()})
	}
	if strings.Contains(url, "{name}") {
		p.parameters = append(p.parameters, parameter{Name: "name", In: "path", Required: true, Schema: stringSchema()})
	}
	p.parameters = append(p.parameters, query("pretty", "string", "If 'true', then the output is pretty printed. Defaults to 'false' unless the user-agent indicates a browser or command-line HTTP tool (curl and wget)."))
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
	parameters := slices.Clone(p.parameters)
	for i := range parameters {
		if parameters[i].Name == "name" {
			parameters[i].Description = "name of the " + id.Kind
		}
	}
	return &operation{
		Parameters: parameters,
		Tags:       []string{p.tag}, Description: p.describe(verb, action),
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
		if p.kind.Schema == nil && p.b.verbs(p.kind, "watch") {
			verb = "list or watch"
		}
		return verb + " objects of kind " + p.kind.Kind
	case "watchlist":
		return "watch individual changes to a list of " + p.kind.Kind + ". deprecated: use the 'watch' parameter with a list operation instead."
	case "watch":
		return "watch changes to an object of kind " + p.kind.Kind + ". deprecated: use the 'watch' parameter with a list operation instead, filtered to a single item with the 'fieldSelector' parameter."
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
	op.Parameters = append(op.Parameters, listParameters()...)
	answer := p.answer("OK", model)
	if p.kind.Schema == nil {
		answer.Content = p.streamed(model)
	}
	op.Responses["200"] = answer
	p.operations["get"] = op
}

func (p *path) get(model string) {
	op := p.operation("read", "get", "")
	if p.kind.Schema != nil { // kube-apiserver describes these parameters for custom resources only
		op.Parameters = append(op.Parameters, parametersOf(metav1.GetOptions{})...)
	}
	op.Responses["200"] = p.answer("OK", model)
	p.operations["get"] = op
}

func (p *path) create(model string) {
	op := p.operation("create", "post", "")
	op.Parameters = append(op.Parameters, createParameters()...)
	op.RequestBody = p.body(model, true)
	op.Responses["200"] = p.answer("OK", model)
	op.Responses["201"] = p.answer("Created", model)
	op.Responses["202"] = p.answer("Accepted", model)
	p.operations["post"] = op
}

func (p *path) update(model string) {
	op := p.operation("replace", "put", "")
	op.Parameters = append(op.Parameters, updateParameters()...)
	op.RequestBody = p.body(model, true)
	op.Responses["200"] = p.answer("OK", model)
	op.Responses["201"] = p.answer("Created", model)
	p.operations["put"] = op
}

func (p *path) patch(model string, mediaTypes []string) {
	op := p.operation("patch", "patch", "")
	op.Parameters = append(op.Parameters, patchParameters()...)
	op.RequestBody = &body{Required: true, Content: map[string]media{}}
	patch := ref(p.b.models.add(metav1.Patch{}))
	for _, t := range mediaTypes {
		op.RequestBody.Content[t] = media{Schema: patch}
	}
	if _, apply := op.RequestBody.Content[string(types.ApplyYAMLPatchType)]; apply && p.cbor() {
		op.RequestBody.Content[string(types.ApplyCBORPatchType)] = media{Schema: patch}
	}
	op.Responses["200"] = p.answer("OK", model)
	op.Responses["201"] = p.answer("Created", model)
	p.operations["patch"] = op
}

func (p *path) remove(action string, parameters []parameter, model string) {
	op := p.operation("delete", action, "")
	op.Parameters = append(op.Parameters, parameters...)
	op.RequestBody = p.body(p.b.scoped(metav1.DeleteOptions{}, p.kind), false)
	op.Responses["200"] = p.answer("OK", model)
	if action == "delete" {
		op.Responses["202"] = p.answer("Accepted", model)
	}
	p.operations["delete"] = op
}

// content returns a model in every encoding of the kind.
func (p *path) content(model string) map[string]media {
	content := map[string]media{mediaJSON: {maybeRef(model)}, mediaYAML: {maybeRef(model)}}
	if p.kind.Schema == nil {
		content[mediaProtobuf] = media{maybeRef(model)}
	}
	if p.cbor() {
		content[runtime.ContentTypeCBOR] = media{maybeRef(model)}
	}
	return content
}

// streamed is content with the encodings of watches.
func (p *path) streamed(model string) map[string]media {
	content := p.content(model)
	for _, encoding := range []string{mediaJSON, mediaProtobuf} {
		content[encoding+";stream=watch"] = content[encoding]
	}
	if p.cbor() {
		content[runtime.ContentTypeCBORSequence] = content[mediaJSON]
	}
	return content
}

// cbor reports whether operations have media types of CBOR. kube-apiserver describes none of custom
// resources.
func (p *path) cbor() bool { return p.b.cbor && p.kind.Schema == nil }

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

func maybeRef(model string) schemaType {
	if model == "" {
		return schemaType{Type: "object"}
	}
	return ref(model)
}

func ref(model string) schemaType { return schemaType{Ref: refPrefix + model} }

func stringSchema() schemaType { return schemaType{Type: "string", UniqueItems: true} }
