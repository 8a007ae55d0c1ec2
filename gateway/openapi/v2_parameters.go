package openapi

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"hash/fnv"
	"strings"

	"k8s.io/kube-openapi/pkg/validation/spec"
)

const parameterPrefix = "#/parameters/"

// share moves parameters that many operations have to the document, which makes it
// several times smaller. Their names have a digest of their content, so that equal ones of
// different parts have the same name.
func share(doc *spec.Swagger) error {
	if doc.Parameters == nil {
		doc.Parameters = map[string]spec.Parameter{}
	}
	for url, item := range doc.Paths.Paths {
		if err := shareAll(doc, item.Parameters); err != nil {
			return fmt.Errorf("share parameters of %s: %w", url, err)
		}
		for _, op := range operations(&item) {
			if err := shareAll(doc, op.Parameters); err != nil {
				return fmt.Errorf("share parameters of %s: %w", url, err)
			}
		}
	}
	return nil
}

func operations(item *spec.PathItem) (all []*spec.Operation) {
	for _, op := range []*spec.Operation{item.Get, item.Put, item.Post, item.Delete, item.Options, item.Head, item.Patch} {
		if op != nil {
			all = append(all, op)
		}
	}
	return all
}

func shareAll(doc *spec.Swagger, list []spec.Parameter) error {
	for i := range list {
		p := &list[i]
		if p.Ref.String() != "" || own(p) {
			continue
		}
		data, err := json.Marshal(p)
		if err != nil {
			return err
		}
		h := fnv.New64()
		_, _ = h.Write(data) // never fails
		name := p.Name + "-" + base64.URLEncoding.EncodeToString(h.Sum(nil)[:6])
		ref, err := spec.NewRef(parameterPrefix + name)
		if err != nil {
			return err
		}
		doc.Parameters[name] = *p
		*p = spec.Parameter{Refable: spec.Refable{Ref: ref}}
	}
	return nil
}

// own reports whether a parameter stays with its operation: it describes one kind, or old
// clients look for it there.
func own(p *spec.Parameter) bool {
	switch p.In {
	case "query":
		return p.Name == "dryRun" || p.Name == "fieldValidation"
	case "path":
		return p.Name == "name"
	case "body":
		return p.Schema == nil || !strings.HasPrefix(p.Schema.Ref.String(), definitionPrefix+"io.k8s.apimachinery")
	}
	return false
}
