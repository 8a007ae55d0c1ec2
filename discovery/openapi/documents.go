package openapi

import (
	"crypto/sha512"
	"encoding/json"
	"fmt"
	"net/http"
	"runtime/debug"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/kube-openapi/pkg/handler3"

	"portico/resource/rest"
)

// builderVersion is part of every hash: clients cache documents by their hash,
// so a builder that writes something else must count it up.
const builderVersion = 1

const mediaOpenAPIProtobuf = "application/com.github.proto-openapi.spec.v3.v1.0+protobuf"

// Documents are the OpenAPI v3 documents of a server's own kinds, one for each
// group/version. Safe for concurrent use.
type Documents struct {
	byKey map[string]*lazyDocument
}

// lazyDocument is a document that is built when it is first asked for.
type lazyDocument struct {
	hash     string
	json     func() ([]byte, error)
	protobuf func() ([]byte, error)
}

// FromKinds prepares the documents of all group/versions of the kinds. It
// builds none.
func FromKinds(kinds []*rest.Kind) *Documents {
	d := &Documents{byKey: map[string]*lazyDocument{}}
	members := map[string][]*rest.Kind{}
	versions := map[string]string{}
	for _, k := range kinds {
		for _, version := range k.Versions {
			key := documentKey(k.Group, version)
			members[key] = append(members[key], k)
			versions[key] = version
		}
	}
	for key, list := range members {
		build := sync.OnceValues(func() ([]byte, error) {
			b := newBuilder(versions[key])
			for _, k := range list {
				b.add(k)
			}
			return json.Marshal(b.doc)
		})
		d.byKey[key] = &lazyDocument{
			hash: inputHash(key, list), json: build,
			protobuf: sync.OnceValues(func() ([]byte, error) {
				data, err := build()
				if err != nil {
					return nil, err
				}
				return handler3.ToV3ProtoBinary(data)
			}),
		}
	}
	return d
}

func documentKey(group, version string) string {
	if group == "" {
		return "api/" + version
	}
	return "apis/" + group + "/" + version
}

// inputHash digests what a document is made from.
func inputHash(key string, kinds []*rest.Kind) string {
	h := sha512.New()
	fmt.Fprintln(h, builderVersion, key)
	if bi, ok := debug.ReadBuildInfo(); ok {
		for _, m := range bi.Deps {
			if strings.HasPrefix(m.Path, "k8s.io/") {
				fmt.Fprintln(h, m.Path, m.Version)
			}
		}
	}
	for _, k := range kinds {
		fmt.Fprintln(h, k.Resource, k.Kind, k.Namespaced, k.Verbs)
		for _, s := range k.Subresources {
			fmt.Fprintln(h, s.Name, s.Verbs, s.GVK)
		}
	}
	return fmt.Sprintf("%X", h.Sum(nil))
}

// URL returns the relative URL of a document with its hash; "" if there is no
// such document.
func (d *Documents) URL(key string) string {
	doc := d.byKey[key]
	if doc == nil {
		return ""
	}
	return "/openapi/v3/" + key + "?hash=" + doc.hash
}

// URLs returns the URL of every document by its key.
func (d *Documents) URLs() map[string]string {
	out := make(map[string]string, len(d.byKey))
	for key := range d.byKey {
		out[key] = d.URL(key)
	}
	return out
}

// Handler serves /openapi/v3 and /openapi/v3/<key>.
func (d *Documents) Handler() http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		key, ok := strings.CutPrefix(r.URL.Path, "/openapi/v3")
		key = strings.Trim(key, "/")
		doc := d.byKey[key]
		switch {
		case ok && key == "":
			ServeIndex(w, r, d.URLs())
		case ok && doc != nil:
			d.serve(w, r, key, doc)
		default:
			http.Error(w, "404 page not found", http.StatusNotFound)
		}
	})
}

// serve answers one document. With the right hash in the URL the answer may be
// kept for ever; with a wrong one the client is sent to the right one.
func (d *Documents) serve(w http.ResponseWriter, r *http.Request, key string, doc *lazyDocument) {
	h := w.Header()
	if asked := r.URL.Query().Get("hash"); asked != "" && asked != doc.hash {
		h.Set("Location", d.URL(key))
		w.WriteHeader(http.StatusMovedPermanently)
		return
	} else if asked != "" {
		h.Set("Cache-Control", "public, immutable")
		h.Set("Expires", time.Now().AddDate(1, 0, 0).UTC().Format(http.TimeFormat))
	}
	media, ok := negotiate(r.Header.Values("Accept"))
	if !ok {
		rest.WriteStatus(w, r, apierrors.NewGenericServerResponse(http.StatusNotAcceptable, "get", schema.GroupResource{}, "",
			"only the following media types are accepted: "+mediaJSON+", "+mediaOpenAPIProtobuf, 0, true))
		return
	}
	etag := strconv.Quote(doc.hash)
	h.Set("ETag", etag)
	h.Set("Vary", "Accept")
	if r.Header.Get("If-None-Match") == etag {
		w.WriteHeader(http.StatusNotModified)
		return
	}
	encode := doc.json
	if media == mediaOpenAPIProtobuf {
		encode = doc.protobuf
	}
	body, err := encode()
	if err != nil {
		rest.WriteStatus(w, r, fmt.Errorf("build OpenAPI document %s: %w", key, err))
		return
	}
	h.Set("Content-Type", media)
	h.Set("Content-Length", strconv.Itoa(len(body)))
	// A client that went away is no error of ours.
	_, _ = w.Write(body)
}

// negotiate picks the first media type in the Accept headers that is offered.
func negotiate(accept []string) (string, bool) {
	header := strings.TrimSpace(strings.Join(accept, ","))
	if header == "" {
		return mediaJSON, true
	}
	for clause := range strings.SplitSeq(header, ",") {
		// Not by package mime: the old form of the protobuf type, which
		// clients send, holds an @ and is no media type by the book.
		media, _, _ := strings.Cut(clause, ";")
		switch strings.ToLower(strings.TrimSpace(media)) {
		case mediaJSON, "application/*", "*/*":
			return mediaJSON, true
		case mediaOpenAPIProtobuf, "application/com.github.proto-openapi.spec.v3@v1.0+protobuf":
			return mediaOpenAPIProtobuf, true
		}
	}
	return "", false
}

// ServeIndex writes the index at /openapi/v3: key to URL.
func ServeIndex(w http.ResponseWriter, r *http.Request, urls map[string]string) {
	type entry struct {
		URL string `json:"serverRelativeURL"`
	}
	index := struct {
		Paths map[string]entry `json:"paths"`
	}{map[string]entry{}}
	for key, url := range urls {
		index.Paths[key] = entry{url}
	}
	body, err := json.Marshal(index)
	if err != nil {
		rest.WriteStatus(w, r, fmt.Errorf("encode OpenAPI index: %w", err))
		return
	}
	h := w.Header()
	h.Set("Content-Type", mediaJSON)
	h.Set("Content-Length", strconv.Itoa(len(body)))
	// A client that went away is no error of ours.
	_, _ = w.Write(body)
}

// Keys returns the keys of all documents, sorted.
func (d *Documents) Keys() []string {
	out := make([]string, 0, len(d.byKey))
	for key := range d.byKey {
		out = append(out, key)
	}
	slices.Sort(out)
	return out
}
