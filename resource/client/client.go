package client

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"portico/resource"
)

// maxStatus bounds the body of an error; maxObject that of one object or watch
// frame. etcd holds no object above 1.5 MiB.
const (
	maxStatus = 1 << 20
	maxObject = 16 << 20
)

// Config of a Client.
type Config struct {
	// BaseURL is the server, without a path. Required.
	BaseURL string
	// Transport authenticates and connects. Required.
	Transport http.RoundTripper
	// UserAgent is sent with every request. Default "portico".
	UserAgent string
}

// Client talks to one server. Safe for concurrent use.
type Client struct{ cfg Config }

// New returns a Client.
func New(cfg Config) *Client {
	if cfg.UserAgent == "" {
		cfg.UserAgent = "portico"
	}
	cfg.BaseURL = strings.TrimSuffix(cfg.BaseURL, "/")
	return &Client{cfg: cfg}
}

// Do sends one request and returns its successful response, whose body the
// caller closes. An answer from 400 on becomes a StatusError; a request that
// got no answer, a 503 StatusError. body may be nil.
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
		return nil, fmt.Errorf("make request: %w", err)
	}
	req.Header.Set("Accept", "application/json")
	req.Header.Set("User-Agent", c.cfg.UserAgent)
	if body != nil {
		req.Header.Set("Content-Type", "application/json")
	}
	res, err := c.cfg.Transport.RoundTrip(req)
	if err != nil {
		return nil, asStatusError(ctx, method, path, err)
	}
	if res.StatusCode >= http.StatusBadRequest {
		defer res.Body.Close()
		return nil, statusOf(res, method)
	}
	return res, nil
}

// asStatusError wraps what kept a request from being answered.
func asStatusError(ctx context.Context, method, path string, err error) error {
	var status apierrors.APIStatus
	switch {
	case errors.As(err, &status):
		return err
	case ctx.Err() != nil:
		return ctx.Err()
	}
	return resource.Unavailable(fmt.Sprintf("%s %s: %v", method, path, err), 1)
}

// statusOf reads the Status of a refused request, or makes one of what there is.
func statusOf(res *http.Response, method string) error {
	body, _ := io.ReadAll(io.LimitReader(res.Body, maxStatus)) // a part is better than nothing
	status := &metav1.Status{}
	if json.Unmarshal(body, status) == nil && status.Kind == "Status" && status.Status != metav1.StatusSuccess {
		status.Code = int32(res.StatusCode)
		return &apierrors.StatusError{ErrStatus: *status}
	}
	return apierrors.NewGenericServerResponse(res.StatusCode, strings.ToLower(method), schema.GroupResource{}, "", strings.TrimSpace(string(body)), 0, true)
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
		return nil, asStatusError(ctx, method, path, err)
	}
	if len(data) > maxObject {
		return nil, apierrors.NewInternalError(fmt.Errorf("answer of %s is larger than %d bytes", path, maxObject))
	}
	o, err := resource.Parse(data)
	if err != nil {
		return nil, apierrors.NewInternalError(fmt.Errorf("read answer of %s: %w", path, err))
	}
	return o, nil
}
