package servers

import (
	"crypto/tls"
	"errors"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	"portico/cmd/e2e"
)

// beforeSample starts a proxy at the registered address of the sample, which moves to another
// port. Requests that rewrite answers, by returning true, are not proxied.
func beforeSample(t *testing.T, s *e2e.SampleServer, rewrite func(w http.ResponseWriter, r *http.Request) bool) {
	t.Helper()
	listener, err := net.Listen("tcp", net.JoinHostPort(s.Host, s.Port))
	if err != nil {
		t.Fatal(err)
	}
	s.Port = e2e.FreePort(t, s.Host)
	// The sample trusts X-Remote headers of the front proxy's certificate only.
	pair, err := tls.LoadX509KeyPair(filepath.Join(s.Up.Dir, "pki", "front-proxy-client.crt"), filepath.Join(s.Up.Dir, "pki", "front-proxy-client.key"))
	if err != nil {
		t.Fatal(err)
	}
	proxy := httputil.NewSingleHostReverseProxy(&url.URL{Scheme: "https", Host: net.JoinHostPort(s.Host, s.Port)})
	proxy.Transport = &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true, Certificates: []tls.Certificate{pair}}}
	front := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !rewrite(w, r) {
			proxy.ServeHTTP(w, r)
		}
	}))
	front.Listener.Close()
	front.Listener = listener
	front.StartTLS()
	t.Cleanup(func() { // Close waits for requests, and controllers watch through it
		front.Listener.Close()
		front.CloseClientConnections()
		front.Close()
	})
}

// explainsByOpenAPIV2 restarts the sample without OpenAPI v3, as of many servers, and checks that
// kubectl explain works, and that a malformed document is reported and affects nothing else.
func explainsByOpenAPIV2(t *testing.T, s *e2e.SampleServer) {
	t.Helper()
	up := s.Up
	s.Kill()
	s.Available(t, "False (FailedDiscoveryCheck)")
	var broken atomic.Bool
	beforeSample(t, s, func(w http.ResponseWriter, r *http.Request) bool {
		switch {
		case strings.HasPrefix(r.URL.Path, "/openapi/v3"):
			http.NotFound(w, r)
		case r.URL.Path == "/openapi/v2" && broken.Load():
			w.Write([]byte("<html>"))
		default:
			return false
		}
		return true
	})
	s.Start(t)
	s.Serves(t)
	s.Available(t, "True")
	const key = "/openapi/v3/apis/wardle.example.com/v1alpha1"
	up.Shows(t, "/openapi/v3", key+"?hash=")
	explains := func(field, text string) {
		t.Helper()
		if out := up.MustKubectl(t, "explain", field); !strings.Contains(out, text) {
			t.Errorf("kubectl explain %s prints %s", field, out)
		}
	}
	explains("flunders.spec", "referenceType")
	if _, body := up.Do(t, http.MethodGet, key, ""); !strings.HasPrefix(body, `{"openapi":"3`) || !strings.Contains(body, `"kind":"Flunder"`) || strings.Contains(body, "#/definitions/") {
		t.Errorf("the document is %.300s", body)
	}
	up.Shows(t, "/openapi/v2", "v1alpha1.Flunder")

	broken.Store(true)
	const metric = `portico_gateway_openapi_broken{backend="v1alpha1.wardle.example.com",group_version=""} 1`
	up.Shows(t, "/metrics", metric)
	explains("flunders.spec", "referenceType")
	explains("configmaps", "data")
	broken.Store(false)
	e2e.Eventually(t, "the metric is gone", func() error {
		if _, body := up.Do(t, http.MethodGet, "/metrics", ""); strings.Contains(body, metric) {
			return errors.New("it is shown")
		}
		return nil
	})
}
