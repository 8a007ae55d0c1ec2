package upstream

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/url"
)

// Probe asks one endpoint for a path with GET; an answer of 2xx is good. It goes
// by HTTP/2 where there is any, over connections that requests use, so that it
// finds out about those; of the others it says nothing (silent.go). identify adds
// who asks.
func (u *Upstream) Probe(ctx context.Context, endpoint, path string, identify func(http.Header)) error {
	u.mu.Lock()
	e := u.find(endpoint)
	u.mu.Unlock()
	if e == nil {
		return fmt.Errorf("%s is no endpoint of the server", endpoint)
	}
	base := e.ways.base
	where, err := url.Parse(base.String() + path)
	if err != nil {
		return fmt.Errorf("check %s: %w", endpoint, err)
	}
	req := (&http.Request{Method: http.MethodGet, URL: where, Host: base.Host, Header: http.Header{}}).WithContext(ctx)
	identify(req.Header)
	u.via.mark(req.Header)
	res, _, err := e.ways.send(req, sharedWay, nil)
	if err != nil {
		return err
	}
	defer res.Body.Close()
	if res.StatusCode < 200 || res.StatusCode > 299 {
		return &AnswerError{res.StatusCode}
	}
	if _, err := io.CopyN(io.Discard, res.Body, drained); err != nil && err != io.EOF {
		return err
	}
	u.passed(e)
	return nil
}
