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

	httpresponse "portico/resource/response"
)

const (
	mediaOpenAPIProtobuf = "application/com.github.proto-openapi.spec.v3.v1.0+protobuf"
	// mediaOpenAPIProtobufOld is what clients ask for.
	mediaOpenAPIProtobufOld = "application/com.github.proto-openapi.spec.v3@v1.0+protobuf"
)

// noStore is the Cache-Control of a request for all documents, each used once:
// keeping them would push out what others use.
const noStore = "no-store"

// serve answers one document. With the right hash in the URL the answer may be
// kept for ever; with a wrong one the client is sent to the right one.
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

// answer sends a document to a client that names its hash, or none. With an
// error it has sent nothing.
func (d *Documents) answer(w http.ResponseWriter, r *http.Request, doc *document, media string) error {
	h := w.Header()
	hashed := r.URL.Query().Get("hash") != ""
	etag := strconv.Quote(doc.hash)
	if HasTag(r, etag) {
		h.Set("Vary", "Accept")
		lasting(h, etag, hashed)
		w.WriteHeader(http.StatusNotModified)
		return nil
	}
	body, complete, err := d.encoded(r.Context(), form{doc, media == mediaOpenAPIProtobuf}, r.Header.Get("Cache-Control") != noStore)
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

// lasting sets the headers of an answer that stays right.
func lasting(h http.Header, etag string, hashed bool) {
	h.Set("ETag", etag)
	if hashed {
		h.Set("Cache-Control", "public, immutable")
		h.Set("Expires", time.Now().AddDate(1, 0, 0).UTC().Format(http.TimeFormat))
	}
}

// JSON returns a document for one use: if it is not kept already, it will not
// be. ok is false if there is no such document.
func (d *Documents) JSON(ctx context.Context, key string) (data []byte, ok bool, err error) {
	doc := d.current.Load().byKey[key]
	if doc == nil {
		return nil, false, nil
	}
	data, _, err = d.encoded(ctx, form{doc: doc}, false)
	return data, true, err
}

// encoded returns a document's bytes. They are not complete if a kind's schema
// could not be built: the others are described all the same, but the answer
// must not be kept by anybody. Without keep it is for one use.
func (d *Documents) encoded(ctx context.Context, f form, keep bool) (data []byte, complete bool, err error) {
	if !keep && !f.protobuf {
		if data, kept := d.cache.peek(f); kept {
			return data, true, nil
		}
		return d.build(f.doc)
	}
	if !f.protobuf {
		return d.cache.get(ctx, f, func() ([]byte, bool, error) { return d.build(f.doc) })
	}
	return d.cache.get(ctx, f, func() ([]byte, bool, error) {
		data, complete := d.cache.peek(form{doc: f.doc})
		if !complete {
			var err error
			if data, complete, err = d.build(f.doc); err != nil {
				return nil, false, err
			}
		}
		var made []byte
		var err error
		d.cache.making(func() { made, err = handler3.ToV3ProtoBinary(data) })
		if err != nil {
			err = fmt.Errorf("encode OpenAPI document %s: %w", f.doc.key, err)
			return nil, false, d.took(f.doc, &BrokenError{err})
		}
		return made, complete, nil
	})
}

// build makes a document's JSON, or fetches it. A kind whose schema fails is
// described without it, and the result is not complete.
func (d *Documents) build(doc *document) (data []byte, complete bool, err error) {
	if fetch := doc.fetch.Load(); fetch != nil {
		if data, err = (*fetch)(); err == nil {
			d.cache.making(func() { err = Check(data) })
		}
		return data, err == nil, d.took(doc, err)
	}
	d.cache.making(func() { data, complete, err = d.describe(doc) })
	return data, complete, err
}

// describe makes the JSON of a document of the server's own kinds.
func (d *Documents) describe(doc *document) (data []byte, complete bool, err error) {
	b := newBuilder(doc.version)
	if o := operationOf(doc.key); o != nil {
		b.addPath(doc.key, o)
	}
	for _, k := range *doc.kinds.Load() {
		b.add(k)
	}
	for _, err := range b.failures {
		d.log.Error("a kind is described without its schema", "document", doc.key, "err", err)
	}
	if data, err = b.encode(); err != nil {
		return nil, false, fmt.Errorf("encode OpenAPI document %s: %w", doc.key, err)
	}
	return data, len(b.failures) == 0, nil
}

// took notes how fetching a document ended; err is returned as it is. Only what
// the server answers says whether its document is broken.
func (d *Documents) took(doc *document, err error) error {
	if doc.fetch.Load() == nil {
		return err
	}
	switch message, broken := isBroken(err); {
	case broken:
		if old := doc.broken.Swap(&message); old == nil || *old != message {
			d.log.Warn("the OpenAPI document of a server cannot be used", "document", doc.key, "err", message)
			d.brokenChanged()
		}
	case err == nil:
		if doc.broken.Swap(nil) != nil {
			d.brokenChanged()
		}
	}
	return err
}

// Index is the document at /openapi/v3: which documents there are, and the URL
// that names the present content of each by its hash. It is encoded at the
// first request. Immutable and safe for concurrent use.
type Index struct {
	encode func() (indexBody, error)
}

type indexBody struct {
	json []byte
	etag string // quoted
}

// NewIndex makes the index of documents, key to URL. urls must not be changed
// any more.
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

// ETag identifies the index. It is quoted, as in the header.
func (x *Index) ETag() string {
	body, _ := x.encode() // strings always encode
	return body.etag
}

// ServeHTTP answers with the index, or 304 for a client that has it.
func (x *Index) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, err := x.encode()
	if err != nil {
		httpresponse.WriteStatus(w, r, err)
		return
	}
	h := w.Header()
	h.Set("ETag", body.etag)
	if HasTag(r, body.etag) {
		w.WriteHeader(http.StatusNotModified)
		return
	}
	httpresponse.WriteBody(w, r, http.StatusOK, mediaJSON, body.json)
}

// Negotiate picks the form of a document that the Accept headers name first:
// JSON, or protobuf by one of its media types, of which the first is the one that
// is answered with. ok is false if they name none. Quality is not weighed: no
// client of OpenAPI uses it.
func Negotiate(accept []string, protobuf ...string) (media string, ok bool) {
	header := strings.TrimSpace(strings.Join(accept, ","))
	if header == "" {
		return mediaJSON, true
	}
	for clause := range strings.SplitSeq(header, ",") {
		// Not by package mime: the old forms of the protobuf types, which clients
		// send, hold an @ and are no media types by the book.
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

// negotiate is Negotiate for documents of v3.
func negotiate(accept []string) (media string, ok bool) {
	return Negotiate(accept, mediaOpenAPIProtobuf, mediaOpenAPIProtobufOld)
}

// HasTag reports whether the client says that it has what etag, which is quoted,
// names.
func HasTag(r *http.Request, etag string) bool {
	for _, header := range r.Header.Values("If-None-Match") {
		for tag := range strings.SplitSeq(header, ",") {
			if tag = strings.TrimSpace(tag); tag == "*" || strings.TrimPrefix(tag, "W/") == etag {
				return true
			}
		}
	}
	return false
}
