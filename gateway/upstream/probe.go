package upstream

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/url"

	"portico/gateway/upstream/transport"
)

// Probe sends GET for a path to one endpoint; an answer of 2xx is good. It uses the
// connections that requests use, over HTTP/2 where the server speaks that. identify
// adds the gateway's identity to the header.
func (u *Upstream) Probe(ctx context.Context, endpoint, path string, identify func(http.Header)) error {
	u.mu.Lock()
	e := u.find(endpoint)
	u.mu.Unlock()
	if e == nil {
		return fmt.Errorf("%s is no endpoint of the server", endpoint)
	}
	base := e.transport.Base()
	where, err := url.Parse(base.String() + path)
	if err != nil {
		return fmt.Errorf("check %s: %w", endpoint, err)
	}
	req := (&http.Request{Method: http.MethodGet, URL: where, Host: base.Host, Header: http.Header{}}).WithContext(ctx)
	identify(req.Header)
	u.via.mark(req.Header)
	res, _, err := e.transport.RoundTrip(req, transport.Options{Protocol: transport.HTTP2})
	if err != nil {
		return err
	}
	defer res.Body.Close()
	if res.StatusCode < 200 || res.StatusCode > 299 {
		return &AnswerError{res.StatusCode}
	}
	if _, err := io.CopyN(io.Discard, res.Body, maxDiscarded); err != nil && err != io.EOF {
		return err
	}
	u.passed(e)
	return nil
}
