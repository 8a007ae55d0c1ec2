// Package aggregate keeps what the servers behind the gateway say they serve:
// one [Source] per server, each with the last good answer.
//
// A source is asked often and cheaply: Check is one conditional request (or
// one small document), which doubles as the availability probe of its server.
// Only what the answer says anew is read again, and beside the check: a server may
// be far away, and have hundreds of documents of which one fails. That is no
// verdict on the server; [Source.Unread] names it. What a source said last is kept
// when its server goes away; how long that counts as current is decided by whoever
// builds the merged snapshot.
//
// Answers are bounded ([maxDocument]) and validated before they replace what
// is known: a server that talks nonsense when it is asked what it has keeps its
// last good documents and fails its check.
//
// Runs in: gateway.
package aggregate
