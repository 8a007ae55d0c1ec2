package openapi

import (
	"net/http"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
)

// answers makes the server answer a path with a status and a body.
func (d *describing) answers(path string, code int, body string) {
	rest := d.Handler
	d.Handler = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != path {
			rest.ServeHTTP(w, r)
			return
		}
		w.WriteHeader(code)
		w.Write([]byte(body))
	})
}

// A broken document is a 502 with the reason and in a metric; others are served.
func TestBrokenDocumentsAreReported(t *testing.T) {
	t.Parallel()
	crd := startDescribing(t, "crd", "a.example.com", "c.example.com")
	crd.answers("/openapi/v3/apis/a.example.com/v1", 200, "<html>")
	lost := startDescribing(t, "lost", "b.example.com")
	lost.answers("/openapi/v3", 500, "internal")
	good := startDescribing(t, "good", "d.example.com")
	g := startIndexing(t, crd, lost, good)
	g.check(t)
	urls := g.urls(t)
	for key, code := range map[string]int{keyA: 502, "apis/c.example.com/v1": 200, "apis/d.example.com/v1": 200, keyOwn: 200} {
		if w := g.get(urls[key]); w.Code != code {
			t.Errorf("%s: %d %s", key, w.Code, w.Body)
		}
	}
	named := map[string]string{}
	for srv, all := range g.broken() {
		for _, b := range all {
			named[srv.Name+" "+b.Key] = b.Message
		}
	}
	if len(named) != 2 || !strings.Contains(named["crd "+keyA], "decode") || !strings.Contains(named["lost "], "bad status") {
		t.Errorf("broken: %v", named)
	}
	registry := prometheus.NewRegistry()
	registry.MustRegister(newBrokenMetric(g.Documents))
	families, err := registry.Gather()
	if err != nil || len(families) != 1 {
		t.Fatalf("metrics %v, %v", families, err)
	}
	series := map[string]bool{}
	for _, m := range families[0].Metric {
		series[m.Label[0].GetValue()+" "+m.Label[1].GetValue()] = m.Gauge.GetValue() == 1
	}
	if len(series) != 2 || !series["crd a.example.com/v1"] || !series["lost "] {
		t.Errorf("metrics %v", families)
	}
}

// The document of a server with OpenAPI v2 is converted and in the v3 index.
func TestOpenAPIV3OfV2(t *testing.T) {
	t.Parallel()
	old := startDescribing(t, "old", "a.example.com")
	old.answers("/openapi/v3", 404, "404 page not found")
	old.answers("/openapi/v3/apis/a.example.com/v1", 404, "404 page not found")
	old.answers("/openapi/v2", 200, `{"swagger":"2.0","info":{"title":"","version":""},"paths":{"/apis/a.example.com/v1/widgets":{"get":{"responses":{"200":{"description":"ok","schema":{"$ref":"#/definitions/Widget"}}}}}},"definitions":{"Widget":{"type":"object"}}}`)
	g := startIndexing(t, old)
	g.check(t)
	url := g.urls(t)[keyA]
	w := g.get(url)
	if w.Code != 200 || w.Header().Get("Cache-Control") != immutable || !strings.Contains(w.Body.String(), "#/components/schemas/Widget") {
		t.Fatalf("%s: %d %v %s", url, w.Code, w.Header(), w.Body)
	}
	if w := g.get(url, "Accept", mediaProtobuf); w.Code != 200 {
		t.Errorf("protobuf: %d %s", w.Code, w.Body)
	}
	if w := g.get(strings.Replace(url, "hash=", "hash=0", 1)); w.Code != http.StatusMovedPermanently || w.Header().Get("Location") != url {
		t.Errorf("a wrong hash: %d %v", w.Code, w.Header())
	}
	before := old.asked.Load()
	if w := g.get(url); w.Code != 200 || old.asked.Load() != before {
		t.Errorf("%d, %d more requests to the server", w.Code, old.asked.Load()-before)
	}
}
