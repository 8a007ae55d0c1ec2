//go:build go1.27

package transport

import "net/http"

// configureHTTP2 leaves the HTTP/2 of net/http as it is.
func configureHTTP2(*http.Transport) error { return nil }
