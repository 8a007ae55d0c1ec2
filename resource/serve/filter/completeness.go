package filter

import (
	"bufio"
	"net"
	"net/http"
	"strings"

	"portico/resource"
	"portico/resource/response"
)

// completeness answers 503 instead of 404 for unknown paths while paths are missing: to
// garbage collection and namespace deletion a 404 means that a type does not exist. A
// request that begins before the server is complete is treated so until its end.
func (c *Chain) completeness(next http.HandlerFunc) http.HandlerFunc {
	if c.cfg.Complete == nil {
		return next
	}
	return func(w http.ResponseWriter, r *http.Request) {
		if c.cfg.Complete() {
			next(w, r)
			return
		}
		next(&incompleteWriter{ResponseWriter: w, request: r}, r)
	}
}

// incompleteWriter replaces the response for an unknown path, a 404 in plain text. A 404
// Status is about an object.
type incompleteWriter struct {
	http.ResponseWriter
	request  *http.Request
	begun    bool
	replaced bool
}

func (w *incompleteWriter) Unwrap() http.ResponseWriter { return w.ResponseWriter }

func (w *incompleteWriter) WriteHeader(code int) {
	if w.begun || code >= 100 && code < 200 {
		w.ResponseWriter.WriteHeader(code)
		return
	}
	w.begun = true
	h := w.Header()
	if code != http.StatusNotFound || !strings.HasPrefix(h.Get("Content-Type"), "text/plain") {
		w.ResponseWriter.WriteHeader(code)
		return
	}
	w.replaced = true
	h.Del("Content-Length")
	response.WriteStatus(w.ResponseWriter, w.request, resource.Unavailable(
		"the request has been made before all known HTTP paths have been installed, please try again", 5))
}

func (w *incompleteWriter) Write(b []byte) (int, error) {
	if !w.begun {
		w.WriteHeader(http.StatusOK)
	}
	if w.replaced {
		return len(b), nil
	}
	return w.ResponseWriter.Write(b)
}

func (w *incompleteWriter) Flush() { _ = w.FlushError() }

// FlushError is for http.ResponseController.
func (w *incompleteWriter) FlushError() error {
	if !w.begun {
		w.WriteHeader(http.StatusOK)
	}
	return http.NewResponseController(w.ResponseWriter).Flush()
}

func (w *incompleteWriter) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	return http.NewResponseController(w.ResponseWriter).Hijack()
}
