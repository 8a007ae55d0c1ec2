// Package sources reads the discovery of the servers behind the gateway: one [Source] per
// API server, one [RESTSource] per REST server.
//
// [Source.Check] requests the indexes of a server (/api and /apis) with the ETags of the last
// answers. It is the availability probe of the server as well. What an index does not say
// (storageVersionHash, and everything where the server has no aggregated form) is in one
// document per group/version. A queue fetches those documents beside the checks. A document
// that fails is no failure of the server: [Source.Unread] names it, and it is fetched again
// later. From the indexes and documents the source computes one immutable result per path,
// and from the results what [Source.GroupVersions] returns. [Source.Follow] replaces the
// result of /apis by a stream of changes.
//
// The last good results remain while a server is unavailable. Package gateway/routing
// decides whether they are published as current. Answers are validated and bounded
// ([Limits]) before they replace a result.
//
// Runs in: gateway.
package sources
