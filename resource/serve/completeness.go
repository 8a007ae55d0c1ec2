package serve

import (
	"bufio"
	"net"
	"net/http"
	"strings"

	"portico/resource"
	"portico/resource/rest"
)

// completeness answers 503 instead of 404 for unknown paths while the server
// has not yet installed all of them: garbage collection and namespace deletion
// take a 404 for the news that a type is gone (contract 0.3). A request that
// arrived while the server was incomplete is treated so to its end.
func (s *Server) completeness(next http.HandlerFunc) http.HandlerFunc {
	if s.cfg.Complete == nil {
		return next
	}
	return func(w http.ResponseWriter, r *http.Request) {
		if s.cfg.Complete() {
			next(w, r)
			return
		}
		next(&incompleteWriter{ResponseWriter: w, request: r}, r)
	}
}

// incompleteWriter replaces the answer for an unknown path. That is a 404 in
// plain text; a 404 Status is about an object.
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
	rest.WriteStatus(w.ResponseWriter, w.request, resource.Unavailable(
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

// FlushError is what http.ResponseController calls.
func (w *incompleteWriter) FlushError() error {
	if !w.begun {
		w.WriteHeader(http.StatusOK)
	}
	return http.NewResponseController(w.ResponseWriter).Flush()
}

func (w *incompleteWriter) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	return http.NewResponseController(w.ResponseWriter).Hijack()
}
