package openapi

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	"k8s.io/kube-openapi/pkg/aggregator"
	"k8s.io/kube-openapi/pkg/openapiconv"
	"k8s.io/kube-openapi/pkg/validation/spec"
)

// converterVersion is part of what names a converted document: clients cache
// documents by their hash, so a converter that writes something else must count
// it up.
const converterVersion = 1

// ConvertedHash returns the hash of the document that FromV2 makes for a key of
// a v2 document, by what identifies that (its digest).
func ConvertedHash(digest, key string) string {
	return ContentHash(fmt.Appendf(nil, "%d %q %q", converterVersion, key, digest))
}

// KeysOfV2 returns which of some keys ("apis/G/V") a server's v2 document has
// paths of. An error says that it is no such document.
func KeysOfV2(data []byte, keys []string) ([]string, error) {
	var doc struct {
		Swagger string              `json:"swagger"`
		Paths   map[string]struct{} `json:"paths"`
	}
	if err := json.Unmarshal(data, &doc); err != nil {
		return nil, fmt.Errorf("decode OpenAPI v2 document: %w", err)
	}
	if doc.Swagger != "2.0" || doc.Paths == nil {
		return nil, errNotV2
	}
	var out []string
	for _, key := range keys {
		for path := range doc.Paths {
			if strings.HasPrefix(path, "/"+key+"/") {
				out = append(out, key)
				break
			}
		}
	}
	return out, nil
}

var errNotV2 = errors.New("no OpenAPI v2 document: it has no version 2.0 or no paths")

// FromV2 makes the v3 document of a group/version of a server's v2 document, of
// which it takes what is below /key/. Documents that cannot be converted are
// errors, whatever they hold.
func FromV2(data []byte, key string) (out []byte, err error) {
	var doc spec.Swagger
	if err := json.Unmarshal(data, &doc); err != nil {
		return nil, fmt.Errorf("decode OpenAPI v2 document: %w", err)
	}
	if doc.Swagger != "2.0" || doc.Paths == nil {
		return nil, errNotV2
	}
	// The converter was written for documents of Kubernetes' own servers, and
	// panics on what it does not expect of them.
	defer func() {
		if p := recover(); p != nil {
			out, err = nil, fmt.Errorf("convert OpenAPI v2 document: %v", p)
		}
	}()
	part := aggregator.FilterSpecByPathsWithoutSideEffects(&doc, []string{"/" + key + "/"})
	if err := prepare(part, doc.Parameters); err != nil {
		return nil, err
	}
	v3 := openapiconv.ConvertV2ToV3(part)
	v3.Info = &spec.Info{InfoProps: spec.InfoProps{Title: "Kubernetes", Version: "unversioned"}}
	if out, err = json.Marshal(v3); err != nil {
		return nil, fmt.Errorf("encode converted OpenAPI document: %w", err)
	}
	return out, nil
}

// prepare has operations say themselves what v2 lets the document say for all of
// them: the converter looks nowhere else.
func prepare(doc *spec.Swagger, shared map[string]spec.Parameter) error {
	for path, item := range doc.Paths.Paths {
		common, err := resolved(item.Parameters, shared)
		if err != nil {
			return fmt.Errorf("%s: %w", path, err)
		}
		item.Parameters = nil
		for _, op := range []*spec.Operation{item.Get, item.Put, item.Post, item.Delete, item.Options, item.Head, item.Patch} {
			if op == nil {
				continue
			}
			own, err := resolved(op.Parameters, shared)
			if err != nil {
				return fmt.Errorf("%s: %w", path, err)
			}
			op.Parameters = own
			for _, p := range common {
				if !slices.ContainsFunc(own, func(q spec.Parameter) bool { return q.Name == p.Name && q.In == p.In }) {
					op.Parameters = append(op.Parameters, p)
				}
			}
			complete(op, doc)
		}
		doc.Paths.Paths[path] = item
	}
	doc.Parameters = nil
	return nil
}

// complete fills in what an operation leaves to the document.
func complete(op *spec.Operation, doc *spec.Swagger) {
	if len(op.Consumes) == 0 {
		op.Consumes = doc.Consumes
	}
	if len(op.Produces) == 0 {
		op.Produces = doc.Produces
	}
	for _, media := range []*[]string{&op.Consumes, &op.Produces} {
		if len(*media) == 0 {
			*media = []string{mediaJSON}
		}
	}
	if op.Responses == nil {
		op.Responses = &spec.Responses{}
	}
	for code, r := range op.Responses.StatusCodeResponses {
		if r.Description == "" && r.Ref.String() == "" {
			r.Description = "not described" // v3 must have one
			op.Responses.StatusCodeResponses[code] = r
		}
	}
	for i := range op.Parameters {
		if p := &op.Parameters[i]; p.In == "body" {
			p.Name = "body" // which is how the converter knows it
		}
	}
}

// resolved returns parameters with those that the document shares in their
// place.
func resolved(list []spec.Parameter, shared map[string]spec.Parameter) ([]spec.Parameter, error) {
	out := make([]spec.Parameter, 0, len(list))
	for _, p := range list {
		if ref := p.Ref.String(); ref != "" {
			name, _ := strings.CutPrefix(ref, "#/parameters/")
			found, ok := shared[name]
			if !ok || found.Ref.String() != "" {
				return nil, fmt.Errorf("the parameter %.100q is not there", ref)
			}
			p = found
		}
		out = append(out, p)
	}
	return out, nil
}
