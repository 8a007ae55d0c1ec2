package filter

import (
	"bufio"
	"context"
	"io"
	"net"
	"net/http"
	"time"

	"portico/resource"
)

// Attachment is a handler's own state of a request. It costs no context and no copy of
// the request.
type Attachment interface {
	// OnHeader is called with the final header and status of the response before they
	// are sent, on the goroutine that sends them. Fields that it sets replace those of
	// handlers and proxies.
	OnHeader(h http.Header, code int)
	// Value returns a value of the request's context, or nil. Safe for concurrent use.
	Value(key any) any
}

// Attach attaches a to the request whose context it is; it reports false outside of a
// chain. A request has one Attachment, the last one. All of them have the same type.
func Attach(ctx context.Context, a Attachment) bool {
	rs := stateOf(ctx)
	if rs == nil {
		return false
	}
	rs.attached.Store(a)
	return true
}

// attachment returns the request's Attachment, or nil.
func (rs *requestState) attachment() Attachment {
	a, _ := rs.attached.Load().(Attachment)
	return a
}

// Unwrap is for http.ResponseController.
func (rs *requestState) Unwrap() http.ResponseWriter { return rs.ResponseWriter }

// WriteHeader writes the final status once and ignores further ones. Informational ones
// are sent.
func (rs *requestState) WriteHeader(code int) {
	switch {
	case rs.code != 0:
		return
	case code >= 100 && code < 200 && code != http.StatusSwitchingProtocols:
		rs.inform(code)
		return
	}
	rs.setHeader(code)
	rs.ResponseWriter.WriteHeader(code)
}

// inform sends an informational response. Over HTTP/2 another goroutine of net/http reads
// the header, and net/http does not wait for it if the client has gone: a change of the
// header would race with it. net/http copies a header that has a Content-Length, which
// informational responses do not send.
func (rs *requestState) inform(code int) {
	h := rs.ResponseWriter.Header()
	if _, ok := h["Content-Length"]; !ok {
		h["Content-Length"] = nil
		defer delete(h, "Content-Length")
	}
	rs.ResponseWriter.WriteHeader(code)
}

// setHeader completes the header and records the status.
func (rs *requestState) setHeader(code int) {
	h := rs.ResponseWriter.Header()
	if rs.auditID[0] != "" {
		h[headerAuditID] = rs.auditID[:]
	}
	if rs.cacheControl && h["Cache-Control"] == nil {
		h["Cache-Control"] = []string{"no-cache, private"}
	}
	if rs.closing.Load() {
		h["Connection"] = []string{"close"} // over HTTP/2, net/http sends GOAWAY
	}
	rs.warnings.put(h)
	if a := rs.attachment(); a != nil {
		a.OnHeader(h, code)
	}
	if audited := rs.audited.Load(); audited != nil {
		audited.OnHeader(h, code)
	}
	if code == http.StatusSwitchingProtocols || rs.action.Streams && resource.IsEventStream(h) {
		rs.releaseSlot()
	}
	rs.code = code
	rs.firstByte = time.Since(rs.start)
	if rs.onHeader != nil {
		rs.onHeader(code)
	}
}

func (rs *requestState) Write(b []byte) (int, error) {
	rs.WriteHeader(http.StatusOK)
	audited := rs.audited.Load()
	if audited == nil {
		n, err := rs.ResponseWriter.Write(b)
		rs.bytes += int64(n)
		return n, err
	}
	audited.OnWrite(b)
	start := time.Now()
	n, err := rs.ResponseWriter.Write(b)
	rs.filterTimes.responseWrite += time.Since(start)
	rs.bytes += int64(n)
	return n, err
}

// ReadFrom keeps net/http's use of sendfile.
func (rs *requestState) ReadFrom(src io.Reader) (int64, error) {
	rs.WriteHeader(http.StatusOK)
	if audited := rs.audited.Load(); audited != nil {
		src = audited.Reading(src)
	}
	n, err := io.Copy(rs.ResponseWriter, src)
	rs.bytes += n
	return n, err
}

// Flush implements http.Flusher.
func (rs *requestState) Flush() { _ = rs.FlushError() }

// FlushError is for http.ResponseController.
func (rs *requestState) FlushError() error {
	rs.WriteHeader(http.StatusOK)
	return http.NewResponseController(rs.ResponseWriter).Flush()
}

// Hijack implements http.Hijacker. Over HTTP/2 it returns http.ErrNotSupported.
func (rs *requestState) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	conn, rw, err := http.NewResponseController(rs.ResponseWriter).Hijack()
	if err == nil && !rs.hijacked {
		rs.upgrade.closeOnShutdown(conn)
		rs.hijacked = true
		if rs.code == 0 {
			// The hijacker writes the header from this map.
			rs.setHeader(http.StatusSwitchingProtocols)
		}
	}
	return conn, rw, err
}
