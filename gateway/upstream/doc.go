// Package upstream is the data path to one server behind the gateway, which
// answers at one or more endpoints: which of them gets a request, whether it is
// sent again if that fails, and the connections to each.
//
// A request goes
//
//	limit.go     waits for its place, if too many are under way
//	exchange.go  is sent to one endpoint after the other, until one answers or
//	             it may not be sent again
//	pick.go      the endpoint: the less busy of two, in turn, or by user; or
//	             (steady.go) the same as before
//	attempt.go   once to that endpoint, which is judged by what comes back
//	transport.go by HTTP/1.1 or, what is long-running or must not be done twice,
//	             by HTTP/2 (shared.go, inform.go), and what is large or leaves HTTP by
//	             net/http (rest.go); dial.go, name.go and trust.go connect, and
//	             directwait.go has those wait who have no connection,
//	             and silent.go finds those that are dead and do not say so
//
// and what is known of the endpoints comes about in health.go: active checks
// (their verdicts are handed in), refused connections, and ejection (eject.go) by
// how requests end, as long as that is not their own doing (blame.go), or do not
// end before their clients give up (giveup.go). The share of one that comes back
// grows (slowstart.go), and one that is removed, or whose weight is 0, drains
// (drain.go). What it all comes to is published as an immutable snapshot
// (choose.go), so that choosing takes no lock; with one endpoint there is no choice
// and no cost. budget.go bounds retries to a share of the traffic. policy.go has every
// default. trace.go and observe.go are what others see.
//
// A host's name. It is looked up for every connection, which goes to one of its
// addresses at random, and to others if that does not answer at once (name.go); no
// connection takes new requests for longer than its age allows. So requests follow
// the name, and are spread over what stands behind it, without a list of addresses
// to be kept and refreshed. The price is that all of them are one endpoint: one
// state, and one verdict. Who wants them told apart names them, or a Service.
//
// What is sent again. Whatever its verb, a request of which the server saw
// nothing: connecting failed, or the server refused the stream, or named an
// earlier one as the last that it took. Otherwise GET, HEAD and OPTIONS that do
// not leave HTTP, if the connection broke before an answer, or the answer was
// 502, 503, 504, or 429 with Retry-After; and only to another endpoint: the same
// one just said what it has to say. If nobody has a better answer, the client
// gets that one, untouched. The same endpoint is asked once more where a connection
// broke that was used before: that costs an attempt and budget like any other, unless
// the server is known to have closed the connection before the request came. One that
// was closed while it was idle is found before anything is sent. net/http sends
// requests again on its own and goes by other rules, so that HTTP/1.1 without it
// (direct.go, directconn.go) is the ordinary way, and HTTP/2 connections are kept
// here.
//
// direct.go also spares two goroutines for each connection and the handing over
// of each request to them, which were most of what a short request cost; and it
// writes and reads ordinary heads itself (writehead.go, readhead.go), which is a
// third of what is left and half of the allocations.
//
// Every request is marked with the gateway's id (via.go), also the gateway's own: the
// gateway answers one that comes back to it with 508.
//
// Apart from that the package moves requests and answers as they are. What a client may send,
// as whom, and what it is told when there is no answer, is the gateway's to say.
//
// Runs in: gateway.
package upstream
