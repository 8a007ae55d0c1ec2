// Package logging is the log of a process: lines of text or JSON on standard error, at a level
// that may change while the process runs, for all packages or for single ones.
//
// Runs in: all processes.
package logging
