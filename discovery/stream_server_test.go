package discovery

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/http"
	"path/filepath"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/watch"

	"portico/resource/authn"
	httpserver "portico/resource/serve"
	"portico/resource/serve/filter"
)

// A stream lasts as long as its server: neither the deadline of requests nor
// their number bounds it, and shutdown ends it in good order.
func TestStreamLastsAsLongAsItsServer(t *testing.T) {
	const deadline = 50 * time.Millisecond
	current := &Current{}
	shows(t, current, customGroup("a.example.com", "things"))
	socket := filepath.Join(t.TempDir(), "s.sock")
	chain, err := filter.New(filter.Config{
		Handler: NewHandler(current), Authenticator: authn.Anonymous(), Logger: slog.New(slog.DiscardHandler), RequestTimeout: deadline, MaxInFlight: 1,
	})
	if err != nil {
		t.Fatal(err)
	}
	server, err := httpserver.New(httpserver.Config{
		Listen: []httpserver.ListenAddress{{Address: "unix://" + socket}}, Chain: chain, Logger: slog.New(slog.DiscardHandler),
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := server.Listen(); err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- server.Run(ctx) }()
	transport := &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, "unix", socket)
	}}
	var streams []*json.Decoder
	for range 3 {
		req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://server/apis?watch=true", nil)
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("Accept", acceptV2)
		res, err := transport.RoundTrip(req)
		if err != nil || res.StatusCode != http.StatusOK {
			t.Fatalf("%v %v", res, err)
		}
		defer res.Body.Close()
		streams = append(streams, json.NewDecoder(res.Body))
	}
	expect := func(want ...watch.EventType) {
		t.Helper()
		for _, s := range streams {
			for _, kind := range want {
				var e StreamEvent
				if err := s.Decode(&e); err != nil || e.Type != kind {
					t.Fatalf("got %v %v, want %v", e.Type, err, kind)
				}
			}
		}
	}
	expect(watch.Added, watch.Bookmark)
	time.Sleep(3 * deadline)
	shows(t, current, customGroup("a.example.com", "things"), customGroup("b.example.com", "things"))
	expect(watch.Added, watch.Bookmark)
	stop()
	for _, s := range streams {
		if err := s.Decode(&StreamEvent{}); !errors.Is(err, io.EOF) {
			t.Errorf("the stream ended with %v", err)
		}
	}
	if err := <-ended; err != nil {
		t.Errorf("the server ended with %v", err)
	}
}
