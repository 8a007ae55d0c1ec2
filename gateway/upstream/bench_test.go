package upstream

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"portico/apiservice/backend"
)

// BenchmarkRoundTrip is what a GET of 1 KB costs, by the ways of an Upstream and
// by a bare http.Transport. Both ends are in this process.
func BenchmarkRoundTrip(b *testing.B) {
	body := make([]byte, 1<<10)
	answer := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write(body) })
	for _, network := range []string{"tls", "unix"} {
		first := benchNode(b, network, answer)
		list := []Endpoint{first.endpoint(), benchNode(b, network, answer).endpoint(), benchNode(b, network, answer).endpoint()}
		for n, list := range map[int][]Endpoint{1: list[:1], 3: list} {
			u := over(b, NewPolicy(&backend.Spec{}), list...)
			for name, way := range map[string]http.RoundTripper{"short": u.Short(), "long": u.Long()} {
				b.Run(fmt.Sprintf("%s/%s/%d endpoints", network, name, n), func(b *testing.B) { benchGet(b, list[0].Base.String(), way) })
			}
		}
		u := over(b, NewPolicy(&backend.Spec{}), list[0])
		g, err := u.endpoints[0].ways.get()
		if err != nil {
			b.Fatal(err)
		}
		b.Run(network+"/http.Transport", func(b *testing.B) { benchGet(b, list[0].Base.String(), g.rest.transport()) })
		b.Run(network+"/direct", func(b *testing.B) {
			benchGet(b, list[0].Base.String(), roundTripper(func(r *http.Request) (*http.Response, error) {
				res, _, err := g.direct.send(r, nil)
				return res, err
			}))
		})
	}
}

func benchNode(b *testing.B, network string, h http.Handler) *node {
	n := startNode(b, network, nil)
	n.Config.Handler = h
	return n
}

func benchGet(b *testing.B, base string, way http.RoundTripper) {
	ctx, cancel := context.WithTimeout(b.Context(), time.Minute)
	defer cancel()
	b.ReportAllocs()
	for b.Loop() {
		req := httptest.NewRequestWithContext(ctx, "GET", base+"/apis/g/v1/things/x", nil)
		req.RequestURI = ""
		res, err := way.RoundTrip(req)
		if err != nil {
			b.Fatal(err)
		}
		_, _ = io.Copy(io.Discard, res.Body)
		res.Body.Close()
	}
}
