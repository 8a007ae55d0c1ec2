// Package transport sends HTTP requests to one endpoint of a server: it dials,
// authenticates the server, keeps connections and reports what the server may have
// seen of a request that failed.
//
// Each endpoint has two pools (pool.go) of [http.ClientConn]. A connection of the
// http1Pool carries one request at a time, one of the http2Pool as many as the server
// permits (SETTINGS_MAX_CONCURRENT_STREAMS, RFC 9113, 6.5.2). A request that finds no
// connection waits in a FIFO queue for one that is dialed or becomes idle, whichever
// is first (queue.go). A ClientConn never sends a request a second time, unlike
// [http.Transport], which does so by rules of its own.
//
// Whether the server may have seen a request is decided by what was written to the
// connection and by what the server said in HTTP/2 frames (frames.go), not by the
// text of errors: over HTTP/1.1, if no byte was written since the request began; over
// HTTP/2, if its header was not encoded, the server reset the stream with
// REFUSED_STREAM, or GOAWAY named an earlier stream as the last (RFC 9113, 8.7).
//
// Connections are made with the credentials of one moment, and replaced when these
// change (endpoint.go). All types are safe for concurrent use unless they say
// otherwise.
//
// Runs in: gateway.
package transport
