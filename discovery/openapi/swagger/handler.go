package swagger

import (
	"bytes"
	"compress/gzip"
	"context"
	"io"
	"net/http"
	"strconv"
	"time"

	"portico/discovery/openapi"
	"portico/resource"
	"portico/resource/rest"
)

const (
	mediaJSON     = "application/json"
	mediaProtobuf = "application/com.github.proto-openapi.spec.v2.v1.0+protobuf"
	// mediaProtobufOld is no media type by the book, and what clients ask for.
	mediaProtobufOld = "application/com.github.proto-openapi.spec.v2@v1.0+protobuf"

	// patience is how long a request waits for a document that is being made,
	// and retryAfter, in seconds, what it is told if that is not enough.
	patience   = 2 * time.Second
	retryAfter = 1
)

// ServeHTTP answers with the document, in the form asked for. Where there is
// none yet and none is made soon, that is a 503 with Retry-After; an outdated one
// is shown until the new one is there, but those who come first wait a moment.
func (w *Whole) ServeHTTP(rw http.ResponseWriter, r *http.Request) {
	media, ok := openapi.Negotiate(r.Header.Values("Accept"), mediaProtobuf, mediaProtobufOld)
	if !ok {
		rest.WriteStatus(rw, r, rest.NotAcceptable(mediaJSON, mediaProtobuf))
		return
	}
	now := w.await(r.Context(), media == mediaProtobuf)
	doc := now.json
	if media == mediaProtobuf {
		doc = now.protobuf
	}
	h := rw.Header()
	if doc == nil {
		rest.WriteStatus(rw, r, resource.Unavailable("the OpenAPI v2 document is being made", retryAfter))
		return
	}
	h.Set("Vary", "Accept")
	h.Set("ETag", doc.etag)
	h.Set("Last-Modified", now.made.UTC().Format(http.TimeFormat))
	if unchanged(r, doc.etag, now.made) {
		rw.WriteHeader(http.StatusNotModified)
		return
	}
	doc.send(rw, r, media)
}

// attempts is how many results a request waits for: one may have begun too
// early for it, and protobuf comes after JSON.
const attempts = 3

// await asks for the document to be up to date, and waits a moment if it is
// missing or its servers changed.
func (w *Whole) await(ctx context.Context, protobuf bool) shown {
	_, state := w.cfg.Servers()
	timer := time.NewTimer(patience)
	defer timer.Stop()
	for turn := 0; ; turn++ {
		w.mu.Lock()
		w.asked = time.Now()
		w.wantProtobuf = w.wantProtobuf || protobuf
		now, turned := w.now, w.turned
		w.mu.Unlock()
		missing := !now.has(protobuf)
		if missing || now.outdated(state, time.Now(), w.cfg.Refresh) {
			w.wake.Poke()
		}
		if !missing && now.state == state || turn >= attempts {
			return now
		}
		select {
		case <-turned:
		case <-timer.C:
			return now
		case <-ctx.Done():
			return now
		}
	}
}

// unchanged reports whether the client says that it has the document.
func unchanged(r *http.Request, etag string, made time.Time) bool {
	if len(r.Header.Values("If-None-Match")) > 0 {
		return openapi.HasTag(r, etag)
	}
	since, err := http.ParseTime(r.Header.Get("If-Modified-Since"))
	return err == nil && !made.Truncate(time.Second).After(since)
}

// send writes the document as it is kept, or unpacked for those who cannot.
// Nothing can be told to a client that does not take it, so write errors are
// dropped.
func (d *document) send(w http.ResponseWriter, r *http.Request, media string) {
	h := w.Header()
	h.Set("Content-Type", media)
	h.Add("Vary", "Accept-Encoding")
	if rest.AcceptsGzip(r) {
		h.Set("Content-Encoding", "gzip")
		h.Set("Content-Length", strconv.Itoa(len(d.packed)))
		w.WriteHeader(http.StatusOK)
		_, _ = w.Write(d.packed)
		return
	}
	plain, err := gzip.NewReader(bytes.NewReader(d.packed))
	if err != nil {
		rest.WriteStatus(w, r, err)
		return
	}
	h.Set("Content-Length", strconv.Itoa(d.size))
	w.WriteHeader(http.StatusOK)
	_, _ = io.Copy(w, plain)
}
