package filter

import (
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
)

// pipeWriter is a response writer whose read deadline ends a pipe.
type pipeWriter struct {
	http.ResponseWriter
	pipe  *io.PipeReader
	ended int
}

func (w *pipeWriter) SetReadDeadline(at time.Time) error {
	if at.Before(time.Now()) {
		w.ended++
		w.pipe.CloseWithError(os.ErrDeadlineExceeded)
	}
	return nil
}

// sentBody returns the body of a request and the end by which its client sends it.
func sentBody() (*clientBody, *pipeWriter, *io.PipeWriter) {
	body, client := io.Pipe()
	r, w := httptest.NewRequest(http.MethodPost, "/", body), &pipeWriter{httptest.NewRecorder(), body, 0}
	return newClientBody(w, r), w, client
}

// A body that does not come is ended after ten seconds, and so is one that comes at less than 1024
// bytes a second; a slow one, and one with pauses of nine seconds, are read to their end.
func TestBodyMustMakeProgress(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		parts, size int
		pause, last time.Duration
		ends        time.Duration // 0: it arrives
	}{
		"nothing comes":                   {0, 0, 0, time.Hour, bodyPatience},
		"a part comes, and then nothing":  {1, 60 << 10, 0, time.Hour, bodyPatience},
		"a byte a second":                 {100, 1, time.Second, 0, 10 * time.Second},
		"half of the least rate":          {100, 512, time.Second, 0, 19 * time.Second},
		"the least rate":                  {50, 1024, time.Second, 0, 0},
		"large parts with long pauses":    {6, 20 << 10, 9 * time.Second, 9 * time.Second, 0},
		"all at once":                     {100, 32 << 10, 0, 0, 0},
		"slow to begin, and then at once": {1, 3 << 10, 9 * time.Second, 0, 0},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				body, w, client := sentBody()
				go func() {
					defer client.Close()
					for range tc.parts {
						time.Sleep(tc.pause)
						if _, err := client.Write(make([]byte, tc.size)); err != nil {
							return
						}
					}
					time.Sleep(tc.last)
				}()
				began := time.Now()
				n, err := io.Copy(io.Discard, struct{ io.Reader }{body})
				took := time.Since(began)
				if tc.ends == 0 {
					if err != nil || n != int64(tc.parts*tc.size) || w.ended != 0 {
						t.Errorf("%d bytes of %d, and then %v", n, tc.parts*tc.size, err)
					}
					return
				}
				if status := apierrors.APIStatus(nil); !errors.As(err, &status) || status.Status().Code != http.StatusRequestTimeout || w.ended != 1 {
					t.Errorf("got %v, ended %d times", err, w.ended)
				}
				if took < tc.ends || took > tc.ends+time.Second {
					t.Errorf("ended after %v, want %v", took, tc.ends)
				}
				client.Close()
				time.Sleep(2 * time.Hour) // the sender sees it
			})
		})
	}
}

// A body that is ended fails with the first cause, whether it is being read or not, and one that has
// been read is not ended any more: the deadline would hold for the next request of the connection.
func TestEndOfBody(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		first := errReplaced()
		body, w, client := sentBody()
		go func() { time.Sleep(time.Second); body.end(first); body.end(errStalled()) }()
		if _, err := body.Read(make([]byte, 1)); err != first || w.ended != 1 || !body.ended() {
			t.Errorf("while it is read: %v, ended %d times", err, w.ended)
		}
		client.Close()
		body, w, client = sentBody()
		body.end(first)
		if _, err := body.Read(make([]byte, 1)); err != first || w.ended != 0 {
			t.Errorf("before it is read: %v, ended %d times", err, w.ended)
		}
		client.Close()
		body, w, client = sentBody()
		go func() { client.Write([]byte("x")); client.Close() }()
		if _, err := io.ReadAll(body); err != nil {
			t.Error(err)
		}
		time.Sleep(time.Hour)
		if body.end(first); w.ended != 0 {
			t.Error("a deadline is set after the body")
		}
	})
}

// watchedBody is a body that knows whether it is read. began is closed by the first Read.
type watchedBody struct {
	io.ReadCloser
	first sync.Once
	began chan struct{}
	reads atomic.Int32
}

func (b *watchedBody) Read(p []byte) (int, error) {
	b.reads.Add(1)
	b.first.Do(func() { close(b.began) })
	defer b.reads.Add(-1)
	return b.ReadCloser.Read(p)
}

// Over HTTP/2 no Read outlasts the request: net/http could close the connection with its other requests.
func TestFinishedHTTP2BodyIsNotRead(t *testing.T) {
	t.Parallel()
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		watched := &watchedBody{ReadCloser: r.Body, began: make(chan struct{})}
		r.Body = watched
		body := newClientBody(w, r)
		body.stream = r.URL.Path == "/stream"
		ended := make(chan error, 1)
		go func() {
			_, err := io.Copy(io.Discard, body)
			ended <- err
		}()
		<-watched.began
		body.finish()
		if watched.reads.Load() != 0 {
			t.Error("Read goes on after the request")
			return
		}
		if err := <-ended; !errors.Is(err, http.ErrBodyReadAfterClose) {
			t.Errorf("Read: %v", err)
		}
	}))
	server.EnableHTTP2 = true
	server.StartTLS()
	defer server.Close()
	for i := range 20 {
		body, client := io.Pipe()
		res, err := server.Client().Post(server.URL+[]string{"/", "/stream"}[i%2], "", body)
		if err != nil {
			t.Fatal(err)
		}
		res.Body.Close()
		client.Close()
	}
}

// A Read that outlasts the request, as that of a connection to a server may, does not use the
// ResponseWriter after it.
func TestFinishedBodyLeavesTheResponseAlone(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		body, w, client := sentBody()
		done := make(chan error)
		go func() {
			_, err := body.Read(make([]byte, 1))
			done <- err
		}()
		synctest.Wait()
		body.finish()
		time.Sleep(2 * bodyPatience)
		if w.ended != 0 {
			t.Error("the deadline of the connection is set after the request")
		}
		client.Close()
		if err := <-done; !errors.Is(err, http.ErrBodyReadAfterClose) {
			t.Errorf("Read: %v", err)
		}
	})
}
