package openapi

import (
	"context"
	"crypto/sha512"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"k8s.io/kube-openapi/pkg/handler3"

	"portico/discovery"
	httpresponse "portico/resource/response"
)

const (
	mediaOpenAPIProtobuf = "application/com.github.proto-openapi.spec.v3.v1.0+protobuf"
	// mediaOpenAPIProtobufOld is the type that clients request.
	mediaOpenAPIProtobufOld = "application/com.github.proto-openapi.spec.v3@v1.0+protobuf"
)

// NoStore is the Cache-Control of requests for documents that are each used once, as a gateway
// sends them: caching those would evict others.
const NoStore = "no-store"

// serve serves a document. With its hash in the URL clients may cache it without limit; another hash
// is redirected.
func (d *Documents) serve(w http.ResponseWriter, r *http.Request, doc *document) {
	h := w.Header()
	asked := r.URL.Query().Get("hash")
	if asked != "" && asked != doc.hash {
		h.Set("Location", doc.url)
		w.WriteHeader(http.StatusMovedPermanently)
		return
	}
	media, ok := negotiate(r.Header.Values("Accept"))
	if !ok {
		httpresponse.WriteStatus(w, r, httpresponse.NotAcceptable(mediaJSON, mediaOpenAPIProtobuf))
		return
	}
	if err := d.answer(w, r, doc, media); err != nil {
		httpresponse.WriteStatus(w, r, err)
	}
}

// answer serves a document for a URL with its hash or without one. If it returns an error it has not
// answered.
func (d *Documents) answer(w http.ResponseWriter, r *http.Request, doc *document, media string) error {
	h := w.Header()
	hashed := r.URL.Query().Get("hash") != ""
	etag := strconv.Quote(doc.hash)
	if discovery.MatchesETag(r, etag) {
		h.Set("Vary", "Accept")
		lasting(h, etag, hashed)
		w.WriteHeader(http.StatusNotModified)
		return nil
	}
	body, complete, err := d.encoded(r.Context(), form{doc, media == mediaOpenAPIProtobuf}, r.Header.Get("Cache-Control") != NoStore)
	if err != nil {
		return err
	}
	h.Set("Vary", "Accept")
	if complete {
		lasting(h, etag, hashed)
	}
	httpresponse.WriteBody(w, r, http.StatusOK, media, body)
	return nil
}

// lasting sets the headers for caches.
func lasting(h http.Header, etag string, hashed bool) {
	h.Set("ETag", etag)
	if hashed {
		h.Set("Cache-Control", "public, immutable")
		h.Set("Expires", time.Now().AddDate(1, 0, 0).UTC().Format(http.TimeFormat))
	}
}

// JSON returns a document without caching it. ok is false if there is none.
func (d *Documents) JSON(ctx context.Context, key string) (data []byte, ok bool, err error) {
	doc := d.current.Load().byKey[key]
	if doc == nil {
		return nil, false, nil
	}
	data, _, err = d.encoded(ctx, form{doc: doc}, false)
	return data, true, err
}

// encoded returns the bytes of a document. They are not complete if the schema of a kind failed; then
// nothing may cache them. Without keep they are not cached here.
func (d *Documents) encoded(ctx context.Context, f form, keep bool) (data []byte, complete bool, err error) {
	var r result
	switch {
	case f.protobuf:
		r, err = d.cache.get(ctx, f, func() (result, error) { return d.protobuf(f.doc) })
	case keep:
		r, err = d.cache.get(ctx, f, func() (result, error) { return d.build(f.doc) })
	default:
		r, err = d.cachedOrBuilt(f.doc)
	}
	return r.data, r.keep, err
}

func (d *Documents) cachedOrBuilt(doc *document) (result, error) {
	if data, ok := d.cache.built.Get(form{doc: doc}); ok {
		return result{data, true}, nil
	}
	return d.build(doc)
}

// protobuf encodes a document as protobuf.
func (d *Documents) protobuf(doc *document) (result, error) {
	r, err := d.cachedOrBuilt(doc)
	if err != nil {
		return r, err
	}
	d.cache.making(func() { r.data, err = handler3.ToV3ProtoBinary(r.data) })
	if err != nil {
		return result{}, d.record(doc, &BrokenError{fmt.Errorf("encode OpenAPI document %s: %w", doc.key, err)})
	}
	return r, nil
}

