package egress

import (
	"fmt"
	"net/http"
	"net/url"
	"time"
)

// Client returns a client whose requests, by a transport (default http.DefaultTransport), end after timeout, 0 for
// never, and which follows no redirect. Every http.Client of the product is made here.
func Client(next http.RoundTripper, timeout time.Duration) *http.Client {
	if next == nil {
		next = http.DefaultTransport
	}
	return &http.Client{Transport: RefuseRedirects(next), Timeout: timeout}
}

// RefuseRedirects returns a transport that fails on a redirect. Clients of this product send objects and
// credentials to the servers that a configuration names, and to no other: a webhook that could redirect would
// have this process send them anywhere, to its own machine and without TLS too (CVE-2020-8561), and none of the
// protocols has redirects. For clients that are made of a rest.Config it is an argument of its Wrap.
func RefuseRedirects(next http.RoundTripper) http.RoundTripper { return direct{next} }

type direct struct{ http.RoundTripper }

// RoundTrip implements http.RoundTripper.
func (d direct) RoundTrip(r *http.Request) (*http.Response, error) {
	res, err := d.RoundTripper.RoundTrip(r)
	if err != nil || res.StatusCode < 300 || res.StatusCode > 399 || res.StatusCode == http.StatusNotModified {
		return res, err
	}
	_ = res.Body.Close()
	// A query and a user may have credentials.
	at := url.URL{Scheme: r.URL.Scheme, Host: r.URL.Host, Path: r.URL.Path}
	return nil, fmt.Errorf("%s answered %s, and redirects are not followed: name the URL that it leads to", &at, res.Status)
}

// WrappedRoundTripper returns the wrapped transport, for utilnet.CloseIdleConnectionsFor.
func (d direct) WrappedRoundTripper() http.RoundTripper { return d.RoundTripper }
