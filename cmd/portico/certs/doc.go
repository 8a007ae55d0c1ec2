// Package certs has the commands that make and show certificates: portico certs.
//
// Runs in: portico certs.
package certs
