package rest

import (
	"encoding/json"
	"maps"
	"regexp"
	"slices"

	"portico/discovery"
)

const parameterPrefix = "#/components/parameters/"

// Places of parameters. Headers of responses and of parts of forms are as those in a header.
const (
	inPath   = "path"
	inQuery  = "query"
	inHeader = "header"
	inCookie = "cookie"
)

// styles are the styles of values, by place.
var styles = map[string][]string{
	inPath: {"simple", "label", "matrix"}, inQuery: {"form", "spaceDelimited", "pipeDelimited", "deepObject"},
	inHeader: {"simple"}, inCookie: {"form"},
}

// templates matches the parameters in a path.
var templates = regexp.MustCompile(`\{([^{}]+)\}`)

// templated returns the names of the parameters in a path.
func templated(path string) (names []string) {
	for _, m := range templates.FindAllStringSubmatch(path, -1) {
		names = append(names, m[1])
	}
	return names
}

// placed reports whether a parameter has a name and a place.
func (q *parameter) placed() bool { return q != nil && q.Name != "" && styles[q.In] != nil }

// follow resolves references. It returns nil if they are dangling.
func (p *sanitizer) follow(q *parameter) *parameter {
	for range maxHops {
		if q == nil || q.Ref == "" {
			return q
		}
		name, _ := discovery.ReferenceName(q.Ref, parameterPrefix)
		q = p.components.Parameters[discovery.ComponentName(name)]
	}
	return nil
}

// parameters returns the parameters of a path or an operation that are well-formed, each once.
func (p *sanitizer) parameters(path string, all []*parameter) []*parameter {
	type id struct{ name, in string }
	seen, names := map[id]bool{}, templated(path)
	return slices.DeleteFunc(all, func(q *parameter) bool {
		if q == nil {
			return true
		}
		p.parameter(q)
		as := p.follow(q)
		if !as.placed() || seen[id{as.Name, as.In}] || as.In == inPath && !slices.Contains(names, as.Name) {
			return true
		}
		seen[id{as.Name, as.In}] = true
		return false
	})
}

// declare adds the parameters in a path that neither it nor each of its operations declares.
func (p *sanitizer) declare(path string, item *pathItem) {
	has := func(all []*parameter, name string) bool {
		return slices.ContainsFunc(all, func(q *parameter) bool {
			as := p.follow(q)
			return as.Name == name && as.In == inPath
		})
	}
	for _, name := range templated(path) {
		missing := !has(item.Parameters, name) && slices.ContainsFunc(item.methods(), func(m method) bool { return !has(m.operation.Parameters, name) })
		if missing {
			item.Parameters = append(item.Parameters, &parameter{Name: name, In: inPath, value: value{Required: true, Schema: &schema{Type: "string"}}})
		}
	}
}

func (p *sanitizer) parameter(q *parameter) {
	if refers(&q.Ref, parameterPrefix, p.components.Parameters) {
		*q = parameter{Ref: q.Ref}
		return
	}
	q.Required = q.Required || q.In == inPath
	p.value(&q.value, q.In)
}

func (p *sanitizer) headers(all map[string]*header) {
	maps.DeleteFunc(all, func(_ string, h *header) bool { return h == nil })
	for _, h := range all {
		if refers(&h.Ref, "#/components/headers/", p.components.Headers) {
			*h = header{Ref: h.Ref}
			continue
		}
		p.value(&h.value, inHeader)
	}
}

// value leaves either a schema or the content of one media type.
func (p *sanitizer) value(v *value, in string) {
	v.AllowEmptyValue = v.AllowEmptyValue && in == inQuery
	v.serialization.sanitize(in)
	p.content(v.Content)
	if v.Schema != nil || len(v.Content) != 1 {
		v.Content = nil
		if v.Schema == nil {
			v.Schema = &schema{}
		}
		p.schema(v.Schema)
		p.examples(&v.Example, v.Examples)
		return
	}
	v.serialization, v.Example, v.Examples = serialization{}, nil, nil
}

// sanitize removes what a place does not have.
func (s *serialization) sanitize(in string) {
	if !slices.Contains(styles[in], s.Style) {
		s.Style = ""
	}
	s.AllowReserved = s.AllowReserved && in == inQuery
}

// examples leaves either one example or several.
func (p *sanitizer) examples(one *json.RawMessage, all map[string]*example) {
	maps.DeleteFunc(all, func(_ string, e *example) bool { return e == nil })
	for _, e := range all {
		p.example(e)
	}
	if len(all) > 0 {
		*one = nil
	}
}

func (p *sanitizer) example(e *example) {
	if refers(&e.Ref, "#/components/examples/", p.components.Examples) {
		*e = example{Ref: e.Ref}
	} else if len(e.Value) > 0 {
		e.ExternalValue = ""
	}
}
