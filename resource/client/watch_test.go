package client_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"portico/internal/testing/await"
	"portico/resource"
)

// stream returns a watch of frames that a test sends.
func stream(t *testing.T, frames <-chan string, opts resource.WatchOptions) (w resource.Watcher, gone <-chan struct{}) {
	left := make(chan struct{})
	s := over(t, func(w http.ResponseWriter, r *http.Request) {
		defer close(left)
		w.(http.Flusher).Flush()
		for {
			select {
			case f, ok := <-frames:
				if !ok {
					return
				}
				io.WriteString(w, f)
				w.(http.Flusher).Flush()
			case <-r.Context().Done():
				return
			}
		}
	})
	w, err := s.Watch(t.Context(), opts)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(w.Close)
	return w, left
}

func TestWatchFrames(t *testing.T) {
	frames := make(chan string, 1)
	w, _ := stream(t, frames, resource.WatchOptions{InitialEvents: true})
	bookmark := `{"type":"BOOKMARK","object":{"kind":"ConfigMap","apiVersion":"v1","metadata":{"resourceVersion":"6","creationTimestamp":null%s}}}`
	frames <- `{"type":"ADDED","object":` + configMap("x", 5) + `}` + "\n" +
		fmt.Sprintf(bookmark, "") + fmt.Sprintf(bookmark, `,"annotations":{"k8s.io/initial-events-end":"true"}`) +
		`{"type":"MODIFIED","object":` + configMap("x", 7) + `} {"type":"NOVEL","object":{}}{"type":"DELETED","object":` + configMap("x", 8) + `}` +
		`{"type":"ERROR","object":{"kind":"Status","apiVersion":"v1","status":"Failure","code":410,"reason":"Expired","message":"too old"}}`
	var got []string
	for {
		events, err := w.Next(t.Context())
		if err != nil {
			if !apierrors.IsResourceExpired(err) || err.Error() != "too old" {
				t.Errorf("ended with %v", err)
			}
			if _, again := w.Next(t.Context()); again != err {
				t.Errorf("then with %v", again)
			}
			break
		}
		for _, e := range events {
			got = append(got, fmt.Sprint(e.Type, "@", e.Revision, " ", e.Object != nil))
		}
	}
	want := []string{"1@5 true", "5@6 false", "2@7 true", "3@8 true"}
	if !slices.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
}

func TestWatchEnds(t *testing.T) {
	next := func(w resource.Watcher) error { _, err := w.Next(t.Context()); return err }
	for name, tt := range map[string]struct {
		frame string
		is    func(error) bool
	}{
		"in good order": {"", func(err error) bool { return errors.Is(err, io.EOF) }},
		"in a frame":    {`{"type":"ADDED","obj`, apierrors.IsServiceUnavailable},
		"with nonsense": {`<html>`, apierrors.IsServiceUnavailable},
	} {
		t.Run(name, func(t *testing.T) {
			frames := make(chan string, 1)
			frames <- tt.frame
			close(frames)
			w, _ := stream(t, frames, resource.WatchOptions{Since: 1})
			if err := next(w); !tt.is(err) {
				t.Errorf("got %v", err)
			}
		})
	}
	t.Run("by Close", func(t *testing.T) {
		w, gone := stream(t, nil, resource.WatchOptions{Since: 1})
		ended := make(chan error)
		go func() { ended <- next(w) }()
		w.Close()
		w.Close()
		if err := <-ended; !errors.Is(err, io.EOF) {
			t.Errorf("got %v", err)
		}
		select {
		case <-gone:
		case <-time.After(await.Patience()):
			t.Error("the server still serves the watch")
		}
	})
	t.Run("not by Next's context", func(t *testing.T) {
		frames := make(chan string, 1)
		w, _ := stream(t, frames, resource.WatchOptions{Since: 1})
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if _, err := w.Next(ctx); !errors.Is(err, context.Canceled) {
			t.Errorf("got %v", err)
		}
		frames <- `{"type":"ADDED","object":` + configMap("x", 5) + `}`
		if err := next(w); err != nil {
			t.Errorf("then %v", err)
		}
	})
}
