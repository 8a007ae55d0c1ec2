package client

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
)

// maxObject bounds the bytes of one object or watch frame. By default etcd stores none above
// 1.5 MiB.
const maxObject = 16 << 20

// Config is the configuration of a Client.
type Config struct {
	// BaseURL is the URL of the server, which may have a path before /api and /apis. Required.
	BaseURL string
	// Transport authenticates and connects. Default http.DefaultTransport.
	Transport http.RoundTripper
	// UserAgent is sent with every request. Default "portico".
	UserAgent string
}

// Client is a client of one server. Safe for concurrent use.
type Client struct{ cfg Config }

// New returns a Client, which connects when it is used.
func New(cfg Config) *Client {
	if cfg.UserAgent == "" {
		cfg.UserAgent = "portico"
	}
	if cfg.Transport == nil {
		cfg.Transport = http.DefaultTransport
	}
	cfg.BaseURL = strings.TrimSuffix(cfg.BaseURL, "/")
	return &Client{cfg: cfg}
}

// Do sends one request and returns a successful (2xx) response; the caller closes its body.
// path is escaped as in a URL, body is JSON or nil. Any other response is a StatusError, a
// request without a response a 503 or, if ctx has ended, a Timeout. Redirects are not
// followed.
func (c *Client) Do(ctx context.Context, method, path string, query url.Values, body []byte) (*http.Response, error) {
	var reader io.Reader
	if body != nil {
		reader = bytes.NewReader(body)
	}
	target := c.cfg.BaseURL + path
	if len(query) > 0 {
		target += "?" + query.Encode()
	}
	req, err := http.NewRequestWithContext(ctx, method, target, reader)
	if err != nil {
		return nil, apierrors.NewInternalError(fmt.Errorf("make request: %w", err))
	}
	req.Header.Set("Accept", "application/json")
	req.Header.Set("User-Agent", c.cfg.UserAgent)
	if body != nil {
		req.Header.Set("Content-Type", "application/json")
	}
	res, err := c.cfg.Transport.RoundTrip(req)
	if err != nil {
		return nil, unanswered(ctx, method, path, err)
	}
	if res.StatusCode < http.StatusOK || res.StatusCode >= http.StatusMultipleChoices {
		defer res.Body.Close()
		return nil, refused(res, method)
	}
	return res, nil
}
