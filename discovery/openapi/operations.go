package openapi

import (
	"strings"

	"portico/resource/rest"
)

// path builds the operations of one URL.
type path struct {
	b      *builder
	item   pathItem
	kind   *rest.Kind
	gvk    gvk
	tag    string
	scope  string // "Namespaced" or ""
	suffix string // of operation ids: the subresource
}

func (b *builder) path(url string, k *rest.Kind) *path {
	item := b.doc.Paths[url]
	if item == nil {
		item = pathItem{}
		b.doc.Paths[url] = item
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

// camel turns a group into the form of operation ids: rbac.authorization.k8s.io
// is rbacAuthorization.
func camel(group string) string {
	group = strings.TrimSuffix(strings.TrimSuffix(group, ".k8s.io"), ".kubernetes.io")
	var out strings.Builder
	for i, part := range strings.FieldsFunc(group, func(r rune) bool { return r == '.' || r == '-' }) {
		if i > 0 && part != "" {
			part = strings.ToUpper(part[:1]) + part[1:]
		}
		out.WriteString(part)
	}
	return out.String()
}

func (p *path) id(verb, ending string) string {
	group := camel(p.kind.Group)
	if group == "" {
		group = "core"
	}
	return verb + strings.ToUpper(group[:1]) + group[1:] + strings.ToUpper(p.b.version[:1]) + p.b.version[1:] + p.scope + p.kind.Kind + p.suffix + ending
}

func (p *path) operation(verb, action, ending string) *operation {
	id := p.gvk
	return &operation{
		Tags: []string{p.tag}, OperationID: p.id(verb, ending), Action: action, GVK: &id,
		Responses: map[string]response{"401": {Description: "Unauthorized"}},
	}
}

func (p *path) get(verb, action, ending, model string) {
	op := p.operation(verb, action, ending)
	if action == "list" {
		op.Parameters = listParameters()
	}
	op.Responses["200"] = answer("OK", model)
	p.item["get"] = op
}

func (p *path) write(method, verb, action, in, out string) {
	op := p.operation(verb, action, "")
	op.Parameters = writeParameters()
	op.RequestBody = &body{Content: map[string]media{"*/*": {Schema: maybeRef(in)}}}
	op.Responses["200"] = answer("OK", out)
	op.Responses["201"] = answer("Created", out)
	p.item[method] = op
}

func (p *path) patch(model string, strategic bool) {
	op := p.operation("patch", "patch", "")
	op.Parameters = append(writeParameters(), query("force", "boolean", "Force is going to \"force\" Apply requests."))
	anything := media{Schema: &schemaType{Type: "object", Description: "The patch."}}
	op.RequestBody = &body{Content: map[string]media{
		"application/json-patch+json":  anything,
		"application/merge-patch+json": anything,
	}}
	if strategic {
		op.RequestBody.Content["application/strategic-merge-patch+json"] = anything
	}
	op.Responses["200"] = answer("OK", model)
	p.item["patch"] = op
}

func (p *path) remove(verb, action string, parameters []parameter) {
	op := p.operation(verb, action, "")
	op.Parameters = parameters
	op.Responses["200"] = answer("OK", "")
	p.item["delete"] = op
}

func answer(text, model string) response {
	content := map[string]media{}
	for _, m := range []string{mediaJSON, mediaYAML, mediaProtobuf} {
		content[m] = media{Schema: maybeRef(model)}
	}
	return response{Description: text, Content: content}
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

func writeParameters() []parameter {
	return []parameter{
		query("dryRun", "string", "Whether to leave the stored object as it is; the only value is All."),
		query("fieldManager", "string", "The name of who makes the change."),
		query("fieldValidation", "string", "What to do about unknown and duplicate fields: Ignore, Warn or Strict."),
	}
}

func deleteParameters() []parameter {
	return []parameter{
		query("dryRun", "string", "Whether to leave the stored object as it is; the only value is All."),
		query("gracePeriodSeconds", "integer", "Seconds before the object is deleted, where its kind knows that."),
		query("orphanDependents", "boolean", "Deprecated: use propagationPolicy."),
		query("propagationPolicy", "string", "What happens to dependents: Orphan, Background or Foreground."),
	}
}

func listParameters() []parameter {
	return []parameter{
		query("allowWatchBookmarks", "boolean", "Whether the watcher understands bookmarks."),
		query("continue", "string", "The token of the previous page."),
		query("fieldSelector", "string", "Restricts the objects by their fields."),
		query("labelSelector", "string", "Restricts the objects by their labels."),
		query("limit", "integer", "The most objects to return in one page."),
		query("resourceVersion", "string", "How new the answer must be."),
		query("resourceVersionMatch", "string", "How resourceVersion is meant: Exact or NotOlderThan."),
		query("sendInitialEvents", "boolean", "Whether a watch begins with the present state."),
		query("timeoutSeconds", "integer", "How long the list or watch may take."),
		query("watch", "boolean", "Whether to watch for changes instead of listing."),
	}
}
