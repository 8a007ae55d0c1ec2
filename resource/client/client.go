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

	"portico/resource"
)

// maxObject bounds the bytes of one object or watch frame. etcd holds no object
// above 1.5 MiB, unless it was told to.
const maxObject = 16 << 20

// Config of a Client.
type Config struct {
	// BaseURL is the server, with or without a path before /api and /apis.
	// Required.
	BaseURL string
	// Transport authenticates and connects. Default http.DefaultTransport.
	Transport http.RoundTripper
	// UserAgent is sent with every request. Default "portico".
	UserAgent string
}

// Client talks to one server. Safe for concurrent use.
type Client struct{ cfg Config }

// New returns a Client. It connects when it is used.
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

// Do sends one request and returns a successful (2xx) response, whose body the caller
// closes. path is escaped as in a URL, body is JSON or nil. Any other response is a
// StatusError, a request without a response a 503, one whose context ended a Timeout.
// Redirects are not followed.
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

// doObject sends a request whose answer is one object.
func (c *Client) doObject(ctx context.Context, method, path string, query url.Values, body []byte) (*resource.Object, error) {
	res, err := c.Do(ctx, method, path, query, body)
	if err != nil {
		return nil, err
	}
	defer res.Body.Close()
	data, err := io.ReadAll(io.LimitReader(res.Body, maxObject+1))
	if err != nil {
		return nil, unanswered(ctx, method, path, err)
	}
	if len(data) > maxObject {
		return nil, unreadable(path, errTooLarge)
	}
	o, err := resource.Parse(data)
	if err != nil {
		return nil, unreadable(path, err)
	}
	return o, nil
}
