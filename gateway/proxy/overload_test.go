package proxy

import (
	"crypto/tls"
	"io"
	"net/http"
	"sync"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"portico/apiservice/backend"
	"portico/gateway/upstream"
	"portico/resource"
	"portico/resource/serve/filter"
)

// A server that does not answer takes no slots from requests to others: the limit of
// the gateway does not count requests that wait for servers.
func TestHungServerTakesNoSlots(t *testing.T) {
	t.Parallel()
	arrived, answer := make(chan struct{}), make(chan struct{})
	front := startChain(t, func(http.ResponseWriter, *http.Request) {
		arrived <- struct{}{}
		<-answer
	}, func(c *filter.Config) { c.MaxInFlight, c.MaxMutatingInFlight = 1, 1 })
	finish := sync.OnceFunc(func() { close(answer) })
	t.Cleanup(finish)
	codes := make(chan int, 4)
	for _, method := range []string{"GET", "GET", "POST", "POST"} {
		go func() {
			req, _ := http.NewRequestWithContext(t.Context(), method, front.URL+shortPath, nil)
			res, err := front.Client().Do(req)
			if err != nil {
				codes <- 0
				return
			}
			res.Body.Close()
			codes <- res.StatusCode
		}()
		select {
		case <-arrived:
		case code := <-codes:
			t.Fatalf("%s: %d", method, code)
		}
	}
	finish()
	for range 4 {
		if code := <-codes; code != 200 {
			t.Error(code)
		}
	}
}

// A request beyond the server's limit gets 429 with Retry-After.
func TestTooMany(t *testing.T) {
	t.Parallel()
	hang, arrived := make(chan struct{}), make(chan struct{}, 10)
	f := startFront(t, func(http.ResponseWriter, *http.Request) {
		arrived <- struct{}{}
		<-hang
	})
	p := upstream.NewPolicy(&backend.Spec{})
	p.Limits.Concurrent, p.Limits.Queue = 1, 0
	f.up.SetPolicy(p)
	first := make(chan int)
	go func() {
		res, err := http.Get(f.URL + shortPath)
		if err != nil {
			first <- 0
			return
		}
		res.Body.Close()
		first <- res.StatusCode
	}()
	<-arrived
	res := f.get(t, shortPath)
	if s := statusOf(t, res); res.StatusCode != 429 || s.Reason != metav1.StatusReasonTooManyRequests || res.Header.Get("Retry-After") != "1" {
		t.Errorf("%d %v %+v", res.StatusCode, res.Header, s)
	}
	close(hang)
	if code := <-first; code != 200 {
		t.Errorf("the one before: %d", code)
	}
}

// A body for a registered server that does not come, or stops, is ended with a 408 after ten seconds.
func TestBodyForServerMustMakeProgress(t *testing.T) {
	t.Parallel()
	front := startChain(t, func(_ http.ResponseWriter, r *http.Request) { _, _ = io.Copy(io.Discard, r.Body) }, func(c *filter.Config) {
		c.SentOn = func(*resource.Action) bool { return true }
	})
	http1 := front.Client().Transport.(*http.Transport).Clone()
	http1.ForceAttemptHTTP2, http1.TLSNextProto = false, map[string]func(string, *tls.Conn) http.RoundTripper{}
	http1.TLSClientConfig.NextProtos = nil
	for name, tc := range map[string]struct {
		length, sent int
		through      http.RoundTripper
		accept       string
	}{
		"nothing of a small body":   {100, 0, front.Client().Transport, ""},
		"a part of a large one":     {200_000, 100_000, front.Client().Transport, ""},
		"over HTTP/1.1":             {100, 0, http1, ""},
		"of a request for a stream": {100, 0, front.Client().Transport, "text/event-stream"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			body, client := io.Pipe()
			defer client.Close()
			go client.Write(make([]byte, tc.sent))
			req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, front.URL+shortPath, body)
			if err != nil {
				t.Fatal(err)
			}
			req.ContentLength = int64(tc.length)
			req.Header.Set("Accept", tc.accept)
			res, err := tc.through.RoundTrip(req)
			if err != nil {
				t.Fatal(err)
			}
			defer res.Body.Close()
			if s := statusOf(t, res); res.StatusCode != http.StatusRequestTimeout || s.Reason != metav1.StatusReasonTimeout {
				t.Errorf("%d %+v", res.StatusCode, s)
			}
		})
	}
}
