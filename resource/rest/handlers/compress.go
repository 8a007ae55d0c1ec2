package handlers

import (
	"compress/gzip"
	"io"
	"net/http"
	"strconv"
	"strings"
	"sync"
)

// gzipThreshold is the size in bytes above which bodies are compressed for clients that
// accept gzip (docs/wire.md 3.3).
const gzipThreshold = 128 << 10

// WriteBody answers with a complete body, compressed if it is large and the client accepts
// gzip.
func WriteBody(w http.ResponseWriter, r *http.Request, code int, contentType string, data []byte) {
	respond(w, r, code, contentType, responseBody{data: data})
}

// worthGzip reports whether a body of that size is compressed for the request.
func worthGzip(r *http.Request, size int) bool {
	return size > gzipThreshold && r.Method != http.MethodHead && AcceptsGzip(r)
}

// respond sends the body, in one write if it is no larger than a piece. Write errors are
// dropped: the client is gone.
func (a *API) respond(w http.ResponseWriter, r *http.Request, code int, contentType string, b responseBody) {
	size := b.size()
	switch {
	case worthGzip(r, size):
		respondGzip(w, code, contentType, b, a.gzips)
	case size > pieceSize:
		respondPlain(w, code, contentType, b)
	default:
		buf := a.pieces.get()
		buf = b.appendTo(buf)
		respondPlain(w, code, contentType, responseBody{data: buf})
		a.pieces.put(buf)
	}
}

// respond is API.respond for answers that are no resource's.
func respond(w http.ResponseWriter, r *http.Request, code int, contentType string, b responseBody) {
	if worthGzip(r, b.size()) {
		respondGzip(w, code, contentType, b, nil)
		return
	}
	respondPlain(w, code, contentType, b)
}

func respondGzip(w http.ResponseWriter, code int, contentType string, b responseBody, pool *gzipPool) {
	h := w.Header()
	h.Set("Content-Type", contentType)
	h.Set("Content-Encoding", "gzip")
	h.Add("Vary", "Accept-Encoding")
	w.WriteHeader(code)
	z := pool.get(w)
	defer pool.put(z)
	if _, err := z.Write(b.data); err != nil {
		return
	}
	if b.lineFeed {
		_, _ = z.Write([]byte("\n"))
	}
	_ = z.Close()
}

func respondPlain(w http.ResponseWriter, code int, contentType string, b responseBody) {
	h := w.Header()
	h.Set("Content-Type", contentType)
	h.Set("Content-Length", strconv.Itoa(b.size()))
	w.WriteHeader(code)
	_, _ = w.Write(b.data)
	if b.lineFeed {
		_, _ = w.Write([]byte("\n"))
	}
}

// AcceptsGzip reports whether the client takes gzip.
func AcceptsGzip(r *http.Request) bool {
	for _, header := range r.Header.Values("Accept-Encoding") {
		for token := range strings.SplitSeq(header, ",") {
			name, params, _ := strings.Cut(token, ";")
			if strings.TrimSpace(name) != "gzip" {
				continue
			}
			q, found := strings.CutPrefix(strings.ReplaceAll(params, " ", ""), "q=")
			if !found {
				return true
			}
			quality, err := strconv.ParseFloat(q, 64)
			return err == nil && quality > 0
		}
	}
	return false
}

// gzipPool keeps compressors, which are large. A nil pool keeps none.
type gzipPool struct{ pool sync.Pool }

// gzipLevel trades size for speed: well above the fastest level's ratio, at a
// fraction of the default's time.
const gzipLevel = 4

func (p *gzipPool) get(w io.Writer) *gzip.Writer {
	if p != nil {
		if z, ok := p.pool.Get().(*gzip.Writer); ok {
			z.Reset(w)
			return z
		}
	}
	z, _ := gzip.NewWriterLevel(w, gzipLevel) // the level is valid
	return z
}

func (p *gzipPool) put(z *gzip.Writer) {
	if p == nil {
		return
	}
	z.Reset(io.Discard) // let go of the response
	p.pool.Put(z)
}
