package openapi

import (
	"bytes"
	"compress/gzip"
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"sync"
	"time"

	"k8s.io/kube-openapi/pkg/aggregator"
	"k8s.io/kube-openapi/pkg/validation/spec"

	"portico/discovery/openapi"
)

const (
	// maxV2 bounds the OpenAPI v2 document and each of its sources, in v2Cost. Making it takes up to
	// 300 MB of memory. The document of kube-apiserver costs about 11 MB.
	maxV2 = 16 << 20
	// v2Fetches is how many documents are fetched at a time, and v2Pause the pause before a failed
	// one is fetched again.
	v2Fetches = 4
	v2Pause   = time.Minute
)

var errV2TooLarge = errors.New("it is beyond the limits on the OpenAPI v2 document")

// v2Cost is the size of JSON in bytes plus 64 for each value: decoded, {} takes more than a thousand
// bytes.
func v2Cost(text []byte) int { return len(text) + 64*bytes.Count(text, []byte(",")) }

// v2Part is the part of one group/version. Immutable.
type v2Part struct {
	apiService, owner, url string
	paths                  int // v2Cost of the paths
	definitions            map[string]v2Definition
	packed                 []byte // the document as JSON, gzip
}

// v2Definition identifies a definition.
type v2Definition struct {
	cost int // v2Cost
	sum  [sha256.Size]byte
}

// v2Failure is why a part is missing or outdated.
type v2Failure struct {
	owner, url string
	err        error
	until      time.Time // not fetched again before
}

// load collects the parts of all sources by APIService, and their failures. Current parts, and those
// that failed within v2Pause, are not fetched. After a failure the old part remains.
func (v *v2) load(ctx context.Context, list []v2Source, l *v2Loader) {
	slots := make(chan struct{}, v2Fetches)
	var fetches sync.WaitGroup
	for _, s := range list {
		if s.url == "" {
			continue
		}
		old, before := v.parts[s.apiService], v.failures[s.apiService]
		switch {
		case old != nil && old.owner == s.owner && old.url == s.url:
			l.keep(old)
			continue
		case before != nil && before.owner == s.owner && before.url == s.url && time.Now().Before(before.until):
			l.fail(&s, old, before)
			continue
		}
		slots <- struct{}{}
		fetches.Go(func() {
			defer func() { <-slots }()
			l.load(ctx, &s, old)
		})
	}
	fetches.Wait()
}

// v2Loader collects parts. Safe for concurrent use.
type v2Loader struct {
	converting sync.Mutex // one document at a time: decoded it takes much memory

	mu       sync.Mutex
	parts    map[string]*v2Part
	failures map[string]*v2Failure
	away     map[string]error // servers that did not answer in time, by owner
}

func newV2Loader() *v2Loader {
	return &v2Loader{parts: map[string]*v2Part{}, failures: map[string]*v2Failure{}, away: map[string]error{}}
}

// loaded returns the parts that there are up to now.
func (l *v2Loader) loaded() map[string]*v2Part {
	l.mu.Lock()
	defer l.mu.Unlock()
	return maps.Clone(l.parts)
}

func (l *v2Loader) keep(p *v2Part) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.parts[p.apiService] = p
}

func (l *v2Loader) fail(s *v2Source, old *v2Part, f *v2Failure) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if old != nil {
		l.parts[s.apiService] = old
	}
	l.failures[s.apiService] = f
	if errors.Is(f.err, context.DeadlineExceeded) {
		l.away[s.owner] = f.err
	}
}

// load fetches and converts one document. After a timeout no further documents of a server are
// requested, which would delay those of others.
func (l *v2Loader) load(ctx context.Context, s *v2Source, old *v2Part) {
	l.mu.Lock()
	err := l.away[s.owner]
	l.mu.Unlock()
	var data []byte
	if err == nil {
		data, err = s.fetch(ctx)
	}
	var p *v2Part
	if err == nil {
		l.converting.Lock()
		if p, err = newV2Part(s, data); err != nil {
			err = &openapi.BrokenError{Err: err}
		}
		l.converting.Unlock()
	}
	if err != nil {
		l.fail(s, old, &v2Failure{owner: s.owner, url: s.url, err: err, until: time.Now().Add(v2Pause)})
		return
	}
	l.keep(p)
}

