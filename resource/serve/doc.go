// Package serve turns a handler into a server: listeners, the filters that
// every request passes, health, metrics, and an orderly end.
//
// The filters are plain net/http and are listed top to bottom in chain.go, in
// the order that clients can observe; each has its own small file. [NewRouter]
// has the fixed routes of a server that is not the gateway.
//
// Decisions that shaped it:
//
//   - One record per request (exchange.go) stands between the server and the
//     filters: it is the outermost response writer, so that what the server
//     promises about every response (Audit-ID, Cache-Control) holds however the
//     handler treats its headers, and it is where filters leave word for those
//     above them.
//   - Deadlines run no second goroutine. A handler is called on the goroutine
//     of its connection; a timer writes the 504 when the handler has written
//     nothing, and cuts off its reads and writes. So nothing is buffered, a
//     request that is still at work still counts as in flight, and nobody
//     writes to a response that has been given up.
//   - Bodies are limited by who reads them (resource/rest), not here: a limit
//     on the connection would close it, where a Status can say what the limit
//     is, and would cut off proxied and streaming bodies, which have none.
//
// Runs in: gateway, core, crd.
package serve