// build builds or fetches the JSON of a document. It may not be kept if the schema of a kind failed.
func (d *Documents) build(doc *document) (r result, err error) {
	if fetch := doc.fetch.Load(); fetch != nil {
		if r.data, err = (*fetch)(); err == nil {
			d.cache.making(func() { err = Check(r.data) })
		}
		r.keep = err == nil
		return r, d.record(doc, err)
	}
	d.cache.making(func() { r.data, r.keep, err = d.describe(doc) })
	return r, err
}

// describe builds the JSON of a document of own kinds.
func (d *Documents) describe(doc *document) (data []byte, complete bool, err error) {
	own := *doc.kinds.Load()
	b := newBuilder(doc.version, d.cbor, own...)
	if o := operationOf(doc.key); o != nil {
		b.addPath(doc.key, o)
	}
	if len(own) > 0 && own[0].Schema == nil {
		b.addPath(doc.key, b.resources(own[0].Group))
	}
	for _, k := range own {
		b.add(k)
	}
	for _, err := range b.failures {
		d.log.Error("a kind has no schema in OpenAPI", "document", doc.key, "err", err)
	}
	if data, err = b.encode(); err != nil {
		return nil, false, fmt.Errorf("encode OpenAPI document %s: %w", doc.key, err)
	}
	return data, len(b.failures) == 0, nil
}

// record records whether a fetched document is broken, and returns err. Errors of the connection do
// not change that.
func (d *Documents) record(doc *document, err error) error {
	if doc.fetch.Load() == nil {
		return err
	}
	switch message, broken := isBroken(err); {
	case broken:
		if old := doc.broken.Swap(&message); old == nil || *old != message {
			d.log.Warn("the OpenAPI document of a server is invalid", "document", doc.key, "err", message)
			d.brokenChanged()
		}
	case err == nil:
		if doc.broken.Swap(nil) != nil {
			d.brokenChanged()
		}
	}
	return err
}

// Index is the document at /openapi/v3: the URL of each document with its hash. It is encoded at the
// first request. Immutable.
type Index struct {
	encode func() (indexBody, error)
}

type indexBody struct {
	json []byte
	etag string // quoted
}

// NewIndex returns the index of documents. urls are by key and must not be modified afterwards.
func NewIndex(urls map[string]string) *Index {
	return &Index{sync.OnceValues(func() (indexBody, error) {
		type entry struct {
			URL string `json:"serverRelativeURL"`
		}
		index := struct {
			Paths map[string]entry `json:"paths"`
		}{make(map[string]entry, len(urls))}
		for key, url := range urls {
			index.Paths[key] = entry{url}
		}
		body, err := json.Marshal(index)
		if err != nil {
			return indexBody{}, fmt.Errorf("encode OpenAPI index: %w", err)
		}
		return indexBody{body, strconv.Quote(fmt.Sprintf("%X", sha512.Sum512(body)))}, nil
	})}
}

// ETag returns the quoted ETag.
func (x *Index) ETag() string {
	body, _ := x.encode() // strings always encode
	return body.etag
}

// ServeHTTP serves the index.
func (x *Index) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, err := x.encode()
	if err != nil {
		httpresponse.WriteStatus(w, r, err)
		return
	}
	h := w.Header()
	h.Set("ETag", body.etag)
	if discovery.MatchesETag(r, body.etag) {
		w.WriteHeader(http.StatusNotModified)
		return
	}
	httpresponse.WriteBody(w, r, http.StatusOK, mediaJSON, body.json)
}

// Negotiate returns the first supported media type of the Accept headers: JSON, or protobuf by one of
// its types, of which the first is used in answers. ok is false if there is none. Quality is
// ignored: no client of OpenAPI uses it.
func Negotiate(accept []string, protobuf ...string) (media string, ok bool) {
	header := strings.TrimSpace(strings.Join(accept, ","))
	if header == "" {
		return mediaJSON, true
	}
	for clause := range strings.SplitSeq(header, ",") {
		// The old protobuf types contain an @, which package mime rejects.
		media, _, _ := strings.Cut(clause, ";")
		switch media = strings.ToLower(strings.TrimSpace(media)); {
		case media == mediaJSON, media == "application/*", media == "*/*":
			return mediaJSON, true
		case slices.Contains(protobuf, media):
			return protobuf[0], true
		}
	}
	return "", false
}

// negotiate is Negotiate for v3.
func negotiate(accept []string) (media string, ok bool) {
	return Negotiate(accept, mediaOpenAPIProtobuf, mediaOpenAPIProtobufOld)
}
