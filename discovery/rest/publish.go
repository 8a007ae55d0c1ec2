package rest

import (
	"encoding/json"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
)

// MaxPublished bounds the published document, in bytes, as those of API servers.
const MaxPublished = 4 << 20

// componentName matches the names of components.
var componentName = regexp.MustCompile(`^[A-Za-z0-9._-]+$`)

// responseCode matches the keys of responses.
var responseCode = regexp.MustCompile(`^([1-5][0-9][0-9]|default)$`)

// types are the types of schemas in 3.0.
var types = []string{"object", "array", "string", "number", "integer", "boolean"}

// publish returns the document for clients: OpenAPI 3.0 with the paths of clients and the kinds of
// discovery. It modifies the source document.
func (d *deriving) publish() ([]byte, error) {
	out := document{
		OpenAPI: "3.0.0", Info: d.doc.Info, Paths: make(map[string]*pathItem, len(d.paths)), Components: d.doc.Components,
	}
	if out.Info.Title == "" {
		out.Info.Title = d.cfg.Group
	}
	d.model(&out.Components)
	p := &sanitizer{components: &out.Components}
	p.all()
	for path, item := range d.paths {
		d.annotate(path, item)
		p.item(item)
		out.Paths["/apis/"+d.cfg.Group+"/"+d.cfg.Version+path] = item
	}
	data, err := json.Marshal(&out)
	if err != nil {
		return nil, fmt.Errorf("encode OpenAPI document: %w", err)
	}
	if len(data) > MaxPublished {
		return nil, fmt.Errorf("the document to publish would be larger than %d bytes", MaxPublished)
	}
	return data, nil
}

// model gives every kind a schema with its group, version and kind.
func (d *deriving) model(c *components) {
	if c.Schemas == nil {
		c.Schemas = map[string]*schema{}
	}
	for _, s := range c.Schemas {
		if s != nil {
			s.GVKs = nil
		}
	}
	for _, alike := range []bool{true, false} {
		for _, name := range slices.Sorted(maps.Keys(d.resources)) {
			f := d.resources[name]
			component, s := d.objects(f)
			if strings.Contains(name, "/") || strings.HasPrefix(kindName(component), f.kind) != alike {
				continue
			}
			model := c.Schemas[component]
			if model == nil || model.Ref != "" || len(model.GVKs) > 0 {
				// It has no name, or is that of another kind.
				model = c.add(f.kind, s)
			}
			model.GVKs = []gvk{{d.cfg.Group, d.cfg.Version, f.kind}}
		}
	}
}

// add adds a component for a schema, which may be nil or a reference.
func (c *components) add(name string, s *schema) *schema {
	for c.Schemas[name] != nil {
		name += "_"
	}
	model := &schema{Type: "object"}
	switch {
	case s == nil:
	case s.Ref != "":
		model = &schema{AllOf: []*schema{{Ref: s.Ref}}}
	default:
		own := *s
		model = &own
	}
	c.Schemas[name] = model
	return model
}

// annotate sets the kind and the action of the operations of a path.
func (d *deriving) annotate(path string, item *pathItem) {
	parts := strings.Split(strings.Trim(path, "/"), "/")
	name := parts[0]
	if len(parts) > 2 {
		name += "/" + parts[2]
	}
	for _, m := range item.methods() {
		m.operation.GVK = &gvk{d.cfg.Group, d.cfg.Version, d.resources[name].kind}
		m.operation.Action = m.action
		switch {
		case len(parts) == 1 && m.action == "get":
			m.operation.Action = "list"
		case len(parts) == 1 && m.action == "delete":
			m.operation.Action = "deletecollection"
		}
	}
}

// sanitizer removes from a document what readers of OpenAPI 3.0 do not support, and dangling
// references.
type sanitizer struct{ components *components }

// all sanitizes the components.
func (p *sanitizer) all() {
	c := p.components
	trim(c.Schemas)
	trim(c.Responses)
	trim(c.Parameters)
	trim(c.RequestBodies)
	for _, s := range c.Schemas {
		p.schema(s)
	}
	for _, r := range c.Responses {
		p.response(r)
	}
	for _, q := range c.Parameters {
		p.parameter(q)
	}
	for _, b := range c.RequestBodies {
		p.body(b)
	}
}

// trim removes components that cannot be referred to.
func trim[T any](all map[string]*T) {
	maps.DeleteFunc(all, func(name string, v *T) bool { return v == nil || !componentName.MatchString(name) })
}

