package rest

import (
	"maps"
	"slices"
	"strconv"

	"portico/discovery"
)

// sanitizer removes from a document what readers of OpenAPI 3.0 do not support, and dangling
// references.
type sanitizer struct{ components *components }

// all sanitizes the components.
func (p *sanitizer) all() {
	c := p.components
	trim(c.Schemas)
	trim(c.Responses)
	trim(c.Parameters)
	trim(c.Examples)
	trim(c.RequestBodies)
	trim(c.Headers)
	maps.DeleteFunc(c.Parameters, func(_ string, q *parameter) bool { return !p.follow(q).placed() })
	for _, s := range c.Schemas {
		p.schema(s)
	}
	for _, r := range c.Responses {
		p.response(r)
	}
	for _, q := range c.Parameters {
		p.parameter(q)
	}
	for _, e := range c.Examples {
		p.example(e)
	}
	for _, b := range c.RequestBodies {
		p.body(b)
	}
	p.headers(c.Headers)
}

// trim removes components that are null, and gives the others names that OpenAPI permits.
func trim[T any](all map[string]*T) {
	for _, name := range slices.Sorted(maps.Keys(all)) {
		v, permitted := all[name], discovery.ComponentName(name)
		if v != nil && permitted == name {
			continue
		}
		delete(all, name)
		if v != nil && all[permitted] == nil {
			all[permitted] = v
		}
	}
}

// item sanitizes the operations of a path.
func (p *sanitizer) item(path string, item *pathItem) {
	item.Parameters = p.parameters(path, item.Parameters)
	for _, m := range item.methods() {
		op := m.operation
		op.Parameters = p.parameters(path, op.Parameters)
		p.body(op.Body)
		if all := op.Responses; all["200"] == nil && all["2XX"] != nil {
			all["200"] = all["2XX"] // readers do not support ranges
		}
		maps.DeleteFunc(op.Responses, func(code string, r *response) bool { return r == nil || !responseCode.MatchString(code) })
		if len(op.Responses) == 0 {
			op.Responses = map[string]*response{"default": {}}
		}
		for _, r := range op.Responses {
			p.response(r)
		}
	}
	p.declare(path, item)
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
		return
	}
	if r.Description == "" {
		r.Description = "not described"
	}
	p.headers(r.Headers)
	p.content(r.Content)
}

func (p *sanitizer) content(forms map[string]*form) {
	maps.DeleteFunc(forms, func(_ string, f *form) bool { return f == nil })
	for _, f := range forms {
		p.schema(f.Schema)
		p.examples(&f.Example, f.Examples)
		maps.DeleteFunc(f.Encoding, func(_ string, e *encoding) bool { return e == nil })
		for _, e := range f.Encoding {
			p.headers(e.Headers)
			e.sanitize(inQuery)
		}
	}
}

// refers reports whether a reference exists and its target does, by the published name of that; it removes a dangling
// reference.
func refers[T any](ref *string, prefix string, to map[string]*T) bool {
	name, ok := discovery.ReferenceName(*ref, prefix)
	if name = discovery.ComponentName(name); ok && to[name] != nil {
		*ref = prefix + name
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
	p.schema(s.Not)
	s.limits.sanitize()
	for _, list := range []*[]*schema{&s.AllOf, &s.OneOf, &s.AnyOf} {
		*list = slices.DeleteFunc(*list, func(s *schema) bool { return s == nil })
		for _, inner := range *list {
			p.schema(inner)
		}
	}
	s.Anything = s.Type == nil && len(s.Properties) == 0 && s.Items == nil && s.Values == nil && s.Not == nil && len(s.AllOf)+len(s.OneOf)+len(s.AnyOf)+len(s.Enum) == 0
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

// sanitize removes limits that are no counts.
func (l *limits) sanitize() {
	for _, n := range []*number{&l.MinLength, &l.MaxLength, &l.MinItems, &l.MaxItems, &l.MinProperties, &l.MaxProperties} {
		if _, err := strconv.ParseUint(string(*n), 10, 64); err != nil {
			*n = ""
		}
	}
	if f, err := strconv.ParseFloat(string(l.MultipleOf), 64); err != nil || f <= 0 {
		l.MultipleOf = ""
	}
}
