package serve

import (
	"io"
	"net/http"
	"time"
)

const (
	// refusedBody is how much of the body of a refused request is read, in bytes:
	// what an HTTP/2 client may have sent of it already, and as much as net/http
	// reads of an HTTP/1.1 request.
	refusedBody = streamWindow
	// refusedTime bounds the time that this takes.
	refusedTime = time.Second
)

// readRefused reads the rest of the body of a request that was refused without
// looking at it, before the answer is sent. Over HTTP/2 net/http otherwise resets the
// stream behind the answer (NO_ERROR; RFC 9113, 8.1), and clients such as curl 7.88
// that are still sending then lose the answer. A larger body is not read.
func readRefused(w http.ResponseWriter, r *http.Request) {
	if r.ProtoMajor != 2 || r.Body == nil || r.Body == http.NoBody || r.ContentLength > refusedBody || r.Header["Expect"] != nil {
		return
	}
	// Where it cannot be set, the server's own limits apply.
	_ = http.NewResponseController(w).SetReadDeadline(time.Now().Add(refusedTime))
	_, _ = io.CopyN(io.Discard, r.Body, refusedBody)
}
