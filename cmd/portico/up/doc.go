// Package up is portico up: it makes the certificates of an installation, starts its processes
// as children, waits until they serve, and stops them in order.
//
// Runs in: portico up.
package up
