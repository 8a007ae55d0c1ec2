package upstream

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"testing"

	"portico/apiservice/backend"
	"portico/internal/testing/await"
)

// BenchmarkRoundTrip measures a GET of 1 KB with one and with three endpoints. Client
// and server are in this process.
func BenchmarkRoundTrip(b *testing.B) {
	body := make([]byte, 1<<10)
	answer := handledBy(func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write(body) })
	for _, network := range []string{"tls", "unix"} {
		first := startNode(b, network, nil, answer)
		list := []Endpoint{first.endpoint(), startNode(b, network, nil, answer).endpoint(), startNode(b, network, nil, answer).endpoint()}
		for n, list := range map[int][]Endpoint{1: list[:1], 3: list} {
			u := over(b, NewPolicy(&backend.Spec{}), list...)
			for name, transport := range map[string]http.RoundTripper{"short": u.Short(), "long": u.Long()} {
				b.Run(fmt.Sprintf("%s/%s/%d endpoints", network, name, n), func(b *testing.B) { benchGet(b, list[0].Base.String(), transport) })
			}
		}
	}
}

func benchGet(b *testing.B, base string, transport http.RoundTripper) {
	ctx, cancel := context.WithTimeout(b.Context(), await.Patience())
	defer cancel()
	b.ReportAllocs()
	for b.Loop() {
		req := httptest.NewRequestWithContext(ctx, "GET", base+"/apis/g/v1/things/x", nil)
		req.RequestURI = ""
		res, err := transport.RoundTrip(req)
		if err != nil {
			b.Fatal(err)
		}
		_, _ = io.Copy(io.Discard, res.Body)
		res.Body.Close()
	}
}
