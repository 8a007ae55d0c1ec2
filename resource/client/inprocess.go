package client

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"sync"

	"portico/resource"
)

// InProcess returns a transport that passes requests of user to a handler of this process,
// without a connection, authentication or authorization. Responses are streamed, so watches
// work. Closing the body of a response, or ending the context of the request, ends the
// handler's context. Safe for concurrent use if the handler is.
func InProcess(handler http.Handler, user *resource.User) http.RoundTripper {
	return &inProcess{handler, user}
}

type inProcess struct {
	handler http.Handler
	user    *resource.User
}

// RoundTrip returns as soon as the handler has written its header.
func (p *inProcess) RoundTrip(r *http.Request) (*http.Response, error) {
	ctx, cancel := context.WithCancel(r.Context())
	act := resource.ParseAction(r)
	act.User = p.user
	in := r.WithContext(resource.WithAction(ctx, act))
	if in.Body == nil {
		in.Body = http.NoBody
	}
	reader, writer := io.Pipe()
	w := &pipedResponse{header: http.Header{}, body: writer, began: make(chan struct{})}
	go func() {
		defer cancel()
		writer.CloseWithError(p.serve(w, in))
		w.begin(http.StatusOK)
	}()
	select {
	case <-w.began:
	case <-ctx.Done():
		if r.Context().Err() != nil {
			reader.CloseWithError(r.Context().Err())
			return nil, r.Context().Err()
		}
		<-w.began // the handler has ended
	}
	return &http.Response{
		Status: http.StatusText(w.code), StatusCode: w.code, Header: w.sent, ContentLength: -1,
		Body: &responseBody{reader, cancel}, Request: r, Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1,
	}, nil
}

// serve runs the handler. It returns a panic, with which handlers abort a response, as an
// error.
func (p *inProcess) serve(w http.ResponseWriter, r *http.Request) (err error) {
	defer func() {
		if v := recover(); v != nil {
			err = fmt.Errorf("the handler of %s %s panicked: %v", r.Method, r.URL.Path, v)
			if e, ok := v.(error); ok && errors.Is(e, http.ErrAbortHandler) {
				err = io.ErrUnexpectedEOF
			}
		}
	}()
	p.handler.ServeHTTP(w, r)
	return nil
}

// pipedResponse is the ResponseWriter of one response.
type pipedResponse struct {
	header http.Header
	body   *io.PipeWriter

	once  sync.Once
	began chan struct{} // closed once code and sent are set
	code  int
	sent  http.Header // header as of begin
}

func (w *pipedResponse) begin(code int) {
	w.once.Do(func() {
		w.code, w.sent = code, w.header.Clone()
		close(w.began)
	})
}

func (w *pipedResponse) Header() http.Header { return w.header }

// WriteHeader begins the response; informational codes are dropped.
func (w *pipedResponse) WriteHeader(code int) {
	if code >= http.StatusOK {
		w.begin(code)
	}
}

func (w *pipedResponse) Write(data []byte) (int, error) {
	w.begin(http.StatusOK)
	return w.body.Write(data)
}

// Flush begins the response. Writes are not buffered.
func (w *pipedResponse) Flush() { w.begin(http.StatusOK) }

// responseBody ends the handler when it is closed.
type responseBody struct {
	*io.PipeReader
	cancel context.CancelFunc
}

func (b *responseBody) Close() error {
	b.cancel()
	return b.PipeReader.Close()
}
