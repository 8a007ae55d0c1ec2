package openapi

import (
	"reflect"
	"slices"
	"strings"

	"portico/resource/rest"
)

const mediaText = "text/plain"

// connection describes a subresource that is a connection: an operation for each method, by
// the names of kube-apiserver's documents. url is that of the subresource.
func (b *builder) connection(url string, k *rest.Kind, sub *rest.Subresource) {
	p := b.path(url, k)
	p.sub = sub.Name
	options := parametersOf(reflect.ValueOf(sub.Connect.Options()).Elem().Interface().(documented))
	if sub.GVK.Empty() { // a GET of text (log)
		p.parameters = append(p.parameters, options...)
		op := p.operation("read", "get", "")
		content := map[string]media{mediaText: {stringAnswer()}}
		for encoding := range p.content("") {
			content[encoding] = media{stringAnswer()}
		}
		op.Responses["200"] = response{Description: "OK", Content: content}
		p.operations["get"] = op
		return
	}
	// The answers are those of another server, so that they are not indented.
	p.parameters = append(withoutPretty(p.parameters), options...)
	p.gvk = gvk{Group: sub.GVK.Group, Kind: sub.GVK.Kind, Version: sub.GVK.Version}
	p.connect(sub, "")
	if sub.Connect.Path {
		below := b.path(url+"/{path}", k)
		below.sub, below.gvk = p.sub, p.gvk
		below.parameters = append(p.parameters,
			parameter{Name: "path", In: "path", Required: true, Description: "path to the resource", Schema: stringSchema()})
		below.connect(sub, "WithPath")
	}
}

// connect describes each method of a connection.
func (p *path) connect(sub *rest.Subresource, ending string) {
	for _, method := range sub.Connect.Methods {
		verb := strings.ToLower(method)
		op := p.operation("connect", "connect", ending)
		op.OperationID = strings.Replace(op.OperationID, title(p.b.version), title(p.b.version)+title(verb), 1)
		op.Description = "connect " + method + " requests to " + sub.Name + " of " + p.kind.Kind
		op.Responses["200"] = response{Description: "OK", Content: map[string]media{"*/*": {stringAnswer()}}}
		p.operations[verb] = op
	}
}

func stringAnswer() schemaType { return schemaType{Type: "string"} }

func withoutPretty(all []parameter) []parameter {
	return slices.DeleteFunc(slices.Clone(all), func(p parameter) bool { return p.Name == "pretty" })
}
