//go:build !go1.27

package transport

import (
	"net/http"

	"golang.org/x/net/http2"
)

// configureHTTP2 replaces the HTTP/2 of net/http in Go 1.26 with that of x/net. The
// former deadlocks, with all requests on the connection, at a WINDOW_UPDATE that makes
// the window of a stream larger than permitted. Go 1.27 does not, and this file goes with
// Go 1.26. Nothing else depends on which of them is used.
func configureHTTP2(t *http.Transport) error {
	//lint:ignore SA1019 the replacement is the one with the deadlock
	_, err := http2.ConfigureTransports(t)
	return err
}
