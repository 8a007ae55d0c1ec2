package sources

import (
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"testing"
	"testing/synctest"
	"time"

	"portico/discovery"
)

// slow is a server with delays before headers and bodies. /api is not found at once.
type slow struct{ header, body time.Duration }

func (s slow) RoundTrip(req *http.Request) (*http.Response, error) {
	rec := httptest.NewRecorder()
	if req.URL.Path == pathCore {
		http.NotFound(rec, req)
		return rec.Result(), nil
	}
	if err := sleep(req.Context(), s.header); err != nil {
		return nil, err
	}
	snapshot, err := discovery.Build([]discovery.GroupVersion{described("apps", "v1", "deployments")}, "")
	if err != nil {
		return nil, err
	}
	discovery.NewHandler(discovery.Fixed(snapshot)).ServeHTTP(rec, req)
	res := rec.Result()
	res.Body = slowBody{res.Body, req.Context(), s.body}
	return res, nil
}

type slowBody struct {
	io.ReadCloser
	ctx  context.Context
	wait time.Duration
}

func (b slowBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	if err == io.EOF {
		if late := sleep(b.ctx, b.wait); late != nil {
			err = late
		}
	}
	return n, err
}

func sleep(ctx context.Context, d time.Duration) error {
	select {
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-time.After(d):
		return nil
	}
}

// The deadline of a check is for the header of the answer: a server with a large document that
// takes longer is available. A body that does not end fails the check later, and at once
// where the source is closed.
func TestDeadlineOfACheckIsForTheHeader(t *testing.T) {
	for name, tt := range map[string]struct {
		server slow
		closed time.Duration // when the source is closed; 0: after the check
		want   error
		took   time.Duration
	}{
		"body later than the deadline": {server: slow{body: 5 * time.Second}, took: 5 * time.Second},
		"header later":                 {server: slow{header: 5 * time.Second}, want: context.DeadlineExceeded, took: time.Second},
		"body without an end":          {server: slow{header: time.Second / 2, body: time.Hour}, want: context.DeadlineExceeded, took: probeBodyTimeout + time.Second/2},
		"closed":                       {server: slow{body: time.Hour}, closed: 2 * time.Second, want: context.Canceled, took: 2 * time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				s := NewSource(Config{Name: "slow", BaseURL: "http://slow", Transport: tt.server, Identify: func(http.Header) {}})
				defer s.Close()
				if tt.closed != 0 {
					time.AfterFunc(tt.closed, s.Close)
				}
				ctx, cancel := context.WithTimeout(t.Context(), time.Second)
				defer cancel()
				began := time.Now()
				if err := s.Check(ctx); !errors.Is(err, tt.want) {
					t.Errorf("check: %v, want %v", err, tt.want)
				}
				if took := time.Since(began); took != tt.took {
					t.Errorf("the check took %v, want %v", took, tt.took)
				}
			})
		})
	}
}
