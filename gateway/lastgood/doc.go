// Package lastgood keeps what a gateway last knew of others, for a gateway that
// starts while they are away: what each server said that it serves, where
// registered servers are, and what token checks ask the core server.
//
//   - It is kept in etcd, a document for each server, by the elected gateway
//     (keep.go), and in a local copy for a gateway that starts while etcd is
//     away (copy.go). Writing follows differences, and the larger a document the
//     seldomer it is written.
//   - Either may have what the other has not: a document that was not written to etcd
//     yet or has become too large for it, or what another gateway wrote since this one
//     stopped. Each says when it was made (age.go), and the newer one counts.
//   - What a document is made of tells by its state whether it is the same one:
//     looking is cheap, and nothing is packed again that did not change.
//   - Of OpenAPI there is the index of each server: hashes only. A document that no
//     gateway has in memory is a 503 while its server is away.
//   - forms.go has what is in the documents: only what a gateway needs to go on,
//     and no secret.
//
// What was restored is known to be that: a server's own word replaces it, and
// nothing is taken away because a restored document lacks it. Who knows what, and
// where it goes, is the gateway's to say (gateway/lastgood.go).
//
// Runs in: gateway.
package lastgood
