// Package status is the command that shows an installation at a glance: what runs, what leads,
// how etcd is, which APIs are down and why, and which are slow or busy.
//
// Runs in: portico status.
package status
