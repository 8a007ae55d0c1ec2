// Package upstream is the data path to one server behind the gateway: where it
// is, how it is recognised, and the connections to it.
//
//   - upstream.go is what others use: an Upstream, and its ways for requests
//     with a deadline, for those without and for those that leave HTTP.
//   - balance.go connects to one of the server's addresses.
//   - transport.go sets up the ways: HTTP/1.1 for short requests, HTTP/2 for
//     watches, which share a connection; no TLS on a unix socket.
//   - direct.go and directconn.go send what is small to a server on a unix
//     socket without http.Transport, whose two goroutines for each connection
//     were most of what such a request costs.
//   - renew.go has connections made with the credentials of the present
//     (trust.go), and gate.go has those that are shared made one at a time: ten
//     thousand watches that began together used to make as many, for ten that
//     were needed.
//
// The package moves requests and answers as they are. What a client may send,
// as whom, and what it is told when there is no answer, is the gateway's to say.
//
// Runs in: gateway.
package upstream
