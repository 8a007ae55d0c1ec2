package rest

import (
	"maps"
	"slices"
	"strings"

	"portico/discovery"
)

const (
	schemaPrefix = "#/components/schemas/"
	// maxHops bounds how many references are followed: they may be circular.
	maxHops = 8
)

// schemaKind returns the kind named by the schema of the objects of a resource; "": none.
func (d *deriving) schemaKind(f *found) string {
	name, _ := d.objects(f)
	return kindName(name)
}

// objects returns the schema of the objects of a resource, with its name if it has one; nil: none.
// Responses precede requests, and objects precede collections.
func (d *deriving) objects(f *found) (name string, s *schema) {
	var candidates []*schema
	if f.item != nil {
		candidates = append(candidates, d.answered(f.item.Get))
	}
	if f.list != nil {
		candidates = append(candidates, d.listed(d.answered(f.list.Get)), d.answered(f.list.Post), d.sent(f.list.Post))
	}
	if f.item != nil {
		candidates = append(candidates, d.answered(f.item.Put), d.sent(f.item.Put), d.sent(f.item.Patch))
	}
	for _, s := range candidates {
		if s == nil {
			continue
		}
		if name, ok := discovery.ReferenceName(s.Ref, schemaPrefix); ok && d.doc.Components.Schemas[name] != nil {
			return name, s
		}
	}
	for _, s := range candidates {
		if s != nil && s.Ref == "" {
			return "", s
		}
	}
	return "", nil
}

// answered returns the schema of a successful response.
func (d *deriving) answered(op *operation) *schema {
	if op == nil {
		return nil
	}
	for _, code := range []string{"200", "201", "2XX", "default"} {
		r := op.Responses[code]
		for range maxHops {
			name, ok := "", false
			if r != nil {
				name, ok = discovery.ReferenceName(r.Ref, "#/components/responses/")
			}
			if !ok {
				break
			}
			r = d.doc.Components.Responses[name]
		}
		if r != nil {
			if s := jsonOf(r.Content); s != nil {
				return s
			}
		}
	}
	return nil
}

// sent returns the schema of a request body.
func (d *deriving) sent(op *operation) *schema {
	if op == nil {
		return nil
	}
	b := op.Body
	for range maxHops {
		name, ok := "", false
		if b != nil {
			name, ok = discovery.ReferenceName(b.Ref, "#/components/requestBodies/")
		}
		if !ok {
			break
		}
		b = d.doc.Components.RequestBodies[name]
	}
	if b == nil {
		return nil
	}
	return jsonOf(b.Content)
}

// jsonOf returns the schema of the JSON form of a body.
func jsonOf(forms map[string]*form) *schema {
	for _, media := range slices.Sorted(maps.Keys(forms)) {
		kind, _, _ := strings.Cut(media, ";")
		if kind = strings.TrimSpace(kind); kind != "application/json" && !strings.HasSuffix(kind, "+json") && kind != "*/*" {
			continue
		}
		if f := forms[media]; f != nil && f.Schema != nil {
			return f.Schema
		}
	}
	return nil
}

// listed returns the schema of the items of a list: an array, or an object with one array.
func (d *deriving) listed(s *schema) *schema {
	if s = d.follow(s); s == nil {
		return nil
	}
	if s.Items != nil {
		return s.Items
	}
	var items *schema
	for _, p := range s.Properties {
		if p != nil && p.Items != nil {
			if items != nil {
				return nil
			}
			items = p.Items
		}
	}
	return items
}

// follow resolves references; nil: they are dangling.
func (d *deriving) follow(s *schema) *schema {
	for range maxHops {
		if s == nil || s.Ref == "" {
			return s
		}
		name, _ := discovery.ReferenceName(s.Ref, schemaPrefix)
		s = d.doc.Components.Schemas[name]
	}
	return nil
}
