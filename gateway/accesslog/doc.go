// Package accesslog writes a line of JSON for every request that a server has answered.
//
// Decisions:
//
//   - Requests do not wait for the log. A request puts its record into a bounded queue, and
//     one goroutine encodes and writes records. If the disk or the reader of a pipe is
//     slow, records are dropped and counted.
//   - The records in the queue are written together, so a busy server makes few system
//     calls and an idle one shows its lines at once.
//   - The open file is compared with its path once a second and reopened after it was
//     renamed or removed, so rotation needs no signal. Truncation works too, because every
//     write appends.
//   - Strings of the client are cut, and the values of query parameters that Kubernetes APIs
//     do not define are left out: they may be credentials ([resource.RedactURI]).
//
// Runs in: gateway.
package accesslog
