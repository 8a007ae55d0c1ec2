package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"runtime"
	"runtime/debug"
	"strconv"
	"strings"
)

// Processes of the proxy benchmark, by the command that runs them.
const (
	roleBackend = "proxy-backend"
	roleBare    = "proxy-bare"
)

// What the static server serves, in every group that it is asked for.
const (
	smallObject  = 200 // bytes
	proxyVersion = "v1"
	proxyPlural  = "widgets"
	// proxyService is how the server is registered: its certificate has that
	// name.
	proxyService, proxyNamespace = "static", "load-proxy"
	// collectPath has the server collect its garbage.
	collectPath = "/collect"
)

func proxyGroup(i int) string { return fmt.Sprintf("g%04d.load-proxy.example.com", i) }

func proxyGroupPath(i int) string { return "/apis/" + proxyGroup(i) + "/" + proxyVersion }

// proxyObject is the path of an object as long as its name says.
func proxyObject(group int, name string) string {
	return proxyGroupPath(group) + "/namespaces/default/" + proxyPlural + "/" + name
}

// staticJSON is a JSON object of n bytes.
func staticJSON(n int64) []byte {
	const head, tail = `{"apiVersion":"load-proxy.example.com/v1","kind":"Widget","metadata":{"name":"static","namespace":"default"},"spec":{"text":"`, `"}}`
	return []byte(head + strings.Repeat("v", max(0, int(n)-len(head)-len(tail))) + tail)
}

// collectBetween has what is on the load's side of a measurement collect garbage between
// turns only, as long as it has no gigabyte of it: marking takes its processor for 3 to
// 12 ms, which is up to 60 requests at 5,000 a second, and so in the 99th percentile of
// every proxy.
func collectBetween() {
	debug.SetGCPercent(-1)
	debug.SetMemoryLimit(1 << 30)
}

// serveStatic runs the server behind every proxy: it has all answers ready.
func serveStatic(cfg chainConfig) (chainAddress, error) {
	collectBetween()
	small, large := readyBytes(staticJSON(smallObject)), readyBytes(staticJSON(cfg.Object))
	protocols := new(http.Protocols)
	protocols.SetHTTP1(true)
	protocols.SetHTTP2(true)
	return listenTLS(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch path := r.URL.Path; {
		case strings.HasSuffix(path, "/large"):
			large.ServeHTTP(w, r)
		case strings.HasSuffix(path, "/small"):
			small.ServeHTTP(w, r)
		case path == collectPath:
			runtime.GC()
		case strings.HasSuffix(path, "/"+proxyPlural): // a watch in which nothing happens
			w.Header().Set("Content-Type", jsonType)
			_ = http.NewResponseController(w).Flush() // a client that is gone needs no answer
			<-r.Context().Done()
		default:
			serveGroup(w, path)
		}
	}), protocols, proxyService+"."+proxyNamespace+".svc")
}

// serveGroup answers the discovery of any group.
func serveGroup(w http.ResponseWriter, path string) {
	parts := strings.Split(strings.Trim(path, "/"), "/")
	if len(parts) != 3 || parts[0] != "apis" {
		http.Error(w, "not found", http.StatusNotFound)
		return
	}
	body := fmt.Appendf(nil, `{"kind":"APIResourceList","apiVersion":"v1","groupVersion":"%s/%s","resources":[`+
		`{"name":"%s","singularName":"widget","namespaced":true,"kind":"Widget","verbs":["get","list","watch"]}]}`, parts[1], parts[2], proxyPlural)
	w.Header().Set("Content-Type", jsonType)
	w.Header().Set("Content-Length", strconv.Itoa(len(body)))
	_, _ = w.Write(body) // as above
}

// serveBare runs the bare reverse proxy. To its server it speaks HTTP/1.1, which
// is the faster way for short requests.
func serveBare(cfg chainConfig) (chainAddress, error) {
	conf, err := cfg.Upstream.tls()
	if err != nil {
		return chainAddress{}, err
	}
	protocols := new(http.Protocols)
	protocols.SetHTTP1(true)
	protocols.SetHTTP2(true)
	return listenTLS(bareProxy(cfg.Upstream, &http.Transport{
		TLSClientConfig: conf, MaxIdleConnsPerHost: 256, DisableCompression: true,
	}), protocols)
}

// jsonBody encodes what is sent to the gateway.
func jsonBody(v any) []byte {
	var b bytes.Buffer
	_ = json.NewEncoder(&b).Encode(v) // maps and strings encode
	return b.Bytes()
}
