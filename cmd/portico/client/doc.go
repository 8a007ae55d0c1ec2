// Package client is the client of a gateway that commands use: it reads a kubeconfig, sends
// requests, and makes one line with a remedy of an error.
//
// Runs in: portico, commands that are clients of a gateway.
package client
