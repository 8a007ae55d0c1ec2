package main

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net/http"
	"sync"
	"time"
)

// readBuffer is how much of a body is read at a time, and discarded.
const readBuffer = 64 << 10

// pool is a number of HTTP/2 connections to one server. They are chosen by the
// caller's number, so that each carries the same share, as the connections of
// many real clients do; a single one would make its one reader the bottleneck.
type pool struct {
	base    string // https://host:port
	clients []*http.Client
	buffers sync.Pool
}

// newPool makes a pool of n connections, which are opened when first used. wrap
// adds what the requests carry (a token, say); it may be nil.
func newPool(base string, n int, conf *tls.Config, wrap func(http.RoundTripper) (http.RoundTripper, error)) (*pool, error) {
	p := &pool{base: base, buffers: sync.Pool{New: func() any { b := make([]byte, readBuffer); return &b }}}
	protocols := new(http.Protocols)
	protocols.SetHTTP2(true)
	for range n {
		// Compressed bodies would measure gzip.
		var rt http.RoundTripper = &http.Transport{
			TLSClientConfig: conf.Clone(), Protocols: protocols, DisableCompression: true, TLSHandshakeTimeout: 10 * time.Second,
		}
		if wrap != nil {
			var err error
			if rt, err = wrap(rt); err != nil {
				return nil, fmt.Errorf("make client: %w", err)
			}
		}
		p.clients = append(p.clients, &http.Client{Transport: rt})
	}
	return p, nil
}

// request is one request. Without a method it is a GET; a body has a type.
type request struct {
	method, path string
	contentType  string
	body         []byte
}

// statusError is an answer other than success.
type statusError struct {
	what string
	code int
	text string
}

func (e *statusError) Error() string { return fmt.Sprintf("%s: %d %s", e.what, e.code, e.text) }

// isStatus reports whether err is an answer with that code.
func isStatus(err error, code int) bool {
	var status *statusError
	return errors.As(err, &status) && status.code == code
}

// open sends a request and returns its successful answer, whose body the caller
// closes; any other is a *statusError.
func (p *pool) open(ctx context.Context, client int, q request) (*http.Response, error) {
	if q.method == "" {
		q.method = http.MethodGet
	}
	var body io.Reader
	if q.body != nil {
		body = bytes.NewReader(q.body)
	}
	r, err := http.NewRequestWithContext(ctx, q.method, p.base+q.path, body)
	if err != nil {
		return nil, fmt.Errorf("make request: %w", err)
	}
	r.Header.Set("Accept", "application/json")
	r.Header.Set("User-Agent", "portico-load")
	if q.contentType != "" {
		r.Header.Set("Content-Type", q.contentType)
	}
	res, err := p.clients[client%len(p.clients)].Do(r)
	if err != nil {
		return nil, err
	}
	if res.StatusCode/100 != 2 {
		defer res.Body.Close()
		text, _ := io.ReadAll(io.LimitReader(res.Body, 500)) // what there is of it
		return nil, &statusError{q.method + " " + q.path, res.StatusCode, string(text)}
	}
	return res, nil
}

// discard sends a request, reads the answer to its end and returns its length.
func (p *pool) discard(ctx context.Context, client int, q request) (int64, error) {
	res, err := p.open(ctx, client, q)
	if err != nil {
		return 0, err
	}
	defer res.Body.Close()
	buf := p.buffers.Get().(*[]byte)
	defer p.buffers.Put(buf)
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

// read sends a request and returns the answer.
func (p *pool) read(ctx context.Context, q request) ([]byte, error) { return p.readBy(ctx, 0, q) }

func (p *pool) readBy(ctx context.Context, client int, q request) ([]byte, error) {
	res, err := p.open(ctx, client, q)
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

// close lets go of idle connections.
func (p *pool) close() {
	for _, c := range p.clients {
		c.CloseIdleConnections()
	}
}
