// Package upstream sends requests to one server behind the gateway, which has one or
// more endpoints: it limits them, chooses an endpoint, repeats what may be repeated and
// follows the health of the endpoints.
//
// A request goes through
//
//	limiter.go    a slot, if the server has a concurrency limit
//	retryloop.go  one endpoint after the other, until one answers or the request must
//	              not be repeated; package retry decides, and has the budget of retries
//	balance       the endpoint: by fewest requests, in turn, or by user; or the same as
//	              before (pinned.go)
//	attempt.go    once to that endpoint, for which the result is recorded
//	transport     a connection: HTTP/1.1, or HTTP/2 for requests that are long-running or
//	              must not be carried out twice
//	answer.go     the body of the answer; its end releases everything
//
// The state of an endpoint follows from active checks (SetVerdict), from refused
// connections, and from consecutive failures, which eject it (package health). The share of an endpoint that begins to get requests grows (package balance).
// One that is removed or has the weight 0 drains (drain.go). state.go publishes the
// endpoints that get requests as an immutable snapshot, so that a choice takes no lock.
// status.go and trace.go have what metrics, status and audit show.
//
// Names. A host's name is looked up for every connection, and no connection takes
// requests for longer than its age allows: requests follow the name without a list of
// addresses that has to be refreshed. All addresses of a name are one endpoint, with
// one state.
//
// Repeating. A request of which a server has taken nothing is repeated, whatever its
// method: no connection could be made, nothing of it was written, or the server said
// over HTTP/2 that it did not begin with it. Otherwise only GET, HEAD and OPTIONS that
// do not leave HTTP are: if the connection broke before an answer, or the answer was
// 502, 503, 504, or 429 with Retry-After. They go to another endpoint; to the same one
// only if the connection was used before and may have been closed while it was idle. If
// no attempt has a better answer, the client gets that answer, unchanged. Retries of
// what a server may have seen are bounded by a budget.
//
// Every request carries the gateway's id (via.go): a gateway answers 508 to one that
// returns to it. Otherwise requests and answers are forwarded as they are; other
// packages of the gateway decide what clients may send, and what they get when there is
// no answer.
//
// Runs in: gateway.
package upstream
