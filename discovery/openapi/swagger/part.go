package swagger

import (
	"bytes"
	"compress/gzip"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"

	"k8s.io/kube-openapi/pkg/aggregator"
	"k8s.io/kube-openapi/pkg/validation/spec"
)

// part is what one server, or one group/version of it, adds to the whole.
// Immutable.
type part struct {
	// names are the APIServices whose paths it has.
	names []string
	// state and etag say when it is to be fetched anew; see load.go.
	state, etag string
	// definitions are the names of its definitions.
	definitions []string
	size        int    // of the JSON, in bytes
	packed      []byte // gzip
}

// newPart prepares a document: only what is below the prefixes stays, in words
// that every reader understands.
func newPart(doc *spec.Swagger, prefixes []string) (*part, error) {
	if doc.Paths == nil {
		doc.Paths = &spec.Paths{}
	}
	doc = aggregator.FilterSpecByPathsWithoutSideEffects(doc, prefixes)
	if err := share(doc); err != nil {
		return nil, err
	}
	data, err := json.Marshal(&spec.Swagger{SwaggerProps: spec.SwaggerProps{
		Swagger: "2.0", Info: about(), Paths: doc.Paths, Definitions: doc.Definitions, Parameters: doc.Parameters,
	}})
	if err != nil {
		return nil, fmt.Errorf("encode OpenAPI v2 document: %w", err)
	}
	var packed bytes.Buffer
	z, err := gzip.NewWriterLevel(&packed, gzip.BestSpeed)
	if err != nil {
		return nil, err
	}
	if _, err = z.Write(data); err == nil {
		err = z.Close()
	}
	if err != nil {
		return nil, fmt.Errorf("compress OpenAPI v2 document: %w", err)
	}
	return &part{
		size: len(data), packed: bytes.Clone(packed.Bytes()),
		definitions: slices.Sorted(maps.Keys(doc.Definitions)),
	}, nil
}

// about is the document's own description, the same in all.
func about() *spec.Info {
	return &spec.Info{InfoProps: spec.InfoProps{Title: "Kubernetes", Version: "unversioned"}}
}

// newPartV3 makes a part of a v3 document.
func newPartV3(data []byte, prefixes []string) (*part, error) {
	doc, err := fromV3(data)
	if err != nil {
		return nil, err
	}
	return newPart(doc, prefixes)
}

// newPartV2 makes a part of a server's own v2 document. Since all that is known
// of it is that the server sent it, it is tried out in the form that is hardest
// to make.
func newPartV2(data []byte, prefixes []string) (*part, error) {
	var doc spec.Swagger
	if err := json.Unmarshal(data, &doc); err != nil {
		return nil, fmt.Errorf("decode OpenAPI v2 document: %w", err)
	}
	if doc.Swagger != "2.0" || doc.Paths == nil {
		return nil, errors.New("no OpenAPI v2 document: it has no version 2.0 or no paths")
	}
	doc = *aggregator.FilterSpecByPathsWithoutSideEffects(&doc, prefixes)
	p := plain{has: func(name string) bool { _, ok := doc.Definitions[name]; return ok }}
	definitions := make(spec.Definitions, len(doc.Definitions))
	for name, s := range doc.Definitions {
		definitions[name] = p.schema(&s)
	}
	doc.Definitions = definitions
	for url := range doc.Paths.Paths {
		item := doc.Paths.Paths[url]
		for _, op := range operations(&item) {
			p.bodies(op)
		}
	}
	out, err := newPart(&doc, prefixes)
	if err != nil {
		return nil, err
	}
	plainJSON, err := out.unpack()
	if err != nil {
		return nil, err
	}
	if err := tried(plainJSON); err != nil {
		return nil, err
	}
	return out, nil
}

// bodies makes the schemas of what is sent and answered plain.
func (p plain) bodies(op *spec.Operation) {
	for i := range op.Parameters {
		if s := op.Parameters[i].Schema; s != nil {
			made := p.schema(s)
			op.Parameters[i].Schema = &made
		}
	}
	if op.Responses == nil {
		return
	}
	for code, r := range op.Responses.StatusCodeResponses {
		if r.Schema != nil {
			made := p.schema(r.Schema)
			r.Schema = &made
			op.Responses.StatusCodeResponses[code] = r
		}
	}
}

func (p *part) unpack() ([]byte, error) {
	z, err := gzip.NewReader(bytes.NewReader(p.packed))
	if err != nil {
		return nil, fmt.Errorf("read kept OpenAPI v2 document: %w", err)
	}
	out := bytes.NewBuffer(make([]byte, 0, p.size+bytes.MinRead))
	if _, err := io.Copy(out, z); err != nil {
		return nil, fmt.Errorf("read kept OpenAPI v2 document: %w", err)
	}
	return out.Bytes(), nil
}

// open decodes the part.
func (p *part) open() (*spec.Swagger, error) {
	data, err := p.unpack()
	if err != nil {
		return nil, err
	}
	doc := &spec.Swagger{}
	if err := json.Unmarshal(data, doc); err != nil {
		return nil, fmt.Errorf("decode kept OpenAPI v2 document: %w", err)
	}
	return doc, nil
}
