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
	if out.Info.Version == "" {
		out.Info.Version = d.cfg.Version
	}
	d.model(&out.Components)
	p := &sanitizer{components: &out.Components}
	p.all()
	for path, item := range d.paths {
		d.annotate(path, item)
		p.item(path, item)
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

// Summary describes LeftOut in one line; "" if it is empty.
func (a *API) Summary() string {
	if len(a.LeftOut) == 0 {
		return ""
	}
	first := a.LeftOut[0]
	return fmt.Sprintf("paths in no resource: %d, the first %s: %s", len(a.LeftOut)+a.Omitted, first.Path, first.Reason)
}