// newV2Part converts the paths of a group/version in its v3 document.
func newV2Part(s *v2Source, data []byte) (*v2Part, error) {
	if v2Cost(data) > maxV2 {
		return nil, errV2TooLarge
	}
	doc, err := fromV3(data)
	if err != nil {
		return nil, err
	}
	if s.key != "" {
		doc = aggregator.FilterSpecByPathsWithoutSideEffects(doc, []string{"/" + s.key + "/"})
	}
	if err := share(doc); err != nil {
		return nil, err
	}
	out := &v2Part{apiService: s.apiService, owner: s.owner, url: s.url, definitions: make(map[string]v2Definition, len(doc.Definitions))}
	for name, schema := range doc.Definitions {
		text, err := json.Marshal(&schema)
		if err != nil {
			return nil, fmt.Errorf("encode definition %s: %w", name, err)
		}
		out.definitions[name] = v2Definition{len(name) + v2Cost(text), sha256.Sum256(text)}
	}
	paths, err := json.Marshal(doc.Paths)
	if err != nil {
		return nil, fmt.Errorf("encode paths: %w", err)
	}
	out.paths = v2Cost(paths)
	whole, err := json.Marshal(newSwagger(doc.Paths, doc.Definitions, doc.Parameters))
	if err != nil {
		return nil, fmt.Errorf("encode OpenAPI v2 document: %w", err)
	}
	var packed bytes.Buffer
	z, _ := gzip.NewWriterLevel(&packed, gzip.BestSpeed) // a known level: no error
	if _, err := z.Write(whole); err != nil {
		return nil, fmt.Errorf("compress OpenAPI v2 document: %w", err)
	}
	if err := z.Close(); err != nil {
		return nil, fmt.Errorf("compress OpenAPI v2 document: %w", err)
	}
	out.packed = bytes.Clone(packed.Bytes())
	return out, nil
}

// open decompresses and decodes the part.
func (p *v2Part) open() (*spec.Swagger, error) {
	z, err := gzip.NewReader(bytes.NewReader(p.packed))
	if err != nil {
		return nil, fmt.Errorf("read cached OpenAPI v2 document: %w", err)
	}
	data, err := io.ReadAll(z)
	if err != nil {
		return nil, fmt.Errorf("read cached OpenAPI v2 document: %w", err)
	}
	doc := &spec.Swagger{}
	if err := json.Unmarshal(data, doc); err != nil {
		return nil, fmt.Errorf("decode cached OpenAPI v2 document: %w", err)
	}
	return doc, nil
}

// newSwagger returns a document.
func newSwagger(paths *spec.Paths, definitions spec.Definitions, parameters map[string]spec.Parameter) *spec.Swagger {
	return &spec.Swagger{SwaggerProps: spec.SwaggerProps{
		Swagger: "2.0", Info: &spec.Info{InfoProps: spec.InfoProps{Title: "Kubernetes", Version: "unversioned"}},
		Paths: paths, Definitions: definitions, Parameters: parameters,
	}}
}

// mergeV2 merges parts in their order, up to a v2Cost, and returns JSON. A part that cannot be merged
// is omitted and reported to failed. Of different definitions with one name the later is renamed.
func mergeV2(parts []*v2Part, most int, failed func(*v2Part, error)) ([]byte, error) {
	whole := newSwagger(&spec.Paths{Paths: map[string]spec.PathItem{}}, spec.Definitions{}, map[string]spec.Parameter{})
	cost, first := 0, map[string]v2Definition{}
	for _, p := range parts {
		added := p.paths
		for name, d := range p.definitions {
			if have, ok := first[name]; !ok || have != d {
				added += d.cost
			}
		}
		if cost+added > most {
			failed(p, errV2TooLarge)
			continue
		}
		if err := p.mergeInto(whole); err != nil {
			failed(p, err)
			continue
		}
		cost += added
		for name, d := range p.definitions {
			if _, have := first[name]; !have {
				first[name] = d
			}
		}
	}
	return json.Marshal(whole)
}

// mergeInto adds the part to a document. The library expects documents of Kubernetes' own servers; its
// panics become errors.
func (p *v2Part) mergeInto(whole *spec.Swagger) (err error) {
	defer func() {
		if r := recover(); r != nil {
			err = fmt.Errorf("merge OpenAPI v2 documents: %v", r)
		}
	}()
	doc, err := p.open()
	if err != nil {
		return err
	}
	if err := aggregator.MergeSpecs(whole, doc); err != nil {
		return fmt.Errorf("merge OpenAPI v2 documents: %w", err)
	}
	return nil
}
