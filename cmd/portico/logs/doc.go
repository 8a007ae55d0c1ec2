// Package logs is the command that shows the logs of an installation of `portico up`. Lines are
// read one by one, so that memory does not grow with the files.
//
// Runs in: portico logs and portico status.
package logs
