package client

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"testing"

	"portico/resource"
)

// inMemory sends GET / to a handler of the test.
func inMemory(t *testing.T, ctx context.Context, handler http.HandlerFunc) (*http.Response, error) {
	t.Helper()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://here/api/v1/namespaces/n/pods", nil)
	if err != nil {
		t.Fatal(err)
	}
	return InProcess(handler, &resource.User{Name: "u"}).RoundTrip(req)
}

// A handler in the process sees the request as the user's, and its answer is that
// of a server: code, header and body.
func TestInProcessAnswers(t *testing.T) {
	t.Parallel()
	res, err := inMemory(t, t.Context(), func(w http.ResponseWriter, r *http.Request) {
		act := resource.ActionFrom(r.Context())
		body, err := io.ReadAll(r.Body)
		w.Header().Set("X-Of", act.User.Name+" "+act.Verb+" "+act.Resource)
		w.WriteHeader(http.StatusTeapot)
		w.Header().Set("X-Late", "dropped")
		fmt.Fprintf(w, "%q %v", body, err)
	})
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	body, err := io.ReadAll(res.Body)
	if err != nil || res.StatusCode != http.StatusTeapot || res.Header.Get("X-Of") != "u list pods" || res.Header.Get("X-Late") != "" || string(body) != `"" <nil>` {
		t.Errorf("%d %v %q, %v", res.StatusCode, res.Header, body, err)
	}
	res, err = inMemory(t, t.Context(), func(http.ResponseWriter, *http.Request) {})
	if err != nil || res.StatusCode != http.StatusOK {
		t.Errorf("of a handler that writes nothing: %v, %v", res, err)
	}
	res.Body.Close()
}

// What a handler writes is there before it returns, and closing the body ends the
// handler, as does the end of the request's context.
func TestInProcessStreams(t *testing.T) {
	t.Parallel()
	ended := make(chan error, 2)
	watch := func(w http.ResponseWriter, r *http.Request) {
		io.WriteString(w, "one")
		<-r.Context().Done()
		ended <- r.Context().Err()
	}
	res, err := inMemory(t, t.Context(), watch)
	if err != nil {
		t.Fatal(err)
	}
	if first, err := io.ReadAll(io.LimitReader(res.Body, 3)); err != nil || string(first) != "one" {
		t.Errorf("%q, %v", first, err)
	}
	res.Body.Close()
	if err := <-ended; !errors.Is(err, context.Canceled) {
		t.Errorf("after Close: %v", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	silent := make(chan struct{})
	go func() { <-silent; cancel() }()
	_, err = inMemory(t, ctx, func(_ http.ResponseWriter, r *http.Request) {
		close(silent)
		<-r.Context().Done()
		ended <- r.Context().Err()
	})
	if !errors.Is(err, context.Canceled) {
		t.Errorf("of a request that ended: %v", err)
	}
	<-ended
}

// A handler that aborts its answer leaves a body that ends in an error, and the
// process running.
func TestInProcessAborts(t *testing.T) {
	t.Parallel()
	for _, value := range []any{http.ErrAbortHandler, "bug"} {
		res, err := inMemory(t, t.Context(), func(w http.ResponseWriter, _ *http.Request) {
			io.WriteString(w, "half")
			panic(value)
		})
		if err != nil {
			t.Fatal(err)
		}
		if body, err := io.ReadAll(res.Body); err == nil || string(body) != "half" {
			t.Errorf("%v: %q, %v", value, body, err)
		}
		res.Body.Close()
	}
}