func (p *sanitizer) item(item *pathItem) {
	item.Parameters = p.parameters(item.Parameters)
	for _, m := range item.methods() {
		op := m.operation
		op.Parameters = p.parameters(op.Parameters)
		p.body(op.Body)
		if all := op.Responses; all["200"] == nil && all["2XX"] != nil {
			all["200"] = all["2XX"] // readers do not support ranges
		}
		maps.DeleteFunc(op.Responses, func(code string, r *response) bool { return r == nil || !responseCode.MatchString(code) })
		if len(op.Responses) == 0 {
			op.Responses = map[string]*response{"default": {Description: "not described"}}
		}
		for _, r := range op.Responses {
			p.response(r)
		}
	}
}

func (p *sanitizer) parameters(all []*parameter) []*parameter {
	all = slices.DeleteFunc(all, func(q *parameter) bool { return q == nil })
	for _, q := range all {
		p.parameter(q)
	}
	return slices.DeleteFunc(all, func(q *parameter) bool { return q.Ref == "" && (q.Name == "" || q.In == "") })
}

func (p *sanitizer) parameter(q *parameter) {
	if refers(&q.Ref, "#/components/parameters/", p.components.Parameters) {
		*q = parameter{Ref: q.Ref}
	}
	p.schema(q.Schema)
}

func (p *sanitizer) body(b *body) {
	if b == nil {
		return
	}
	if refers(&b.Ref, "#/components/requestBodies/", p.components.RequestBodies) {
		*b = body{Ref: b.Ref}
		return
	}
	if p.content(b.Content); len(b.Content) == 0 {
		b.Content = map[string]*form{"*/*": {}}
	}
}

func (p *sanitizer) response(r *response) {
	if refers(&r.Ref, "#/components/responses/", p.components.Responses) {
		*r = response{Ref: r.Ref}
	}
	p.content(r.Content)
}

func (p *sanitizer) content(forms map[string]*form) {
	maps.DeleteFunc(forms, func(_ string, f *form) bool { return f == nil })
	for _, f := range forms {
		p.schema(f.Schema)
	}
}

// refers reports whether a reference exists and its target does; it removes a dangling reference.
func refers[T any](ref *string, prefix string, to map[string]*T) bool {
	name, ok := strings.CutPrefix(*ref, prefix)
	if ok && to[name] != nil {
		return true
	}
	*ref = ""
	return false
}

// schema recurses up to maxDepth, the depth of the source document.
func (p *sanitizer) schema(s *schema) {
	if s == nil {
		return
	}
	if refers(&s.Ref, schemaPrefix, p.components.Schemas) {
		*s = schema{Ref: s.Ref, GVKs: s.GVKs}
		return
	}
	s.oneType()
	for name, inner := range s.Properties {
		if inner == nil {
			inner = &schema{}
			s.Properties[name] = inner
		}
		p.schema(inner)
	}
	if s.Type == "array" && s.Items == nil {
		s.Items = &schema{}
	}
	p.schema(s.Items)
	p.schema(s.Values)
	for _, list := range []*[]*schema{&s.AllOf, &s.OneOf, &s.AnyOf} {
		*list = slices.DeleteFunc(*list, func(s *schema) bool { return s == nil })
		for _, inner := range *list {
			p.schema(inner)
		}
	}
	s.Anything = s.Type == nil && len(s.Properties) == 0 && s.Items == nil && s.Values == nil && len(s.AllOf)+len(s.OneOf)+len(s.AnyOf)+len(s.Enum) == 0
}

// oneType replaces the types of OpenAPI 3.1 by one of 3.0.
func (s *schema) oneType() {
	var one string
	switch t := s.Type.(type) {
	case string:
		one = t
	case []any:
		for _, v := range t {
			switch name, _ := v.(string); {
			case name == "null":
				s.Nullable = true
			case one != "" && name != "":
				s.Type = nil
				return
			default:
				one = name
			}
		}
	}
	s.Type = nil
	if slices.Contains(types, one) {
		s.Type = one
	}
}

// Summary describes LeftOut in one line; "" if it is empty.
func (a *API) Summary() string {
	if len(a.LeftOut) == 0 {
		return ""
	}
	first := a.LeftOut[0]
	return fmt.Sprintf("paths in no resource: %d, the first %s: %s", len(a.LeftOut)+a.Omitted, first.Path, first.Reason)
}
