// Package conversion tests definitions of several versions and their conversion webhooks, in
// whole installations.
//
// Runs in: tests.
package conversion
