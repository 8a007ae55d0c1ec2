// Package accesslog writes a line of JSON for every request that a server has
// answered.
//
// Decisions that shaped it:
//
//   - Nobody waits for the log. A request leaves its record in a queue of
//     bounded length, and one goroutine turns records into lines and writes
//     them. Where the disk or the reader of a pipe does not keep up, records are
//     dropped and counted: a log that stops the gateway costs more than what it
//     would have said.
//   - Lines are written together: as many as have come up, so that a busy
//     server makes few system calls and a quiet one shows its lines at once.
//   - The file is compared with its name once a second, and opened anew where
//     it was renamed or removed. So rotation needs neither a signal nor a copy;
//     truncating in place works as well, because every write goes to the end.
//   - What a client can make long is cut, and the values of query parameters
//     that carry credentials are left out ([resource.RedactURI]).
//
// Runs in: gateway, core, crd.
package accesslog
