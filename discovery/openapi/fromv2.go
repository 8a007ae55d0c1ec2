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

	"portico/discovery"
)

// converterVersion is part of the hash of converted documents. It is incremented when the conversion
// changes: clients cache documents by their hash.
const converterVersion = 1

// ConvertedHash returns the hash of the document that FromV2 returns for a key, by the digest of the
// v2 document.
func ConvertedHash(digest, key string) string {
	return ContentHash(fmt.Appendf(nil, "%d %q %q", converterVersion, key, digest))
}

// KeysOfV2 returns those of the keys ("apis/G/V") of which a v2 document has paths. The error says
// that it is not a v2 document.
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

// FromV2 converts the paths below /key/ of a v2 document to the v3 document of a group/version. It
// does not panic, whatever the document has.
func FromV2(data []byte, key string) (out []byte, err error) {
	var doc spec.Swagger
	if err := json.Unmarshal(data, &doc); err != nil {
		return nil, fmt.Errorf("decode OpenAPI v2 document: %w", err)
	}
	if doc.Swagger != "2.0" || doc.Paths == nil {
		return nil, errNotV2
	}
	// The library expects documents of Kubernetes' own servers and panics on others.
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

// prepare copies the defaults of the document and of paths to operations: the library reads only
// those.
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

// complete sets the defaults of the document in an operation.
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
			r.Description = "not described" // required in v3
			op.Responses.StatusCodeResponses[code] = r
		}
	}
	for i := range op.Parameters {
		if p := &op.Parameters[i]; p.In == "body" {
			p.Name = "body" // the name that the library expects
		}
	}
}

// resolved returns parameters with references resolved.
func resolved(list []spec.Parameter, shared map[string]spec.Parameter) ([]spec.Parameter, error) {
	out := make([]spec.Parameter, 0, len(list))
	for _, p := range list {
		if ref := p.Ref.String(); ref != "" {
			name, _ := discovery.ReferenceName(ref, "#/parameters/")
			found, ok := shared[name]
			if !ok || found.Ref.String() != "" {
				return nil, fmt.Errorf("the parameter %.100q does not exist", ref)
			}
			p = found
		}
		out = append(out, p)
	}
	return out, nil
}
