package main

import (
	"bytes"
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"time"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
)

// readBuffer is the size of a read into a buffer that is discarded.
const readBuffer = 64 << 10

// client sends requests to one server on a fixed number of HTTP/2 connections.
// Callers select a connection by number, so that the load is spread evenly, as
// over many real clients; on one connection its reader would be the bottleneck.
type client struct {
	base        string // https://host:port
	connections []*http.Client
	buffers     sync.Pool
}

// newClient returns a client of n connections, which are opened when first used.
// wrap adds credentials to requests; it may be nil.
func newClient(base string, n int, conf *tls.Config, wrap func(http.RoundTripper) (http.RoundTripper, error)) (*client, error) {
	c := &client{base: base, buffers: sync.Pool{New: func() any { b := make([]byte, readBuffer); return &b }}}
	for range n {
		// Compressed bodies would measure gzip.
		var rt http.RoundTripper = &http.Transport{
			TLSClientConfig: conf.Clone(), Protocols: protocols(false), DisableCompression: true, TLSHandshakeTimeout: 10 * time.Second,
		}
		if wrap != nil {
			var err error
			if rt, err = wrap(rt); err != nil {
				return nil, fmt.Errorf("make client: %w", err)
			}
		}
		c.connections = append(c.connections, &http.Client{Transport: rt})
	}
	return c, nil
}

// openTarget returns a client of the server in the kubeconfig, which must be on
// this machine.
func openTarget(ctx context.Context, o *options) (*client, error) {
	cfg, err := clientcmd.BuildConfigFromFlags("", o.kubeconfig)
	if err != nil {
		return nil, fmt.Errorf("read kubeconfig: %w", err)
	}
	u, err := url.Parse(cfg.Host)
	if err != nil || u.Scheme != "https" {
		return nil, fmt.Errorf("read kubeconfig: the server is %q; it must be https://host:port", cfg.Host)
	}
	if err := requireLoopback(ctx, u.Hostname()); err != nil {
		return nil, err
	}
	conf, err := rest.TLSConfigFor(cfg)
	if err != nil {
		return nil, fmt.Errorf("read kubeconfig: %w", err)
	}
	if conf == nil {
		conf = &tls.Config{MinVersion: tls.VersionTLS12}
	}
	return newClient(strings.TrimSuffix(cfg.Host, "/"), o.connections, conf, func(rt http.RoundTripper) (http.RoundTripper, error) {
		return rest.HTTPWrappersForConfig(cfg, rt)
	})
}

// requireLoopback returns an error unless host is this machine: a load on another
// machine by mistake does harm.
func requireLoopback(ctx context.Context, host string) error {
	addrs, err := net.DefaultResolver.LookupNetIP(ctx, "ip", host)
	if err != nil {
		return fmt.Errorf("look up %s: %w", host, err)
	}
	for _, a := range addrs {
		if !a.Unmap().IsLoopback() {
			return fmt.Errorf("%s is at %v, which is not a loopback address; only this machine may be measured", host, a)
		}
	}
	return nil
}

// request is a request. The default method is GET; a body needs a contentType.
type request struct {
	method, path string
	contentType  string
	body         []byte
	accept       string // the media type of the answer (default: JSON)
}

// statusError is an answer with a status other than 2xx.
type statusError struct {
	request string
	code    int
	text    string
	// retryAfter is the header Retry-After.
	retryAfter string
}

func (e *statusError) Error() string { return fmt.Sprintf("%s: %d %s", e.request, e.code, e.text) }

// isStatus reports whether err is an answer with that code.
func isStatus(err error, code int) bool {
	var status *statusError
	return errors.As(err, &status) && status.code == code
}

// open sends a request on a connection and returns a 2xx answer. The caller closes
// its body. Any other answer is a *statusError.
func (c *client) open(ctx context.Context, connection int, q request) (*http.Response, error) {
	if q.method == "" {
		q.method = http.MethodGet
	}
	var body io.Reader
	if q.body != nil {
		body = bytes.NewReader(q.body)
	}
	r, err := http.NewRequestWithContext(ctx, q.method, c.base+q.path, body)
	if err != nil {
		return nil, fmt.Errorf("make request: %w", err)
	}
	r.Header.Set("Accept", cmp.Or(q.accept, jsonType))
	r.Header.Set("User-Agent", "portico-bench")
	if q.contentType != "" {
		r.Header.Set("Content-Type", q.contentType)
	}
	res, err := c.connections[connection%len(c.connections)].Do(r)
	if err != nil {
		return nil, err
	}
	if res.StatusCode/100 != 2 {
		defer res.Body.Close()
		text, _ := io.ReadAll(io.LimitReader(res.Body, 500)) // the status is the error
		return nil, &statusError{q.method + " " + q.path, res.StatusCode, string(text), res.Header.Get("Retry-After")}
	}
	return res, nil
}

// discard sends a request, reads the answer to its end and returns its length.
func (c *client) discard(ctx context.Context, connection int, q request) (int64, error) {
	res, err := c.open(ctx, connection, q)
	if err != nil {
		return 0, err
	}
	defer res.Body.Close()
	buf := c.buffers.Get().(*[]byte)
	defer c.buffers.Put(buf)
	var total int64
	for {
		n, err := res.Body.Read(*buf)
		total += int64(n)
		if errors.Is(err, io.EOF) {
			return total, nil
		}
		if err != nil {
			return total, fmt.Errorf("read answer to %s: %w", q.path, err)
		}
	}
}

// read sends a request on a connection and returns the answer.
func (c *client) read(ctx context.Context, connection int, q request) ([]byte, error) {
	res, err := c.open(ctx, connection, q)
	if err != nil {
		return nil, err
	}
	defer res.Body.Close()
	data, err := io.ReadAll(res.Body)
	if err != nil {
		return nil, fmt.Errorf("read answer to %s: %w", q.path, err)
	}
	return data, nil
}

// close closes idle connections.
func (c *client) close() {
	for _, connection := range c.connections {
		connection.CloseIdleConnections()
	}
}
