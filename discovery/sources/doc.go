// Package sources keeps what the servers behind the gateway say they serve: one [Source]
// per server, or one [RESTSource] of a REST server, each with the last good answer.
//
// A source is asked often: Check is one conditional request or one small document, and is
// the availability probe of the server as well. What the answer names and is new is read
// beside the check: a server may be far away and have hundreds of documents, of which one
// fails. That is no failure of the server; [Source.Unread] names the documents. What a
// server said last is kept while it is away. Whether it is shown as current is decided by
// package gateway/routing.
//
// Answers are bounded ([Limits]) and validated before they replace what is known. A server
// whose answer cannot be used keeps its last good documents and fails its check.
//
// Runs in: gateway.
package sources
